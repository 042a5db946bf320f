/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is kept of threads that wait, until they go on? Apart, since two objects use it. */
#ifndef OTEL_GPU_RESTING_BPF_H
#define OTEL_GPU_RESTING_BPF_H

#include "common.bpf.h"

/* Where a thread stood when it last left its CPU to wait. */
struct stay {
	struct caller who;
	u64 start_ns; /* 0: it does not wait */
	u64 is_taken; /* its stack is in `sample` */
	struct stack_sample sample;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct stay);
} stays SEC(".maps");

/* Calls that go on. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__type(key, struct entered_key);
	__type(value, struct entered);
} entered SEC(".maps");

#endif
