/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What does a copy call copy? Read from its arguments, or from the structure that they point to. */
#ifndef OTEL_GPU_CUDA_COPY_BPF_H
#define OTEL_GPU_CUDA_COPY_BPF_H

#include "abi/cookies.h"
#include "abi/programs.h"
#include "abi/rows.h"
#include "lib/arguments.bpf.h"

/* What a copy is, whatever its function looks like. */
struct copy {
	u64 bytes;
	u64 host; /* pointer on the host's side, 0 where there is none */
	u8 kind;
};

#define DEVICE_TO_DEVICE_NO_CU 1024 /* hipMemcpyDeviceToDeviceNoCU: by the copy engines only */

/* A kind that a program gave; the host's side is then `from` or `to`. */
static __always_inline void resolve_kind(u32 kind, u64 from, u64 to, struct copy *copy)
{
	if (kind == DEVICE_TO_DEVICE_NO_CU)
		kind = COPY_DEVICE_TO_DEVICE;
	if (kind > COPY_DEFAULT)
		kind = COPY_DEFAULT;
	if (kind == COPY_HOST_TO_DEVICE || kind == COPY_HOST_TO_HOST)
		copy->host = from;
	else if (kind == COPY_DEVICE_TO_HOST)
		copy->host = to;
	copy->kind = kind | KIND_HIP;
}

static __always_inline int copy_linear_of(struct pt_regs *ctx, u64 cookie, struct copy *copy)
{
	copy->bytes = argument(ctx, COOKIE_SIZE(cookie));
	if (COOKIE_SIZE2(cookie) != ARGUMENT_NONE)
		copy->bytes *= argument(ctx, COOKIE_SIZE2(cookie));
	if (COOKIE_KIND_AT(cookie) != ARGUMENT_NONE) {
		u64 from = COOKIE_HOST(cookie) == ARGUMENT_NONE ? 0 : argument(ctx, COOKIE_HOST(cookie));
		u64 to = COOKIE_OUT(cookie) == ARGUMENT_NONE ? 0 : argument(ctx, COOKIE_OUT(cookie));
		resolve_kind(argument(ctx, COOKIE_KIND_AT(cookie)), from, to, copy);
		return 1;
	}
	copy->kind = COOKIE_KIND(cookie);
	copy->host = COOKIE_HOST(cookie) == ARGUMENT_NONE ? 0 : argument(ctx, COOKIE_HOST(cookie));
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
	u64 at = argument(ctx, 0), from_array, to_array, from, to, extent[3];
	u32 kind;

	if (!read_user(&from_array, sizeof(from_array), at + PARMS_FROM_ARRAY) ||
	    !read_user(&to_array, sizeof(to_array), at + PARMS_TO_ARRAY) ||
	    !read_user(&from, sizeof(from), at + PARMS_FROM) || !read_user(&to, sizeof(to), at + PARMS_TO) ||
	    !read_user(extent, sizeof(extent), at + PARMS_EXTENT) || !read_user(&kind, sizeof(kind), at + PARMS_KIND))
		return 0;
	if (from_array || to_array) {
		lose(LOSS_READ_FAILED);
		return 0;
	}
	copy->bytes = extent[0] * extent[1] * extent[2];
	resolve_kind(kind, from, to, copy);
	return 1;
}

/* One side of CUDA_MEMCPY2D and CUDA_MEMCPY3D: CUmemorytype and the host pointer behind it. */
struct side {
	u32 type;
	u32 pad;
	u64 host;
};
enum { SIDE_HOST = 1, SIDE_DEVICE, SIDE_ARRAY, SIDE_UNIFIED };

static __always_inline void resolve_sides(const struct side *from, const struct side *to, struct copy *copy)
{
	int from_host = from->type == SIDE_HOST, to_host = to->type == SIDE_HOST;

	if (from->type == SIDE_UNIFIED || to->type == SIDE_UNIFIED)
		copy->kind = COPY_DEFAULT;
	else if (from_host)
		copy->kind = to_host ? COPY_HOST_TO_HOST : COPY_HOST_TO_DEVICE;
	else
		copy->kind = to_host ? COPY_DEVICE_TO_HOST : COPY_DEVICE_TO_DEVICE;
	copy->host = from_host ? from->host : to_host ? to->host : 0;
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
	struct side from, to;

	if (!read_user(&from, sizeof(from), at + COPY2D_FROM) || !read_user(&to, sizeof(to), at + COPY2D_TO) ||
	    !read_user(extent, sizeof(extent), at + COPY2D_EXTENT))
		return 0;
	copy->bytes = extent[0] * extent[1];
	if (COOKIE_KIND(cookie) & KIND_HIP)
		copy->kind = COOKIE_KIND(cookie); /* HIP 6 gave the sides' types other numbers than HIP 5 */
	else
		resolve_sides(&from, &to, copy);
	return 1;
}

static __always_inline int copy_3d_of(struct pt_regs *ctx, u64 cookie, struct copy *copy)
{
	u64 at = argument(ctx, 0), extent[3];
	struct side from, to;

	if (!read_user(&from, sizeof(from), at + COPY3D_FROM) || !read_user(&to, sizeof(to), at + COPY3D_TO) ||
	    !read_user(extent, sizeof(extent), at + COPY3D_EXTENT))
		return 0;
	copy->bytes = extent[0] * extent[1] * extent[2];
	if (COOKIE_KIND(cookie) == COPY_PEER) {
		copy->kind = COPY_PEER;
		copy->host = 0;
	} else {
		resolve_sides(&from, &to, copy);
	}
	return 1;
}

#endif
