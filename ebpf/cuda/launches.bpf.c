// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Programs of launches: of kernels, and of graphs. Entry only; nothing is allocated, nothing is sent but where a kernel was
 * launched from first. */
#include "abi/cookies.h"
#include "abi/events.h"
#include "abi/rows.h"
#include "abi/samples.h"
#include "cuda/calls.bpf.h"
#include "cuda/device.bpf.h"
#include "cuda/first_launches.bpf.h"
#include "cuda/generations.bpf.h"
#include "cuda/graphs.bpf.h"
#include "cuda/records.bpf.h"
#include "cuda/tail_calls.bpf.h"
#include "lib/events.bpf.h"

struct dims {
	u32 grid[3];
	u32 block[3];
};

static __always_inline void tell_first_launch(struct pt_regs *ctx, u64 function, u64 cookie)
{
	int seen = kernel_seen(function);

	if (seen == SEEN_UNNAMED)
		emit_recorded(function, COOKIE_LIBRARY(cookie));
	if (seen)
		emit_first_launch(ctx, function, COOKIE_KIND(cookie));
}

/* Apart, so that launches which are not captured pay nothing for it. */
static __noinline int captured_launch(struct pt_regs *ctx, u64 capture, u64 subject, u32 detail, u64 cookie)
{
	emit(EVENT_CAPTURED, capture, NODE_KERNEL, subject, detail);
	if (first_captured(subject))
		tell_first_launch(ctx, subject, cookie);
	return 0;
}

/* False when it is captured: it does not run. */
static __always_inline int launch(struct pt_regs *ctx, const struct caller *who, u64 cookie, u64 function,
				  const struct dims *dims, u64 stream)
{
	u64 blocks = (u64)dims->grid[0] * dims->grid[1] * dims->grid[2];
	u64 threads_per_block = (u64)dims->block[0] * dims->block[1] * dims->block[2];
	u64 capture = capturing_stream(who, stream, COOKIE_FLAGS(cookie));
	u8 bucket_a = bucket_of_count(blocks);
	u8 bucket_b = threads_per_block ? bucket_of_count(threads_per_block) : BUCKET_NONE;
	u8 kind = COOKIE_KIND(cookie);
	union row_words words;
	struct thread *t;

	if (capture) {
		captured_launch(ctx, capture, function, NODE_DETAIL(bucket_a, bucket_b), cookie);
		return 0;
	}
	t = thread_of(who);
	launch_key(&words, who, function, kind, generation_of(who, function), device_of_thread(t), bucket_a, bucket_b);
	if (count_owned(&words.key, blocks, threads_per_block))
		tell_first_launch(ctx, function, cookie);
	submit(who, t, stream, cookie);
	return 1;
}

/* (CUfunction, gridX, gridY, gridZ, blockX, blockY, blockZ, sharedBytes, CUstream, ...) */
SEC("uprobe")
int launch_kernel(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct caller who;
	struct dims dims;
	u64 stream;

	if (!identify(&who))
		return 0;
#if defined(__TARGET_ARCH_x86)
	u64 stack[3] = {};
	read_user(stack, sizeof(stack), ctx->sp + STACK_SKIP);
	dims = (struct dims){ { ctx->si, ctx->dx, ctx->cx }, { ctx->r8, ctx->r9, stack[0] } };
	stream = stack[2];
	if (launch(ctx, &who, cookie, ctx->di, &dims, stream))
		tail_call_profile(ctx, cookie, SUBMITTED_FIRST);
#else
	stream = argument(ctx, 8);
	dims = (struct dims){ { ctx->regs[1], ctx->regs[2], ctx->regs[3] },
			      { ctx->regs[4], ctx->regs[5], ctx->regs[6] } };
	launch(ctx, &who, cookie, ctx->regs[0], &dims, stream);
#endif
	return 0;
}

/* (hipFunction_t, globalX, globalY, globalZ, blockX, ...): the grid is given in threads. */
SEC("uprobe")
int launch_threads(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct dims dims = {};
	struct caller who;

	if (!identify(&who))
		return 0;
#pragma unroll
	for (int i = 0; i < 3; i++) {
		u32 threads = argument(ctx, 1 + i), block = argument(ctx, 4 + i);
		dims.block[i] = block;
		dims.grid[i] = block ? (threads + block - 1) / block : 0;
	}
	launch(ctx, &who, cookie, argument(ctx, 0), &dims, argument(ctx, COOKIE_STREAM(cookie)));
	return 0;
}

/* (const void *, dim3 grid, dim3 block, ...): 12 bytes by value take two registers, on both machines. */
SEC("uprobe")
int launch_dim3(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	u64 grid = argument(ctx, 1), block = argument(ctx, 3);
	struct dims dims = { { grid, grid >> 32, argument(ctx, 2) }, { block, block >> 32, argument(ctx, 4) } };
	struct caller who;

	if (!identify(&who))
		return 0;
	launch(ctx, &who, cookie, argument(ctx, 0), &dims, argument(ctx, COOKIE_STREAM(cookie)));
	return 0;
}

/* struct CUlaunchConfig, as far as it is read. */
struct launch_config {
	struct dims dims;
	u32 shared_bytes;
	u32 pad;
	u64 stream;
};

/* (const CUlaunchConfig *, CUfunction, ...) */
SEC("uprobe")
int launch_kernel_ex(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct launch_config config = {};
	struct caller who;

	if (!identify(&who))
		return 0;
	read_user(&config, sizeof(config), argument(ctx, 0));
	if (launch(ctx, &who, cookie, argument(ctx, 1), &config.dims, config.stream))
		tail_call_profile(ctx, cookie, SUBMITTED_SECOND);
	return 0;
}

/* CUDA_LAUNCH_PARAMS, 56 bytes. */
struct launch_params {
	u64 function;
	struct dims dims;
	u32 shared_bytes;
	u32 pad;
	u64 stream;
	u64 params;
};

#define MAX_DEVICES 64 /* of one cooperative launch */

static long launch_one(u64 i, struct walk *walk)
{
	struct launch_params params = {};

	if (!read_user(&params, sizeof(params), walk->at + i * sizeof(params)))
		return 1;
	launch(walk->ctx, &walk->who, walk->cookie, params.function, &params.dims, params.stream);
	return 0;
}

/* (CUDA_LAUNCH_PARAMS *, unsigned n, unsigned flags) */
SEC("uprobe")
int launch_multi_device(struct pt_regs *ctx)
{
	struct walk walk = { .ctx = ctx, .cookie = attach_cookie(ctx), .at = argument(ctx, 0) };
	u32 n = argument(ctx, 1);

	if (!identify(&walk.who))
		return 0;
	if (n > MAX_DEVICES)
		n = MAX_DEVICES;
	bpf_loop(n, launch_one, &walk, 0);
	return 0;
}

/* (CUfunction, int width, int height, CUstream): the block was set by an earlier call and is not known. */
SEC("uprobe")
int launch_grid(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	u32 stream = COOKIE_STREAM(cookie);
	struct dims dims = { { 1, 1, 1 }, { 0, 0, 0 } };
	struct caller who;

	if (!identify(&who))
		return 0;
	if (COOKIE_SIZE(cookie) != ARGUMENT_NONE) {
		dims.grid[0] = argument(ctx, 1);
		dims.grid[1] = argument(ctx, 2);
	}
	if (launch(ctx, &who, cookie, argument(ctx, 0), &dims, stream == ARGUMENT_NONE ? 0 : argument(ctx, stream)))
		tail_call_profile(ctx, cookie, SUBMITTED_FIRST);
	return 0;
}

/* (CUgraphExec, CUstream) */
SEC("uprobe")
int launch_graph(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), capture;
	struct row_key key;
	struct caller who;
	struct thread *t;

	if (!identify(&who))
		return 0;
	start_key(&key, &who, FAMILY_GRAPH_LAUNCH, 0);
	key.kind = COOKIE_KIND(cookie);
	key.subject = version_of(&who, argument(ctx, 0));
	capture = capturing_stream(&who, argument(ctx, 1), COOKIE_FLAGS(cookie));
	if (capture) {
		emit(EVENT_CAPTURED, capture, NODE_GRAPH, key.subject, 0);
		return 0;
	}
	t = thread_of(&who);
	key.device = device_of_thread(t);
	count_owned(&key, 0, 0);
	submit_graph(&who, t, argument(ctx, 1), cookie);
	tail_call_profile(ctx, cookie, SUBMITTED_OTHER);
	return 0;
}
