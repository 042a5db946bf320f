// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* How do communicators come to be, and when do they end? */
#include "abi/nccl.h"
#include "lib/atomics.bpf.h"
#include "nccl/comms.bpf.h"
#include "nccl/connecting.bpf.h"
#include "nccl/rows.bpf.h"
#include "nccl/threads.bpf.h"

#define MOST_DEVICES 64 /* of one process; of further ones a communicator is not known */

static __always_inline struct nccl_call *begin_making(struct pt_regs *ctx, u64 cookie, struct caller *who)
{
	struct nccl_thread *t;

	if (!identify(who))
		return NULL;
	t = meet_nccl_thread(who);
	if (!t) {
		lose(LOSS_CALLS_FULL);
		return NULL;
	}
	return begin_call(t, ctx, NCCL_FUNCTION(cookie));
}

static __always_inline void note_rank(struct nccl_call *call, s32 rank, s32 ranks)
{
	if (is_rank(rank, ranks)) {
		call->rank = rank;
		call->ranks = ranks;
	}
}

/* (ncclComm_t *, int nranks, ncclUniqueId, int rank, ...): the id, by value, is in memory, and on arm64 its place an argument. */
SEC("uprobe")
int comm_init(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct nccl_call *call;
	struct caller who;

	call = begin_making(ctx, cookie, &who);
	if (!call)
		return 0;
	call->address = argument(ctx, 0);
#if defined(__TARGET_ARCH_x86)
	note_rank(call, argument(ctx, 2), argument(ctx, 1));
	call->comm = hash_id(STACK_POINTER(ctx) + STACK_SKIP);
#else
	note_rank(call, argument(ctx, 3), argument(ctx, 1));
	call->comm = hash_id(argument(ctx, 2));
#endif
	connect_begins(ctx, &who, call);
	return 0;
}

/* (ncclComm_t *, int nranks, int rank, int ids, ncclUniqueId *, ...): of several ids the first is no other's. */
SEC("uprobe")
int comm_init_scalable(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct nccl_call *call;
	struct caller who;

	call = begin_making(ctx, cookie, &who);
	if (!call)
		return 0;
	call->address = argument(ctx, 0);
	note_rank(call, argument(ctx, 2), argument(ctx, 1));
	call->comm = hash_id(argument(ctx, 4));
	connect_begins(ctx, &who, call);
	return 0;
}

/* (ncclComm_t *, int devices, const int *): nobody else sees their id, so that any number will do that no other has. */
SEC("uprobe")
int comm_init_all(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), hash;
	struct nccl_call *call;
	struct caller who;

	call = begin_making(ctx, cookie, &who);
	if (!call)
		return 0;
	call->address = argument(ctx, 0);
	call->ranks = argument(ctx, 1);
	hash = fnv_word(FNV_BASIS, (u64)who.tgid << 32 | who.exec_id);
	hash = fnv_word(fnv_word(hash, who.born_ns), call->start_ns);
	call->comm = hash ? hash : 1;
	connect_begins(ctx, &who, call);
	return 0;
}

/* (ncclComm_t, int color, int key, ncclComm_t *, ...) and (ncclComm_t, int *excluded, int, ncclComm_t *, ...): all ranks that are
 * to be in it make the same calls on the old one, so that these tell it. Which rank it is, it says itself. */
static __always_inline int comm_from(struct pt_regs *ctx, int has_color)
{
	u64 cookie = attach_cookie(ctx), hash;
	struct nccl_call *call;
	struct nccl_comm *old;
	struct caller who;

	call = begin_making(ctx, cookie, &who);
	if (!call)
		return 0;
	call->address = argument(ctx, 3);
	old = comm_at(&who, argument(ctx, 0));
	if (old) {
		hash = fnv_word(old->comm, COUNT_UP(&old->splits) - 1);
		hash = fnv_word(hash, has_color ? (u32)argument(ctx, 1) : ~0ULL);
		call->comm = hash ? hash : 1;
	}
	connect_begins(ctx, &who, call);
	return 0;
}

SEC("uprobe")
int comm_split(struct pt_regs *ctx)
{
	return comm_from(ctx, 1);
}

SEC("uprobe")
int comm_shrink(struct pt_regs *ctx)
{
	return comm_from(ctx, 0);
}

/* (ncclComm_t, int nranks, const ncclUniqueId *, int rank, ncclComm_t *, ...): most ranks have no id of it. */
SEC("uprobe")
int comm_grow(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct nccl_call *call;
	struct caller who;

	call = begin_making(ctx, cookie, &who);
	if (!call)
		return 0;
	call->address = argument(ctx, 4);
	connect_begins(ctx, &who, call);
	return 0;
}

static __always_inline void count_making(const struct caller *who, const struct nccl_call *call, u64 ns, s32 code)
{
	struct nccl_row_key key = {
		.tgid = who->tgid,
		.exec_id = who->exec_id,
		.comm = call->comm,
		.rank = call->rank,
		.ranks = call->ranks,
		.family = NCCL_INITS,
		.datatype = NCCL_NO_DATATYPE,
		.reduction = NCCL_NO_REDUCTION,
	};

	if (code && code != NCCL_IN_PROGRESS) {
		key.family = NCCL_ERRORS;
		key.reduction = code > 0 && code < 255 ? code : 0;
	} else {
		key.bucket = duration_bucket(ns);
	}
	key.function = call->signature.function;
	count_nccl(&key, 0, key.family == NCCL_INITS ? ns : 0);
}

/* A communicator is made, or, where the caller does not wait, will be at this place. */
static __always_inline struct nccl_call *made(struct pt_regs *ctx, struct caller *who)
{
	u64 cookie = attach_cookie(ctx), now = bpf_ktime_get_ns();
	s32 code = RESULT(ctx);
	struct nccl_thread *t;
	struct nccl_call *call;

	if (!identify(who))
		return NULL;
	t = nccl_thread_of(who);
	call = t ? end_call(t, ctx, NCCL_FUNCTION(cookie)) : NULL;
	if (!call)
		return NULL;
	connect_ends(who, t, call, code);
	call->signature.function = NCCL_FUNCTION(cookie);
	count_making(who, call, now - call->start_ns, code);
	return code && code != NCCL_IN_PROGRESS ? NULL : call;
}

SEC("uretprobe")
int comm_made(struct pt_regs *ctx)
{
	struct nccl_call *call;
	struct caller who;
	u64 address = 0;

	call = made(ctx, &who);
	if (call && read_user(&address, sizeof(address), call->address))
		keep_comm(address, call->comm, call->rank, call->ranks);
	return 0;
}

SEC("uretprobe")
int comms_made(struct pt_regs *ctx)
{
	struct nccl_call *call;
	struct caller who;
	u64 address, hash, at;
	s32 ranks;

	call = made(ctx, &who);
	if (!call)
		return 0;
	hash = call->comm;
	at = call->address;
	ranks = call->ranks;
	for (s32 i = 0; i < MOST_DEVICES; i++) {
		if (i >= ranks)
			break;
		if (!read_user(&address, sizeof(address), at + i * 8))
			break;
		keep_comm(address, hash, i, ranks);
	}
	return 0;
}

static __always_inline int end_comm(struct pt_regs *ctx, int is_abort)
{
	u64 cookie = attach_cookie(ctx), address = argument(ctx, 0);
	struct nccl_comm *comm;
	struct nccl_row_key key = {};
	struct caller who;

	if (!identify(&who))
		return 0;
	comm = comm_at(&who, address);
	if (is_abort && address) {
		key.tgid = who.tgid;
		key.exec_id = who.exec_id;
		key.rank = NCCL_UNKNOWN_RANK;
		if (comm) {
			if (comm->rank < 0)
				read_rank(address, cookie, &comm->rank, &comm->ranks);
			key.comm = comm->comm;
			key.rank = comm->rank;
			key.ranks = comm->ranks;
		} else {
			read_rank(address, cookie, &key.rank, &key.ranks);
		}
		key.family = NCCL_ABORTS;
		key.function = NCCL_FUNCTION(cookie);
		key.datatype = NCCL_NO_DATATYPE;
		key.reduction = NCCL_NO_REDUCTION;
		count_nccl(&key, 0, 0);
	}
	if (comm)
		forget_comm(address);
	return 0;
}

SEC("uprobe")
int comm_destroyed(struct pt_regs *ctx)
{
	return end_comm(ctx, 0);
}

SEC("uprobe")
int comm_aborted(struct pt_regs *ctx)
{
	return end_comm(ctx, 1);
}
