/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* With which arguments, and from which site? */
#ifndef OTEL_GPU_LIB_ARGUMENTS_BPF_H
#define OTEL_GPU_LIB_ARGUMENTS_BPF_H

#include "abi/programs.h"
#include "lib/programs.bpf.h"

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
#define LONG_RESULT(ctx) ((ctx)->ax)
#define STACK_POINTER(ctx) ((ctx)->sp)
#define FRAME_POINTER(ctx) ((ctx)->bp)
#define INSTRUCTION(ctx) ((ctx)->ip)
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
#define LONG_RESULT(ctx) ((ctx)->regs[0])
#define STACK_POINTER(ctx) ((ctx)->sp)
#define FRAME_POINTER(ctx) ((ctx)->regs[29])
#define INSTRUCTION(ctx) ((ctx)->pc)
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
