/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What every probe needs: who is calling, with which arguments, from which site. */
#ifndef OTEL_GPU_COMMON_BPF_H
#define OTEL_GPU_COMMON_BPF_H

#include "kernel.h"
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

/* enum loss -> how often. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LOSS_COUNT);
	__type(key, u32);
	__type(value, u64);
} losses SEC(".maps");

/* Who is calling. */
struct caller {
	u64 pid_tgid;
	u32 tgid;
	u32 incarnation;
	u64 born_ns; /* the thread's start: tells it from those that had its number before */
};

static __always_inline void lose(u32 what)
{
	u64 *n = bpf_map_lookup_elem(&losses, &what);
	if (n)
		__sync_fetch_and_add(n, 1);
}

/* One number for a program, by when its process began and how often that has called exec. */
static __always_inline u32 program_number(u64 start, u64 exec)
{
	return (u32)(start >> 16) ^ (u32)exec * 0x9e3779b1u;
}

/* When the calling thread began, and one number for "this program under this pid": it changes when the pid is reused
 * and at every exec. Opaque to the agent, which learns the numbers of a process as it first sees them. */
static __always_inline void tell_apart(struct caller *who)
{
	u64 start, exec;
	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_get_current_task_btf)) {
		struct task_struct *task = (void *)bpf_get_current_task_btf();
		start = task->group_leader->start_boottime;
		exec = task->self_exec_id;
		who->born_ns = task->start_boottime;
	} else {
		struct task_struct *task = (void *)bpf_get_current_task();
		start = BPF_CORE_READ(task, group_leader, start_boottime);
		exec = BPF_CORE_READ(task, self_exec_id);
		who->born_ns = BPF_CORE_READ(task, start_boottime);
	}
	who->incarnation = program_number(start, exec);
}

/* When the calling program's process began, by CLOCK_BOOTTIME. */
static __always_inline u64 program_start(void)
{
	struct task_struct *task = (void *)bpf_get_current_task();

	return BPF_CORE_READ(task, group_leader, start_boottime);
}

/* Fills in the caller; false when the process is not observed. */
static __always_inline int identify(struct caller *who)
{
	if (pidns_ino) {
		struct bpf_pidns_info ns = {};
		if (bpf_get_ns_current_pid_tgid(pidns_dev, pidns_ino, (void *)&ns, sizeof(ns)))
			return 0;
		who->pid_tgid = (u64)ns.tgid << 32 | ns.pid;
	} else {
		who->pid_tgid = bpf_get_current_pid_tgid();
	}
	who->tgid = who->pid_tgid >> 32;
	if (!observe_all && !bpf_map_lookup_elem(&targets, &who->tgid))
		return 0;
	tell_apart(who);
	return 1;
}

/* Reads one register. The empty asm keeps clang from folding several reads into one through a computed
 * context pointer, which the verifier forbids. */
#define REGISTER(ctx, name)                                                                                            \
	({                                                                                                             \
		u64 value_ = (ctx)->name;                                                                              \
		asm volatile("# " #name : "+r"(value_));                                                               \
		value_;                                                                                                \
	})

/* Integer argument n (from 0) of the function at whose entry, or before whose first push, the probe sits. */
#if defined(__TARGET_ARCH_x86)
#define REGISTER_ARGUMENTS 6
#define STACK_SKIP 8 /* the return address */
#define RESULT(ctx) ((s32)(ctx)->ax)
#define STACK_POINTER(ctx) ((ctx)->sp)
static __always_inline u64 register_argument(struct pt_regs *ctx, u32 n)
{
	switch (n) {
	case 0:
		return REGISTER(ctx, di);
	case 1:
		return REGISTER(ctx, si);
	case 2:
		return REGISTER(ctx, dx);
	case 3:
		return REGISTER(ctx, cx);
	case 4:
		return REGISTER(ctx, r8);
	default:
		return REGISTER(ctx, r9);
	}
}
#else
#define REGISTER_ARGUMENTS 8
#define STACK_SKIP 0
#define RESULT(ctx) ((s32)(ctx)->regs[0])
#define STACK_POINTER(ctx) ((ctx)->sp)
static __always_inline u64 register_argument(struct pt_regs *ctx, u32 n)
{
	switch (n) {
	case 0:
		return REGISTER(ctx, regs[0]);
	case 1:
		return REGISTER(ctx, regs[1]);
	case 2:
		return REGISTER(ctx, regs[2]);
	case 3:
		return REGISTER(ctx, regs[3]);
	case 4:
		return REGISTER(ctx, regs[4]);
	case 5:
		return REGISTER(ctx, regs[5]);
	case 6:
		return REGISTER(ctx, regs[6]);
	default:
		return REGISTER(ctx, regs[7]);
	}
}
#endif

static __always_inline int read_user(void *to, u32 size, u64 from)
{
	if (!bpf_probe_read_user(to, size, (void *)from))
		return 1;
	lose(LOSS_READ_FAILED);
	return 0;
}

static __always_inline u64 argument(struct pt_regs *ctx, u32 n)
{
	u64 value = 0;
	if (n < REGISTER_ARGUMENTS)
		return register_argument(ctx, n);
	read_user(&value, sizeof(value), STACK_POINTER(ctx) + STACK_SKIP + (u64)(n - REGISTER_ARGUMENTS) * 8);
	return value;
}

static __always_inline u64 attach_cookie(struct pt_regs *ctx)
{
	u64 cookie;
	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_get_attach_cookie))
		return bpf_get_attach_cookie(ctx);
	/* Kernels below 5.15: the agent loads the program once a site, with this number replaced. */
	asm volatile("%0 = 0x0c00c1e0c00c1e0c ll" : "=r"(cookie));
	return cookie;
}

#endif
