/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What does a copy call copy? Read from its arguments, or from the structure that they point to. */
#ifndef OTEL_GPU_CUDA_COPY_BPF_H
#define OTEL_GPU_CUDA_COPY_BPF_H

#include "abi/cookies.h"
#include "abi/programs.h"
#include "abi/rows.h"
#include "cuda/where.bpf.h"
#include "lib/arguments.bpf.h"

/* One side of a copy: a pointer, and where that lies. An array, or what has a name, has no pointer. */
struct side {
	u64 pointer;
	u32 where; /* LIES_NOWHERE: to be looked up */
};

/* What a copy is, whatever its function looks like. */
struct copy {
	u64 bytes;
	struct side from, to; /* of other kinds than COPY_DEFAULT, the host's side alone */
	u8 kind;	      /* COPY_DEFAULT: it follows from the sides */
};

static __always_inline void read_side(struct pt_regs *ctx, u32 at, struct side *side)
{
	if (at == ARGUMENT_NONE)
		side->where = LIES_ON(DEVICE_UNKNOWN);
	else
		side->pointer = argument(ctx, at);
}

#define DEVICE_TO_DEVICE_NO_CU 1024 /* hipMemcpyDeviceToDeviceNoCU: by the copy engines only */

static __always_inline u8 kind_said(u32 kind)
{
	if (kind == DEVICE_TO_DEVICE_NO_CU)
		return COPY_DEVICE_TO_DEVICE;
	return kind > COPY_DEFAULT ? COPY_DEFAULT : kind;
}

static __always_inline int copy_linear_of(struct pt_regs *ctx, u64 cookie, struct copy *copy)
{
	copy->bytes = argument(ctx, COOKIE_SIZE(cookie));
	if (COOKIE_SIZE2(cookie) != ARGUMENT_NONE)
		copy->bytes *= argument(ctx, COOKIE_SIZE2(cookie));
	copy->kind = COOKIE_KIND(cookie);
	if (COOKIE_KIND_AT(cookie) != ARGUMENT_NONE)
		copy->kind |= kind_said(argument(ctx, COOKIE_KIND_AT(cookie)));
	if (COOKIE_KIND_AT(cookie) != ARGUMENT_NONE || copy->kind == COPY_DEFAULT) {
		read_side(ctx, COOKIE_HOST(cookie), &copy->from);
		read_side(ctx, COOKIE_OUT(cookie), &copy->to);
	} else if (COOKIE_HOST(cookie) != ARGUMENT_NONE) {
		copy->from.pointer = copy->to.pointer = argument(ctx, COOKIE_HOST(cookie));
	}
	return 1;
}

/* Where hipMemcpy3DParms keeps what is read; driver_types.h. */
#define PARMS_FROM_ARRAY 0
#define PARMS_FROM 32
#define PARMS_TO_ARRAY 64
#define PARMS_TO 96
#define PARMS_EXTENT 128
#define PARMS_KIND 152

/* (const hipMemcpy3DParms *): with an array on a side its width is in elements, whose size is not told. */
static __always_inline int copy_parms_of(struct pt_regs *ctx, u64 cookie, struct copy *copy)
{
	u64 at = argument(ctx, 0), from_array, to_array, extent[3];
	u32 kind;

	if (!read_user(&from_array, sizeof(from_array), at + PARMS_FROM_ARRAY) ||
	    !read_user(&to_array, sizeof(to_array), at + PARMS_TO_ARRAY) ||
	    !read_user(&copy->from.pointer, sizeof(u64), at + PARMS_FROM) ||
	    !read_user(&copy->to.pointer, sizeof(u64), at + PARMS_TO) ||
	    !read_user(extent, sizeof(extent), at + PARMS_EXTENT) || !read_user(&kind, sizeof(kind), at + PARMS_KIND))
		return 0;
	if (from_array || to_array) {
		lose(LOSS_READ_FAILED);
		return 0;
	}
	copy->bytes = extent[0] * extent[1] * extent[2];
	copy->kind = kind_said(kind) | KIND_HIP;
	return 1;
}

/* One side of CUDA_MEMCPY2D and CUDA_MEMCPY3D: CUmemorytype, and the pointers behind it. */
struct told_side {
	u32 type;
	u32 pad;
	u64 host;
	u64 device; /* of SIDE_UNIFIED too */
};
enum { SIDE_HOST = 1, SIDE_DEVICE, SIDE_ARRAY, SIDE_UNIFIED };

static __always_inline int read_told_side(u64 at, struct side *side)
{
	struct told_side told;

	if (!read_user(&told, sizeof(told), at))
		return 0;
	side->pointer = told.type == SIDE_UNIFIED ? told.device : told.host;
	if (told.type != SIDE_UNIFIED)
		side->where = told.type == SIDE_HOST ? LIES_PAGEABLE : LIES_ON(DEVICE_UNKNOWN);
	return 1;
}

/* Where CUDA_MEMCPY2D and CUDA_MEMCPY3D(_PEER) keep what is read; cuda.h. */
#define COPY2D_FROM 16
#define COPY2D_TO 72
#define COPY2D_EXTENT 112
#define COPY3D_FROM 32
#define COPY3D_TO 120
#define COPY3D_EXTENT 176

static __always_inline int copy_2d_of(struct pt_regs *ctx, u64 cookie, struct copy *copy)
{
	u64 at = argument(ctx, 0), extent[2];

	if (!read_told_side(at + COPY2D_FROM, &copy->from) || !read_told_side(at + COPY2D_TO, &copy->to) ||
	    !read_user(extent, sizeof(extent), at + COPY2D_EXTENT))
		return 0;
	copy->bytes = extent[0] * extent[1];
	copy->kind = COPY_DEFAULT;
	if (COOKIE_KIND(cookie) & KIND_HIP) { /* HIP 6 gave the sides' types other numbers than HIP 5 */
		copy->kind = COOKIE_KIND(cookie);
		copy->from.where = copy->to.where = LIES_UNKNOWN;
	}
	return 1;
}

static __always_inline int copy_3d_of(struct pt_regs *ctx, u64 cookie, struct copy *copy)
{
	u64 at = argument(ctx, 0), extent[3];

	if (!read_told_side(at + COPY3D_FROM, &copy->from) || !read_told_side(at + COPY3D_TO, &copy->to) ||
	    !read_user(extent, sizeof(extent), at + COPY3D_EXTENT))
		return 0;
	copy->bytes = extent[0] * extent[1] * extent[2];
	copy->kind = COOKIE_KIND(cookie) == COPY_PEER ? COPY_PEER : COPY_DEFAULT;
	return 1;
}

#endif
