/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which threads are stacks taken of, and what is kept of each? */
#ifndef OTEL_GPU_PROFILE_SAMPLED_THREADS_BPF_H
#define OTEL_GPU_PROFILE_SAMPLED_THREADS_BPF_H

#include "abi/programs.h"
#include "abi/samples.h"
#include "lib/shares.bpf.h"

_Static_assert(__builtin_offsetof(struct sampled_thread, tgid) == OWNER_AT, "the agent finds whose it is");
_Static_assert(__builtin_offsetof(struct tensor_group, tgid) == OWNER_AT, "the agent finds whose it is");

/* Threads -> what is kept of them. Removed when they end, or their process calls exec. Not from a cache: the scheduler comes
 * here too, within which kernels before 6.1 must not allocate. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, u64); /* caller.task */
	__type(value, struct sampled_thread);
} sampled_threads SEC(".maps");

static const struct sampled_thread no_sampled_thread = {};

static __always_inline struct sampled_thread *sampled_thread_of(const struct caller *who)
{
	struct sampled_thread *t = bpf_map_lookup_elem(&sampled_threads, &who->task);

	return t && t->born_ns == who->born_ns && t->exec_id == who->exec_id ? t : NULL;
}

/* `may_meet` says that the program, if it has no entry, gets one: not in the scheduler. */
RARE int make_sampled_thread(u32 may_meet)
{
	struct sampled_thread *t;
	struct caller who;

	if (!identify(&who))
		return 0;
	t = bpf_map_lookup_elem(&sampled_threads, &who.task);
	if (t) /* its end went unseen */
		take_out(&sampled_threads, TABLE_SAMPLED_THREADS, t->tgid, t->exec_id, &who.task);
	if (may_meet)
		meet();
	PUT_IN(sampled_threads, TABLE_SAMPLED_THREADS, &who, &who.task, &no_sampled_thread);
	t = bpf_map_lookup_elem(&sampled_threads, &who.task);
	if (!t)
		return 0;
	t->tgid = who.tgid;
	t->exec_id = who.exec_id;
	t->tid = who.pid_tgid;
	t->born_ns = who.born_ns;
	return 0;
}

/* The same, from now on; NULL when there is no room for it. */
static __always_inline struct sampled_thread *meet_sampled_thread(const struct caller *who, u32 may_meet)
{
	struct sampled_thread *t = sampled_thread_of(who);

	if (!t) {
		make_sampled_thread(may_meet);
		t = sampled_thread_of(who);
	}
	return t;
}

#endif
