/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* In which call of NCCL is a thread, and in how many groups? */
#ifndef OTEL_GPU_NCCL_THREADS_BPF_H
#define OTEL_GPU_NCCL_THREADS_BPF_H

#include "abi/nccl.h"
#include "abi/programs.h"
#include "lib/arguments.bpf.h"
#include "lib/shares.bpf.h"

#define NCCL_IN_PROGRESS 7

/* The call that a thread is in, from its entry to its return: those that it makes of itself are part of it. */
struct nccl_call {
	u64 start_ns;
	u64 stack;   /* where its frame begins */
	u64 address; /* of the communicator, or of where it will stand */
	u64 comm;
	s32 rank;
	s32 ranks;
	u64 bytes;
	u64 sequence; /* 0: none */
	u64 stream;
	struct nccl_signature signature;
	u32 function; /* its number and 1; 0: there is no call */
	u32 connects; /* it is among the program's that may make connections */
};

/* The call of the driver's that a thread is in, which waits for a stream or records an event. */
struct nccl_wait {
	u64 stack; /* where its frame begins; 0: there is none */
	u64 stream;
	u64 upto; /* which of the stream's works */
	u64 event;
};

struct nccl_thread {
	u64 born_ns; /* of the thread that this is about, and its program: whoever is there now may be another */
	u32 tgid;
	u32 exec_id;
	u32 groups;	/* that it is in */
	u32 grouped;	/* collectives of them */
	u32 connecting; /* calls of them that may make connections */
	u32 pad;
	u64 connecting_comm;  /* the sum of their communicators, */
	u64 connecting_first; /* and the first one's */
	struct nccl_call call;
	struct nccl_wait wait;
};
_Static_assert(__builtin_offsetof(struct nccl_thread, tgid) == OWNER_AT, "the agent finds whose it is");

/* Threads -> what is known of them. Written here, removed when they end or their process calls exec. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, u64); /* caller.task */
	__type(value, struct nccl_thread);
} nccl_threads SEC(".maps");

static const struct nccl_thread no_nccl_thread = {};

static __always_inline struct nccl_thread *nccl_thread_of(const struct caller *who)
{
	struct nccl_thread *t = bpf_map_lookup_elem(&nccl_threads, &who->task);

	return t && t->born_ns == who->born_ns && t->exec_id == who->exec_id ? t : NULL;
}

RARE int make_nccl_thread(void)
{
	struct nccl_thread *t;
	struct caller who;

	if (!identify(&who))
		return 0;
	t = bpf_map_lookup_elem(&nccl_threads, &who.task);
	if (t) /* its end went unseen */
		take_out(&nccl_threads, TABLE_NCCL_THREADS, t->tgid, t->exec_id, &who.task);
	meet();
	PUT_IN(nccl_threads, TABLE_NCCL_THREADS, &who, &who.task, &no_nccl_thread);
	t = bpf_map_lookup_elem(&nccl_threads, &who.task);
	if (!t)
		return 0;
	t->tgid = who.tgid;
	t->exec_id = who.exec_id;
	t->born_ns = who.born_ns;
	return 0;
}

/* The same, from now on; NULL when there is no room for it. */
static __always_inline struct nccl_thread *meet_nccl_thread(const struct caller *who)
{
	struct nccl_thread *t = nccl_thread_of(who);

	if (!t) {
		make_nccl_thread();
		t = nccl_thread_of(who);
	}
	return t;
}

/* Is this a call that the one which the thread is in makes of itself? Its frame lies below, or it was jumped to. */
static __always_inline int is_inside(const struct nccl_thread *t, struct pt_regs *ctx, u32 function)
{
	u64 stack = STACK_POINTER(ctx);

	if (!t->call.function)
		return 0;
	return stack < t->call.stack || (stack == t->call.stack && t->call.function != function + 1);
}

/* Begins a call; NULL where it is part of another one. */
static __always_inline struct nccl_call *begin_call(struct nccl_thread *t, struct pt_regs *ctx, u32 function)
{
	struct nccl_call *call = &t->call;

	if (is_inside(t, ctx, function))
		return NULL;
	*call = (struct nccl_call){
		.start_ns = bpf_ktime_get_ns(),
		.stack = STACK_POINTER(ctx),
		.rank = NCCL_UNKNOWN_RANK,
		.function = function + 1,
	};
	return call;
}

/* The call that returns here, ended, to be read at once; NULL where its entry was not seen, or it is part of another one. */
static __always_inline struct nccl_call *end_call(struct nccl_thread *t, struct pt_regs *ctx, u32 function)
{
	struct nccl_call *call = &t->call;

	if (call->function != function + 1 || call->stack + STACK_SKIP != STACK_POINTER(ctx))
		return NULL;
	call->function = 0;
	return call;
}

#endif
