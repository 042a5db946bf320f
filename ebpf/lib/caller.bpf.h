/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Who is calling? The thread, and the program that its process runs. */
#ifndef OTEL_GPU_LIB_CALLER_BPF_H
#define OTEL_GPU_LIB_CALLER_BPF_H

#include "lib/kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

/* Set before loading. */
const volatile u8 observe_all = 1; /* 0: only the processes in `targets` */
const volatile u64 pidns_dev = 0;  /* the agent's pid namespace, when it is not the initial one */
const volatile u64 pidns_ino = 0;

/* Observed processes by tgid, written by the agent; read only when observe_all is 0. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, u32);
	__type(value, u8);
} targets SEC(".maps");

void *bpf_rdonly_cast(void *pointer, u32 type) __ksym __weak;

struct caller {
	u64 task; /* the thread's, where the kernel keeps it: no other has it while it lives, nor when it calls exec */
	u64 pid_tgid;
	u32 tgid;
	u32 exec_id;
	u64 born_ns; /* the thread's start: tells it from those that were there before */
};

/* One number for a program, by when its process began and how often that has called exec. */
static __always_inline u32 program_number(u64 start, u64 exec)
{
	return (u32)(start >> 16) ^ (u32)exec * 0x9e3779b1u;
}

/* The running thread, to be read from directly. Of a pointer that it trusts the verifier looks for what each step leads to
 * among all names that the kernel has, which takes longer than all the rest; one that was cast it just follows. A kernel
 * that has the helper has the cast (6.2); those below 5.16 refuse a program that it stands in, used or not. */
static __always_inline struct task_struct *current_task(void)
{
#ifndef BEFORE_5_17
	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_cgrp_storage_delete))
		return bpf_rdonly_cast((void *)bpf_get_current_task_btf(), bpf_core_type_id_kernel(struct task_struct));
#endif
	return (void *)bpf_get_current_task_btf();
}

/* The thread that runs, as the agent numbers it; false when it has no number there. */
static __always_inline int number_in_namespace(struct caller *who)
{
	struct bpf_pidns_info ns = {};

	if (bpf_get_ns_current_pid_tgid(pidns_dev, pidns_ino, (void *)&ns, sizeof(ns)))
		return 0;
	who->pid_tgid = (u64)ns.tgid << 32 | ns.pid;
	return 1;
}

/* Who runs, and one number for "this program under this pid": it changes when the pid is reused and at every exec. What
 * it stands for is told once, see announce.bpf.h. False when the agent has no number for it. All is read from the thread
 * where it can be: a helper costs as much as twenty such reads. */
static __always_inline int tell_apart(struct caller *who)
{
	u64 start, exec;

	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_get_current_task_btf)) {
		struct task_struct *task = current_task();
		start = task->group_leader->start_boottime;
		exec = task->self_exec_id;
		who->born_ns = task->start_boottime;
		who->task = (u64)task;
		who->pid_tgid = (u64)(u32)task->tgid << 32 | (u32)task->pid;
	} else {
		struct task_struct *task = (void *)bpf_get_current_task();
		start = BPF_CORE_READ(task, group_leader, start_boottime);
		exec = BPF_CORE_READ(task, self_exec_id);
		who->born_ns = BPF_CORE_READ(task, start_boottime);
		who->task = (u64)task;
		who->pid_tgid = bpf_get_current_pid_tgid();
	}
	who->exec_id = program_number(start, exec);
	if (pidns_ino && !number_in_namespace(who))
		return 0;
	who->tgid = who->pid_tgid >> 32;
	return 1;
}

/* When a thread's process began, by CLOCK_BOOTTIME. */
static __always_inline u64 process_start(struct task_struct *task)
{
	return BPF_CORE_READ(task, group_leader, start_boottime);
}

/* Fills in the caller; false when the process is not observed. */
static __always_inline int identify(struct caller *who)
{
	return tell_apart(who) && (observe_all || bpf_map_lookup_elem(&targets, &who->tgid));
}

/* Functions that are called where something is new, or lost, are global and take numbers only, though they must find out
 * anew who is calling: the verifier looks at each by itself then, once for every program, and not wherever it is called.
 * Those that take registers are none of these: kernels before 6.8 do not know them there. */
#define RARE __attribute__((noinline))

/* The same for functions that take pointers: kernels before 5.12 do not know them there. */
#ifdef BEFORE_5_17
#define RARE_OF_POINTERS static __noinline
#else
#define RARE_OF_POINTERS RARE
#endif

#endif
