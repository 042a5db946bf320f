/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is kept of threads that wait, until they go on? Apart, since two objects use it. */
#ifndef OTEL_GPU_PROFILE_STAYS_BPF_H
#define OTEL_GPU_PROFILE_STAYS_BPF_H

#include "abi/programs.h"
#include "abi/stacks.h"
#include "profile/sampled_threads.bpf.h"

/* Where a thread stood when it last left its CPU to wait. */
struct stay {
	struct caller who;
	u64 start_ns;	/* 0: it does not wait */
	u32 is_taken;	/* its stack is in `sample` */
	u32 is_counted; /* among what its program has */
	struct stack_sample sample;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct stay);
} stays SEC(".maps");

#define STAYS 8192 /* of some 9 KiB each */

/* A thread's stay; made, where its program has a share left. NULL where it has none. */
static __always_inline struct stay *stay_of(struct task_struct *task, u32 tgid, u32 incarnation)
{
	struct stay *stay = bpf_task_storage_get(&stays, task, 0, 0);
	struct program *program;

	if (stay && stay->who.incarnation == incarnation && stay->who.tgid == tgid)
		return stay;
	program = program_numbered(tgid, incarnation);
	/* Of a program that nothing else is kept of there is no number yet. */
	if (program && !take_quota(program, TABLE_STAYS, STAYS))
		return NULL;
	if (!stay)
		stay = bpf_task_storage_get(&stays, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!stay) {
		if (program)
			release_quota(program, TABLE_STAYS, 1);
		return NULL;
	}
	stay->is_counted = program != NULL;
	stay->start_ns = 0;
	return stay;
}

/* A thread ends, or becomes another program's. */
static __always_inline void end_stay(struct task_struct *task)
{
	struct stay *stay = bpf_task_storage_get(&stays, task, 0, 0);

	if (!stay || !stay->who.tgid)
		return;
	if (stay->is_counted)
		release_quota(program_of(&stay->who), TABLE_STAYS, 1);
	stay->start_ns = 0;
	stay->is_counted = 0;
	stay->who.tgid = 0;
}

#endif
