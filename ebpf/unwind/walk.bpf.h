/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Whose stack is walked, what does the next round of the walk do, and what has it found? */
#ifndef OTEL_GPU_UNWIND_WALK_BPF_H
#define OTEL_GPU_UNWIND_WALK_BPF_H

#include "abi/stacks.h"
#include "abi/unwinding.h"
#include "lib/caller.bpf.h"

/* Whose stack is walked: the calling thread's; or, where an object says so, another's that does not move meanwhile, from
 * a program that may sleep. */
#ifdef WALKS_OTHERS
#define OF_TASK struct task_struct *task,
#define WALKED(u) ((u)->task)
#define ADDRESS_OF_WALKED(u) walked_address
u64 walked_address = 0; /* the same, as a number; apart, to spare the stack: one thread is walked at a time */
#define READ_WALKED(u, to, size, from) bpf_copy_from_user_task(to, size, (void *)(from), (void *)(u)->task, 0)
#else
#define OF_TASK
#define WALKED(u) ((struct task_struct *)bpf_get_current_task_btf())
#define ADDRESS_OF_WALKED(u) bpf_get_current_task()
#define READ_WALKED(u, to, size, from) bpf_probe_read_user(to, size, (void *)(from))
#endif

/* What the next round does. */
enum phase {
	PHASE_NATIVE, /* takes a native frame, or begins the group of Python frames of an eval activation, and leaves it */
	PHASE_GROUP,  /* takes a Python frame of an eval activation */
	PHASE_LEAP,   /* the same; at the group's end its shim shows the way out of the activation */
	PHASE_TAKEN,  /* leaves the activation whose frames were taken */
	PHASE_CHECK,  /* sees whether they were its own */
	PHASE_SEARCH, /* looks for the thread state whose they are */
};

struct unwind {
#ifdef WALKS_OTHERS
	struct task_struct *task;
#endif
	struct stack_sample *sample;
	struct unwind_process *process;
	struct unwind_state *at; /* the sample's */
};

static __always_inline int put_frame(struct unwind *u, u64 a, u64 b)
{
	struct stack_sample *s = u->sample;
	u32 n = s->frames;

	if (n >= MAX_FRAMES) {
		s->stop = STOP_FULL;
		return 0;
	}
	s->frame[n].a = a;
	s->frame[n].b = b;
	s->frames = n + 1;
	return 1;
}

static __always_inline int stop(struct unwind *u, enum stop why)
{
	u->sample->stop = why;
	return 1;
}

#endif
