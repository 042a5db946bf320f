/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is known of a thread: in which contexts it works, and which calls it is in. */
#ifndef OTEL_GPU_CUDA_THREADS_BPF_H
#define OTEL_GPU_CUDA_THREADS_BPF_H

#include "abi/events.h"
#include "abi/memory.h"
#include "abi/programs.h"
#include "lib/arguments.bpf.h"
#include "lib/shares.bpf.h"

/* What the kernel tells of a thread, at the entry of a call that may wait. */
struct thread_state {
	u64 delay_ns; /* how long it has waited for a CPU */
	u64 arrivals; /* how often it was given one; 0 on a kernel that keeps no account */
	u64 sleeps;
	u64 faults;
};

/* A call in flight, from its entry to its return. */
struct call {
	u64 start_ns;
	u64 address; /* freed or registered pointer, or where the result will stand */
	u64 size;
	u64 stream;
	/* Of these, each function needs one. */
	union {
		struct thread_state thread;
		struct live freed;
		u64 pitch_at; /* where the pitch will stand */
		u64 arguments[RECORDED_ARGUMENTS];
	};
	u32 function; /* its number and 1; 0: there is no call here */
	u8 host;      /* enum host_memory */
	u8 kind;
	u8 device; /* that the program names; else it follows from the thread */
	u8 pad;
};

#define CONTEXT_STACK 16 /* a power of two; contexts pushed deeper overwrite the bottom */
#define CALLS 4		 /* a power of two; functions that may call each other */

struct thread {
	u64 born_ns; /* of the thread that this is about, and its program: whoever is there now may be another */
	u32 tgid;
	u32 exec_id;
	u32 depth;
	u32 pad;
	u64 contexts[CONTEXT_STACK]; /* bottom first; the current one is at depth - 1 */
	u8 devices[CONTEXT_STACK];
	struct call calls[CALLS];
};
_Static_assert(__builtin_offsetof(struct thread, tgid) == OWNER_AT, "the agent finds whose it is");

/* Threads -> what is known of them. Written here, removed when they end or their process calls exec. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 131072);
	__type(key, u64); /* caller.task */
	__type(value, struct thread);
} threads SEC(".maps");

static const struct thread no_thread = {};

static __always_inline int is_of(const struct thread *t, const struct caller *who)
{
	return t->born_ns == who->born_ns && t->exec_id == who->exec_id;
}

/* What is known of the calling thread; NULL for nothing. */
static __always_inline struct thread *thread_of(const struct caller *who)
{
	struct thread *t = bpf_map_lookup_elem(&threads, &who->task);

	return t && is_of(t, who) ? t : NULL;
}

RARE int make_thread(void)
{
	struct caller who;
	struct thread *t;

	if (!identify(&who))
		return 0;
	t = bpf_map_lookup_elem(&threads, &who.task);
	if (t) /* its end went unseen */
		take_out(&threads, TABLE_THREADS, t->tgid, t->exec_id, &who.task);
	meet();
	PUT_IN(threads, TABLE_THREADS, &who, &who.task, &no_thread);
	t = bpf_map_lookup_elem(&threads, &who.task);
	if (!t)
		return 0;
	t->tgid = who.tgid;
	t->exec_id = who.exec_id;
	t->born_ns = who.born_ns;
	return 0;
}

/* The same, from now on; NULL when there is no room for it. */
static __always_inline struct thread *meet_thread(const struct caller *who)
{
	struct thread *t = thread_of(who);

	if (!t) {
		make_thread();
		t = thread_of(who);
	}
	return t;
}

#endif
