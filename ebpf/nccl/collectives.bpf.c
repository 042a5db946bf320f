// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Calls that put work on a stream: collectives, which all ranks make in the same order, and messages between two of them. */
#include "abi/cookies.h"
#include "abi/nccl.h"
#include "lib/atomics.bpf.h"
#include "nccl/arrivals.bpf.h"
#include "nccl/comms.bpf.h"
#include "nccl/connecting.bpf.h"
#include "nccl/pending.bpf.h"
#include "nccl/rows.bpf.h"
#include "nccl/threads.bpf.h"

#define LARGEST_COUNT (1ULL << 46)

static const u8 size_of_datatype[NCCL_DATATYPES] = { 1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1 };

static __always_inline u64 bytes_of(u64 count, u32 datatype)
{
	asm volatile("" : "+r"(datatype)); /* what is compared is what is used: older verifiers must see the bound */
	if (datatype >= NCCL_DATATYPES)
		return 0;
	if (count > LARGEST_COUNT) {
		lose(LOSS_IMPLAUSIBLE);
		return 0;
	}
	return count * size_of_datatype[datatype];
}

static __always_inline void read_signature(struct pt_regs *ctx, u64 cookie, struct nccl_signature *s)
{
	u32 datatype = argument(ctx, NCCL_DATATYPE(cookie)), reduction;

	s->count = argument(ctx, NCCL_COUNT(cookie));
	s->function = NCCL_FUNCTION(cookie);
	s->datatype = datatype < NCCL_DATATYPES ? datatype : NCCL_NO_DATATYPE;
	s->reduction = NCCL_NO_REDUCTION;
	if (NCCL_REDUCTION(cookie) != ARGUMENT_NONE) {
		reduction = argument(ctx, NCCL_REDUCTION(cookie));
		s->reduction = reduction < NCCL_CUSTOM_REDUCTION ? reduction : NCCL_CUSTOM_REDUCTION;
	}
	s->root = NCCL_ROOT(cookie) ? (s32)argument(ctx, NCCL_COMM(cookie) - 1) : -1;
	s->pad = 0;
}

/* Who calls: of a communicator whose making was seen all of it, of others what they say themselves. */
static __always_inline struct nccl_comm *identify_comm(const struct caller *who, struct nccl_call *call, u64 cookie)
{
	struct nccl_comm *comm = comm_at(who, call->address);

	if (comm) {
		if (comm->rank < 0)
			read_rank(call->address, cookie, &comm->rank, &comm->ranks);
		call->comm = comm->comm;
		call->rank = comm->rank;
		call->ranks = comm->ranks;
	} else {
		read_rank(call->address, cookie, &call->rank, &call->ranks);
	}
	return comm;
}

static __always_inline void key_of_call(struct nccl_row_key *key, const struct caller *who,
					const struct nccl_call *call)
{
	*key = (struct nccl_row_key){
		.tgid = who->tgid,
		.exec_id = who->exec_id,
		.comm = call->comm,
		.rank = call->rank,
		.ranks = call->ranks,
		.family = NCCL_CALLS,
		.function = call->signature.function,
		.datatype = call->signature.datatype,
		.reduction = call->signature.reduction,
	};
}

/* A thread of which nothing can be remembered: its call is counted as it begins, without its duration. */
static __always_inline void count_at_entry(struct pt_regs *ctx, const struct caller *who, u64 cookie)
{
	struct nccl_call call = { .rank = NCCL_UNKNOWN_RANK };
	struct nccl_row_key key;

	lose(LOSS_CALLS_FULL);
	read_signature(ctx, cookie, &call.signature);
	key_of_call(&key, who, &call);
	key.bucket = BUCKET_NONE;
	count_nccl(&key, bytes_of(call.signature.count, call.signature.datatype), 0);
}

static __always_inline int enqueue(struct pt_regs *ctx, int is_collective)
{
	u64 cookie = attach_cookie(ctx);
	struct nccl_thread *t;
	struct nccl_call *call;
	struct nccl_comm *comm;
	struct caller who;

	if (!identify(&who))
		return 0;
	t = meet_nccl_thread(&who);
	if (!t) {
		count_at_entry(ctx, &who, cookie);
		return 0;
	}
	call = begin_call(t, ctx, NCCL_FUNCTION(cookie));
	if (!call)
		return 0;
	call->address = argument(ctx, NCCL_COMM(cookie));
	read_signature(ctx, cookie, &call->signature);
	call->bytes = bytes_of(call->signature.count, call->signature.datatype);
	/* It is the argument behind the communicator. */
	call->stream = argument(ctx, NCCL_COMM(cookie) + 1);
	comm = identify_comm(&who, call, cookie);
	connect_begins(ctx, &who, call);
	if (comm && is_collective) {
		call->sequence = COUNT_UP(&comm->sequence);
		comm->last = call->signature;
		comm->entered_ns = call->start_ns;
	}
	return 0;
}

static __always_inline void tell_arrival(const struct caller *who, const struct nccl_call *call, u64 now,
					 int is_grouped)
{
	struct nccl_arrival arrival = {
		.tgid = who->tgid,
		.exec_id = who->exec_id,
		.comm = call->comm,
		.rank = call->rank,
		.ranks = call->ranks,
		.sequence = call->sequence,
		.entered_ns = call->start_ns,
		.returned_ns = now,
		.signature = call->signature,
		.tid = (u32)who->pid_tgid,
		.flags = is_grouped ? NCCL_ARRIVAL_GROUPED : 0,
	};

	arrive(&arrival);
}

/* The call of a collective returns that all ranks count. */
static __always_inline void note_collective(const struct caller *who, struct nccl_thread *t, struct nccl_call *call,
					    u64 now, int has_failed)
{
	struct nccl_comm *comm = comm_at(who, call->address);

	if (!comm || comm->comm != call->comm)
		return;
	comm->returned_ns = now;
	if (has_failed) {
		/* Refused before anything was asked of the others. */
		if (comm->sequence == call->sequence)
			__sync_fetch_and_add(&comm->sequence, -1);
		return;
	}
	if (!is_told(comm, call->sequence, now)) {
		lose(LOSS_ARRIVALS_LEFT_OUT);
		return;
	}
	if (t->groups)
		t->grouped++;
	tell_arrival(who, call, now, t->groups > 0);
}

SEC("uprobe")
int collective(struct pt_regs *ctx)
{
	return enqueue(ctx, 1);
}

SEC("uprobe")
int message(struct pt_regs *ctx)
{
	return enqueue(ctx, 0);
}

SEC("uretprobe")
int enqueued(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), now = bpf_ktime_get_ns();
	s32 code = RESULT(ctx);
	int has_failed = code && code != NCCL_IN_PROGRESS;
	struct nccl_thread *t;
	struct nccl_call *call;
	struct nccl_row_key key;
	struct caller who;

	if (!identify(&who))
		return 0;
	t = nccl_thread_of(&who);
	call = t ? end_call(t, ctx, NCCL_FUNCTION(cookie)) : NULL;
	if (!call)
		return 0;
	connect_ends(&who, t, call, code);
	key_of_call(&key, &who, call);
	key.grouped = t->groups > 0;
	if (has_failed) {
		key.family = NCCL_ERRORS;
		key.datatype = NCCL_NO_DATATYPE;
		key.reduction = code > 0 && code < 255 ? code : 0;
		count_nccl(&key, 0, 0);
	} else {
		key.bucket = duration_bucket(now - call->start_ns);
		count_nccl(&key, call->bytes, now - call->start_ns);
	}
	/* What is in progress is put on its stream at a time that nobody says. */
	if (!code)
		follow(&who, t, call);
	if (call->sequence)
		note_collective(&who, t, call, now, has_failed);
	return 0;
}
