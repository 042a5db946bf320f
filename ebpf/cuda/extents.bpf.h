/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Where is a hipExtent that is passed by value? */
#ifndef OTEL_GPU_CUDA_EXTENTS_BPF_H
#define OTEL_GPU_CUDA_EXTENTS_BPF_H

#include "lib/arguments.bpf.h"

/* A hipExtent that is passed by value: through memory on x86-64, where the caller put it before the call, and by a pointer
 * to a copy on arm64. Which eighth word of the stack, which argument? */
static __always_inline int extent_of(struct pt_regs *ctx, u32 word, u32 register_at, u64 extent[3])
{
#if defined(__TARGET_ARCH_x86)
#pragma unroll
	for (u32 i = 0; i < 3; i++)
		extent[i] = argument(ctx, REGISTER_ARGUMENTS + word + i);
	return 1;
#else
	return read_user(extent, 3 * sizeof(*extent), argument(ctx, register_at));
#endif
}

/* (hipPitchedPtr *, hipExtent): rows, and where their pitch will be. */
#define PITCHED_PITCH 8
static __always_inline u64 rows_of(struct pt_regs *ctx, u64 *pitch_at)
{
	u64 extent[3];

	*pitch_at = argument(ctx, 0) + PITCHED_PITCH;
	return extent_of(ctx, 0, 1, extent) ? extent[1] * extent[2] : 0;
}

#endif
