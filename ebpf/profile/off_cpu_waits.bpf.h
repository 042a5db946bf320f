/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is kept of threads that wait, until they go on? Apart, since two objects use it. */
#ifndef OTEL_GPU_PROFILE_OFF_CPU_WAITS_BPF_H
#define OTEL_GPU_PROFILE_OFF_CPU_WAITS_BPF_H

#include "abi/programs.h"
#include "abi/stacks.h"
#include "profile/sampled_threads.bpf.h"

/* Where a thread stood when it last left its CPU to wait. */
struct off_cpu_wait {
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
	__type(value, struct off_cpu_wait);
} off_cpu_waits SEC(".maps");

#define MAX_OFF_CPU_WAITS 8192 /* of some 9 KiB each */

/* A thread's wait; made, where its program has a share left. NULL where it has none. */
static __always_inline struct off_cpu_wait *off_cpu_wait_of(struct task_struct *task, u32 tgid, u32 exec_id)
{
	struct off_cpu_wait *wait = bpf_task_storage_get(&off_cpu_waits, task, 0, 0);
	struct program *program;

	if (wait && wait->who.exec_id == exec_id && wait->who.tgid == tgid)
		return wait;
	program = program_numbered(tgid, exec_id);
	/* Of a program that nothing else is kept of there is no number yet. */
	if (program && !take_quota(program, TABLE_OFF_CPU_WAITS, MAX_OFF_CPU_WAITS))
		return NULL;
	if (!wait)
		wait = bpf_task_storage_get(&off_cpu_waits, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!wait) {
		if (program)
			release_quota(program, TABLE_OFF_CPU_WAITS, 1);
		return NULL;
	}
	wait->is_counted = program != NULL;
	wait->start_ns = 0;
	return wait;
}

/* A thread ends, or becomes another program's. */
static __always_inline void end_off_cpu_wait(struct task_struct *task)
{
	struct off_cpu_wait *wait = bpf_task_storage_get(&off_cpu_waits, task, 0, 0);

	if (!wait || !wait->who.tgid)
		return;
	if (wait->is_counted)
		release_quota(program_of(&wait->who), TABLE_OFF_CPU_WAITS, 1);
	wait->start_ns = 0;
	wait->is_counted = 0;
	wait->who.tgid = 0;
}

#endif
