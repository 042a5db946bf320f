// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The functions of the CUDA driver, and those of HIP that do the same. One program per shape of function; what differs inside a shape comes with the
 * attach cookie (abi.h), made from the hook tables in otel_gpu/probes/table.py and hip.py. */
#include "common.bpf.h"
#include "busy.bpf.h"
#include "capture.bpf.h"
#include "copy.bpf.h"
#include "device.bpf.h"
#include "events.bpf.h"
#include "pinned.bpf.h"
#include "rows.bpf.h"
#include "submitted.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* A call in flight, from its entry to its return. */
struct call_key {
	u64 pid_tgid;
	u64 function; /* calls of different functions may nest */
};

struct call {
	u64 start_ns;
	u64 size;
	u64 address; /* freed or registered pointer, or where the result will stand */
	u64 stream;
	u64 pitch_at; /* where the pitch will stand */
	struct thread_state thread;
	struct live freed;
	u64 arguments[RECORDED_ARGUMENTS];
	u8 host; /* enum host_memory */
	u8 kind;
};

/* Calls in flight. Sized for the threads of a node; a thread that dies inside a call leaves its entry behind,
 * which the agent removes with the process. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__type(key, struct call_key);
	__type(value, struct call);
} calls SEC(".maps");

/* Live allocations; written here, emptied by the agent for contexts and processes that are gone. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 2097152);
	__type(key, struct live_key);
	__type(value, struct live);
} live SEC(".maps");

/* The capture that a call with a stream parameter would be recorded by; 0 when it runs. */
static __always_inline u64 capturing_call(struct pt_regs *ctx, const struct caller *who, u64 cookie)
{
	u32 stream = COOKIE_STREAM(cookie);

	return captures && stream != ARGUMENT_NONE ? capturing_stream(who, argument(ctx, stream), COOKIE_FLAGS(cookie))
						   : 0;
}

/* ---- launches: entry only, nothing is allocated, nothing is sent ---- */

struct dims {
	u32 grid[3];
	u32 block[3];
};

/* Apart, so that launches which are not captured pay nothing for it. */
static __noinline int captured_launch(struct pt_regs *ctx, const struct caller *who, const struct row_key *key,
				      u64 capture)
{
	emit(who, EVENT_CAPTURED, capture, NODE_KERNEL, key->subject, NODE_DETAIL(key->bucket_a, key->bucket_b));
	if (first_captured(who, key->subject))
		emit_first_launch(ctx, who, key->subject, key->kind);
	return 0;
}

/* False when it is captured: it does not run. */
static __always_inline int launch(struct pt_regs *ctx, const struct caller *who, u64 cookie, u64 function,
				  const struct dims *dims, u64 stream)
{
	u64 blocks = (u64)dims->grid[0] * dims->grid[1] * dims->grid[2];
	u64 threads_per_block = (u64)dims->block[0] * dims->block[1] * dims->block[2];
	u64 capture = capturing_stream(who, stream, COOKIE_FLAGS(cookie));
	struct row_key key;
	struct thread *t;

	start_key(&key, who, FAMILY_LAUNCH, 0);
	key.kind = COOKIE_KIND(cookie);
	key.subject = function;
	key.function = generation_of(function);
	key.bucket_a = bucket(blocks);
	key.bucket_b = threads_per_block ? bucket(threads_per_block) : BUCKET_NONE;
	if (capture) {
		captured_launch(ctx, who, &key, capture);
		return 0;
	}
	t = thread_of(who);
	key.device = device_of_thread(t);
	if (count(&key, blocks, threads_per_block))
		emit_first_launch(ctx, who, function, key.kind);
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
		hand_on(ctx, cookie, SUBMITTED_FIRST);
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
		hand_on(ctx, cookie, SUBMITTED_SECOND);
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

/* A list in the target's memory that is walked, with bpf_loop: the agent leaves these programs out below 5.17. */
struct walk {
	struct pt_regs *ctx;
	struct caller who;
	u64 cookie;
	u64 at;
	u64 capture;
};

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
		hand_on(ctx, cookie, SUBMITTED_FIRST);
	return 0;
}

/* Executable graphs -> what their launches count under: a new number at each change, so that a launch is known
 * to be of the contents that the graph had then. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct context_key);
	__type(value, u64);
} graphs SEC(".maps");

static __always_inline u64 version_of(const struct caller *who, u64 exec)
{
	struct context_key key = { who->tgid, who->incarnation, exec };
	u64 *version = bpf_map_lookup_elem(&graphs, &key);

	return version ? *version : exec;
}

/* (CUgraphExec, CUstream) */
SEC("uprobe")
int launch_graph(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), capture;
	struct row_key key;
	struct caller who;

	if (!identify(&who))
		return 0;
	start_key(&key, &who, FAMILY_GRAPH_LAUNCH, 0);
	key.kind = COOKIE_KIND(cookie);
	key.subject = version_of(&who, argument(ctx, 0));
	capture = capturing_stream(&who, argument(ctx, 1), COOKIE_FLAGS(cookie));
	if (capture) {
		emit(&who, EVENT_CAPTURED, capture, NODE_GRAPH, key.subject, 0);
		return 0;
	}
	key.device = device_of(&who);
	count(&key, 0, 0);
	submit_graph(&who, argument(ctx, 1), cookie);
	hand_on(ctx, cookie, SUBMITTED_OTHER);
	return 0;
}

/* ---- copies ---- */

/* A call that puts work on the stream it names, or on the default one. */
static __always_inline void submit_call(struct pt_regs *ctx, const struct caller *who, u64 cookie)
{
	u32 stream = COOKIE_STREAM(cookie);

	submit(who, thread_of(who), stream == ARGUMENT_NONE ? 0 : argument(ctx, stream), cookie);
}

static __always_inline void count_copy(const struct caller *who, u8 kind, u8 host, u64 bytes)
{
	struct row_key key;

	start_key(&key, who, FAMILY_COPY, 0);
	key.device = device_of(who);
	key.kind = kind;
	key.detail = host;
	key.bucket_a = bucket(bytes);
	count(&key, bytes, 0);
}

static __always_inline void count_error(const struct caller *who, u64 cookie, s32 code)
{
	struct row_key key;

	start_key(&key, who, FAMILY_ERROR, cookie);
	key.subject = (u32)code;
	count(&key, 0, 0);
}

static __always_inline void enter(struct pt_regs *ctx, const struct caller *who, u64 cookie, struct call *call)
{
	struct call_key key = { who->pid_tgid, COOKIE_FUNCTION(cookie) };

	call->start_ns = bpf_ktime_get_ns();
	if (bpf_map_update_elem(&calls, &key, call, BPF_ANY))
		lose(LOSS_CALLS_FULL);
}

/* Takes a call out of `calls`; false when its entry was not seen. */
static __always_inline int leave(const struct caller *who, u64 cookie, struct call *call)
{
	struct call_key key = { who->pid_tgid, COOKIE_FUNCTION(cookie) };
	struct call *found = bpf_map_lookup_elem(&calls, &key);

	if (!found)
		return 0;
	*call = *found;
	bpf_map_delete_elem(&calls, &key);
	return 1;
}

static __always_inline void count_wait(const struct caller *who, u64 cookie, u64 ns)
{
	struct row_key key;

	start_key(&key, who, FAMILY_WAIT, cookie);
	key.device = device_of(who);
	key.bucket_a = duration_bucket(ns);
	count(&key, ns, 0);
}

/* Is this call a part of another, which is counted? */
static __always_inline int is_inner(const struct caller *who, u64 cookie)
{
	struct call_key key = { who->pid_tgid, COOKIE_FUNCTION(cookie) };

	return COOKIE_FLAGS(cookie) & FLAG_INNER && bpf_map_lookup_elem(&calls, &key);
}

/* Asynchronous copies are counted at the call. False when they do not run, or belong to another call. */
static __always_inline int copy_now(struct pt_regs *ctx, const struct caller *who, u64 cookie, const struct copy *copy)
{
	u64 capture = capturing_call(ctx, who, cookie);
	u8 host = host_memory(who, copy->host);

	if (is_inner(who, cookie)) {
		struct call_key key = { who->pid_tgid, COOKIE_FUNCTION(cookie) };
		bpf_map_delete_elem(&calls, &key);
		return 0;
	}
	if (capture) {
		emit(who, EVENT_CAPTURED, capture, NODE_COPY, copy->bytes, NODE_DETAIL(copy->kind, host));
		return 0;
	}
	count_copy(who, copy->kind, host, copy->bytes);
	submit_call(ctx, who, cookie);
	return 1;
}

/* Blocking copies are counted when they return, if they succeeded, with the time they took. */
static __always_inline int copy_begin(struct pt_regs *ctx, const struct caller *who, u64 cookie,
				      const struct copy *copy)
{
	struct call call = { .size = copy->bytes, .kind = copy->kind, .host = host_memory(who, copy->host) };

	/* An inner call's return takes out its caller's entry, and so counts what the caller was asked. */
	if (is_inner(who, cookie))
		return 0;
	submit_call(ctx, who, cookie);
	read_thread_state(&call.thread);
	enter(ctx, who, cookie, &call);
	return 1;
}

#define COPY_PROGRAMS(shape)                                                                                           \
	SEC("uprobe") int copy_##shape##_async(struct pt_regs *ctx)                                                    \
	{                                                                                                              \
		u64 cookie = attach_cookie(ctx);                                                                       \
		struct copy copy = {};                                                                                 \
		struct caller who;                                                                                     \
		if (!identify(&who) || !copy_##shape##_of(ctx, cookie, &copy))                                         \
			return 0;                                                                                      \
		if (copy_now(ctx, &who, cookie, &copy))                                                                \
			hand_on(ctx, cookie, SUBMITTED_OTHER);                                                         \
		return 0;                                                                                              \
	}                                                                                                              \
	SEC("uprobe") int copy_##shape(struct pt_regs *ctx)                                                            \
	{                                                                                                              \
		u64 cookie = attach_cookie(ctx);                                                                       \
		struct copy copy = {};                                                                                 \
		struct caller who;                                                                                     \
		if (!identify(&who) || !copy_##shape##_of(ctx, cookie, &copy))                                         \
			return 0;                                                                                      \
		if (copy_begin(ctx, &who, cookie, &copy))                                                              \
			hand_on(ctx, cookie, SUBMITTED_OTHER);                                                         \
		return 0;                                                                                              \
	}
COPY_PROGRAMS(linear)
COPY_PROGRAMS(2d)
COPY_PROGRAMS(3d)
COPY_PROGRAMS(parms)

/* An asynchronous copy that may hand its work to the function with FLAG_INNER and the same number. */
SEC("uprobe")
int copy_outer(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct copy copy = {};
	struct call call = {};
	struct caller who;

	if (!identify(&who) || !copy_linear_of(ctx, cookie, &copy))
		return 0;
	copy_now(ctx, &who, cookie, &copy);
	enter(ctx, &who, cookie, &call);
	return 0;
}

SEC("uretprobe")
int copy_outer_done(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct caller who;
	struct call call;

	if (identify(&who))
		leave(&who, cookie, &call);
	return 0;
}

#define SMALL_COPY 65536 /* bytes that a host copies to or from pageable memory in no time */

/* The program has what it copied to the host, and the driver what was copied from page-locked memory: not so with
 * pageable memory, which may be on its way still. */
static __always_inline void copy_returned(const struct caller *who, u64 cookie, const struct call *call, u64 now)
{
	struct awaited a = { .what = WAIT_STREAM, .began_ns = call->start_ns, .tid = who->pid_tgid };
	int pinned = call->host == HOST_MEMORY_PINNED;

	if (!is_followed(cookie) ||
	    (call->kind != COPY_DEVICE_TO_HOST && !(call->kind == COPY_HOST_TO_DEVICE && pinned)))
		return;
	busy_key_of(&a.key, who, device_of(who));
	a.stream = normal_stream(who, 0, COOKIE_FLAGS(cookie));
	if (pinned || call->size <= SMALL_COPY)
		waited(&a, &call->thread, now);
	seen_done(&a, now);
}

SEC("uretprobe")
int copy_done(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), now = bpf_ktime_get_ns();
	struct caller who;
	struct call call;
	s32 code = RESULT(ctx);

	if (!identify(&who) || !leave(&who, cookie, &call))
		return 0;
	if (code)
		count_error(&who, cookie, code);
	else
		count_copy(&who, call.kind, call.host, call.size);
	count_wait(&who, cookie, now - call.start_ns);
	if (!code)
		copy_returned(&who, cookie, &call, now);
	return 0;
}

#define MAX_BATCH 4096 /* copies of one batched call; a longer list is reported as unreadable */

/* How many elements of a batch are walked. */
static __always_inline u32 batch_size(u64 n)
{
	if (n <= MAX_BATCH)
		return n;
	lose(LOSS_READ_FAILED);
	return MAX_BATCH;
}

static __always_inline void count_batched(const struct walk *walk, u64 bytes)
{
	if (walk->capture)
		emit(&walk->who, EVENT_CAPTURED, walk->capture, NODE_COPY, bytes, NODE_DETAIL(COPY_DEFAULT, 0));
	else
		count_copy(&walk->who, COPY_DEFAULT, HOST_MEMORY_NONE, bytes);
}

static long copy_one(u64 i, struct walk *walk)
{
	u64 bytes;

	if (!read_user(&bytes, sizeof(bytes), walk->at + i * sizeof(bytes)))
		return 1;
	count_batched(walk, bytes);
	return 0;
}

/* cuMemcpyBatchAsync(dsts, srcs, sizes, count, ...): kinds are the driver's to find out. */
SEC("uprobe")
int copy_batch(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct walk walk = { .cookie = cookie, .at = argument(ctx, COOKIE_SIZE(cookie)) };
	u32 n = batch_size(argument(ctx, COOKIE_SIZE2(cookie)));

	if (!identify(&walk.who))
		return 0;
	walk.capture = capturing_call(ctx, &walk.who, cookie);
	bpf_loop(n, copy_one, &walk, 0);
	if (!walk.capture) {
		submit_call(ctx, &walk.who, cookie);
		hand_on(ctx, cookie, SUBMITTED_OTHER);
	}
	return 0;
}

/* CUDA_MEMCPY3D_BATCH_OP: two operands of 40 bytes, then the extent. */
#define COPY_OPERATION_SIZE 112
#define COPY_OPERATION_EXTENT 80

static long copy_one_3d(u64 i, struct walk *walk)
{
	u64 extent[3];

	if (!read_user(extent, sizeof(extent), walk->at + i * COPY_OPERATION_SIZE + COPY_OPERATION_EXTENT))
		return 1;
	count_batched(walk, extent[0] * extent[1] * extent[2]);
	return 0;
}

/* cuMemcpy3DBatchAsync(numOps, ops, ...) and cuMemcpy3DWithAttributesAsync(op, ...) */
SEC("uprobe")
int copy_3d_batch(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct walk walk = { .cookie = cookie, .at = argument(ctx, COOKIE_SIZE(cookie)) };
	u32 n = COOKIE_SIZE2(cookie) == ARGUMENT_NONE ? 1 : batch_size(argument(ctx, COOKIE_SIZE2(cookie)));

	if (!identify(&walk.who))
		return 0;
	walk.capture = capturing_call(ctx, &walk.who, cookie);
	bpf_loop(n, copy_one_3d, &walk, 0);
	if (!walk.capture) {
		submit_call(ctx, &walk.who, cookie);
		hand_on(ctx, cookie, SUBMITTED_OTHER);
	}
	return 0;
}

/* ---- memsets ---- */

static __always_inline void count_memset(const struct caller *who, u64 cookie, u64 bytes)
{
	struct row_key key;

	start_key(&key, who, FAMILY_MEMSET, 0);
	key.kind = COOKIE_KIND(cookie);
	key.device = device_of(who);
	key.bucket_a = bucket(bytes);
	count(&key, bytes, 0);
}

/* The size is one argument, or the product of two, in elements of 1, 2 or 4 bytes. */
static __always_inline int fill_bytes(struct pt_regs *ctx, const struct caller *who, u64 cookie, u64 bytes)
{
	u64 capture = capturing_call(ctx, who, cookie);

	if (capture) {
		emit(who, EVENT_CAPTURED, capture, NODE_MEMSET, bytes, 0);
		return 0;
	}
	count_memset(who, cookie, bytes);
	submit_call(ctx, who, cookie);
	hand_on(ctx, cookie, SUBMITTED_OTHER);
	return 0;
}

SEC("uprobe")
int fill(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), bytes;
	struct caller who;

	if (!identify(&who))
		return 0;
	bytes = argument(ctx, COOKIE_SIZE(cookie)) << COOKIE_SHIFT(cookie);
	if (COOKIE_SIZE2(cookie) != ARGUMENT_NONE)
		bytes *= argument(ctx, COOKIE_SIZE2(cookie));
	return fill_bytes(ctx, &who, cookie, bytes);
}

/* (hipPitchedPtr, int value, hipExtent, ...): the first takes four words of the stack. */
SEC("uprobe")
int fill_extent(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), extent[3];
	struct caller who;

	if (!identify(&who) || !extent_of(ctx, 4, 2, extent))
		return 0;
	return fill_bytes(ctx, &who, cookie, extent[0] * extent[1] * extent[2]);
}

/* ---- memory ---- */

static __always_inline void count_memory(const struct caller *who, u8 family, const struct live *what, u8 cause)
{
	struct row_key key;

	start_key(&key, who, family, 0);
	key.kind = what->type;
	key.device = what->device;
	key.detail = cause;
	count(&key, what->size, 0);
}

/* What lives and what was allocated less what was freed are the same at all times: an allocation that finds no place
 * is counted in neither, but as a loss. */
static __always_inline int keep_live(const struct live_key *key, const struct live *what)
{
	/* Elements come from a cache of the CPU's, which is filled from an interrupt as it runs low. Having found it
	 * empty, we come back when that interrupt has been. */
	if (!bpf_map_update_elem(&live, key, what, BPF_NOEXIST) || !bpf_map_update_elem(&live, key, what, BPF_NOEXIST))
		return 1;
	lose(LOSS_LIVE_FULL);
	return 0;
}

SEC("uprobe")
int alloc(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	u32 out = COOKIE_OUT(cookie);
	struct call call = {};
	struct caller who;

	if (!identify(&who))
		return 0;
	call.kind = COOKIE_KIND(cookie);
	call.size = argument(ctx, COOKIE_SIZE(cookie));
	call.address = argument(ctx, out);
	if (COOKIE_FLAGS(cookie) & FLAG_PITCHED)
		call.pitch_at = argument(ctx, COOKIE_SIZE2(cookie));
	if (capturing_call(ctx, &who, cookie))
		return 0; /* a graph's node: nothing is allocated now */
	enter(ctx, &who, cookie, &call);
	return 0;
}

SEC("uprobe")
int alloc_extent(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct call call = { .kind = COOKIE_KIND(cookie), .address = argument(ctx, 0) };
	struct caller who;

	if (!identify(&who))
		return 0;
	call.size = rows_of(ctx, &call.pitch_at);
	enter(ctx, &who, cookie, &call);
	return 0;
}

SEC("uretprobe")
int alloc_done(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), pitch;
	struct live_key key = {};
	struct live now = {}, *before;
	struct caller who;
	struct call call;
	s32 code = RESULT(ctx);

	if (!identify(&who) || !leave(&who, cookie, &call))
		return 0;
	if (code) {
		count_error(&who, cookie, code);
		return 0;
	}
	key.tgid = who.tgid;
	key.incarnation = who.incarnation;
	key.address = call.address;
	if (!(COOKIE_FLAGS(cookie) & FLAG_DIRECT) && !read_user(&key.address, sizeof(key.address), call.address))
		key.address = 0;
	now.size = call.size;
	if (COOKIE_FLAGS(cookie) & FLAG_PITCHED)
		now.size = read_user(&pitch, sizeof(pitch), call.pitch_at) ? call.size * pitch : 0;
	now.type = call.kind;
	now.device = device_of(&who);
	now.context = context_of(&who);
	now.refs = 1;
	now.since_ns = bpf_ktime_get_ns();
	before = bpf_map_lookup_elem(&live, &key);
	if (before) {
		struct live gone = *before;
		bpf_map_delete_elem(&live, &key);
		count_memory(&who, FAMILY_FREE, &gone, FREE_IMPLICIT);
	}
	if (keep_live(&key, &now))
		count_memory(&who, FAMILY_ALLOC, &now, 0);
	if (COOKIE_FLAGS(cookie) & FLAG_PINS)
		pin(&who, key.address, now.size, 0);
	return 0;
}

/* The address is forgotten at the call, not at the return: once the driver has it back, another thread may be
 * given it before this one returns. A failed call puts it back. */
SEC("uprobe")
int release(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct live_key key = {};
	struct call call = {};
	struct live *found;
	struct caller who;

	if (!identify(&who))
		return 0;
	call.address = argument(ctx, COOKIE_OUT(cookie));
	if (!call.address) /* cudaFree(0), the idiom that makes a context */
		return 0;
	if (capturing_call(ctx, &who, cookie))
		return 0;
	key.tgid = who.tgid;
	key.incarnation = who.incarnation;
	key.address = call.address;
	found = bpf_map_lookup_elem(&live, &key);
	if (found) {
		call.freed = *found;
		bpf_map_delete_elem(&live, &key);
		if (COOKIE_FLAGS(cookie) & FLAG_PINS)
			pin(&who, key.address, call.freed.size, 1);
	} else {
		call.freed.type = MEMORY_UNKNOWN | (COOKIE_KIND(cookie) & KIND_HIP);
		call.freed.device = DEVICE_UNKNOWN;
	}
	enter(ctx, &who, cookie, &call);
	return 0;
}

SEC("uretprobe")
int release_done(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct live_key key = {};
	struct caller who;
	struct call call;
	s32 code = RESULT(ctx);

	if (!identify(&who) || !leave(&who, cookie, &call))
		return 0;
	if (!code) {
		count_memory(&who, FAMILY_FREE, &call.freed, FREE_CALLED);
		return 0;
	}
	count_error(&who, cookie, code);
	if ((call.freed.type & ~KIND_HIP) == MEMORY_UNKNOWN)
		return 0;
	key.tgid = who.tgid;
	key.incarnation = who.incarnation;
	key.address = call.address;
	if (!keep_live(&key, &call.freed))
		count_memory(&who, FAMILY_FREE, &call.freed, FREE_CALLED);
	if (COOKIE_FLAGS(cookie) & FLAG_PINS)
		pin(&who, key.address, call.freed.size, 0);
	return 0;
}

/* Virtual memory: a handle's memory goes when it has neither references nor mappings. */

struct mapping {
	u64 handle;
	u64 size;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1048576);
	__type(key, struct live_key); /* address of the mapping */
	__type(value, struct mapping);
} mapped SEC(".maps");

static __always_inline struct live *find_handle(const struct caller *who, u64 handle, struct live_key *key)
{
	key->tgid = who->tgid;
	key->incarnation = who->incarnation;
	key->address = handle;
	return bpf_map_lookup_elem(&live, key);
}

static __always_inline void free_handle(const struct caller *who, struct live_key *key, struct live *handle)
{
	struct live gone = *handle;

	if (gone.refs || gone.maps)
		return;
	if (!bpf_map_delete_elem(&live, key) && gone.size) /* what was imported is its maker's */
		count_memory(who, FAMILY_FREE, &gone, FREE_CALLED);
}

/* The calls about handles: what they do is done when they have succeeded. */
SEC("uprobe")
int handle_call(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct call call = {};
	struct caller who;

	if (!identify(&who))
		return 0;
	call.address = argument(ctx, COOKIE_OUT(cookie));
	if (COOKIE_SIZE(cookie) != ARGUMENT_NONE)
		call.size = argument(ctx, COOKIE_SIZE(cookie));
	if (COOKIE_SIZE2(cookie) != ARGUMENT_NONE)
		call.stream = argument(ctx, COOKIE_SIZE2(cookie));
	enter(ctx, &who, cookie, &call);
	return 0;
}

static __always_inline int handle_return(struct pt_regs *ctx, u64 cookie, struct caller *who, struct call *call)
{
	s32 code = RESULT(ctx);

	if (!identify(who) || !leave(who, cookie, call))
		return 0;
	if (code)
		count_error(who, cookie, code);
	return !code;
}

/* cuMemRelease(handle) */
SEC("uretprobe")
int handle_released(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct live_key key = {};
	struct live *handle;
	struct caller who;
	struct call call;

	if (!handle_return(ctx, cookie, &who, &call))
		return 0;
	handle = find_handle(&who, call.address, &key);
	if (handle) {
		if (handle->refs)
			handle->refs--;
		free_handle(&who, &key, handle);
	} else {
		struct live unknown = { .type = MEMORY_UNKNOWN | (COOKIE_KIND(cookie) & KIND_HIP),
					.device = DEVICE_UNKNOWN };
		count_memory(&who, FAMILY_FREE, &unknown, FREE_CALLED);
	}
	return 0;
}

/* cuMemRetainAllocationHandle(handle *, address) */
SEC("uretprobe")
int handle_retained(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), which;
	struct live_key key = {};
	struct live *handle;
	struct caller who;
	struct call call;

	if (!handle_return(ctx, cookie, &who, &call) || !read_user(&which, sizeof(which), call.address))
		return 0;
	handle = find_handle(&who, which, &key);
	if (handle)
		handle->refs++;
	return 0;
}

/* cuMemImportFromShareableHandle(handle *, shareable, type): the memory is counted where it was made, but what is done
 * with the handle is no mistake. */
SEC("uretprobe")
int handle_imported(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct live imported = { .type = MEMORY_VIRTUAL, .device = DEVICE_UNKNOWN, .refs = 1 };
	struct live_key key = {};
	struct caller who;
	struct call call;

	if (!handle_return(ctx, cookie, &who, &call) || !read_user(&key.address, sizeof(key.address), call.address))
		return 0;
	key.tgid = who.tgid;
	key.incarnation = who.incarnation;
	imported.since_ns = bpf_ktime_get_ns();
	keep_live(&key, &imported);
	return 0;
}

/* cuMemMap(address, size, offset, handle, flags) */
SEC("uretprobe")
int handle_mapped(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct live_key key = {};
	struct mapping mapping;
	struct live *handle;
	struct caller who;
	struct call call;

	if (!handle_return(ctx, cookie, &who, &call))
		return 0;
	handle = find_handle(&who, call.size, &key);
	if (!handle)
		return 0;
	/* Not counted where it would never be seen to end. */
	key.address = call.address;
	mapping = (struct mapping){ .handle = call.size, .size = call.stream };
	if (bpf_map_update_elem(&mapped, &key, &mapping, BPF_ANY))
		lose(LOSS_LIVE_FULL);
	else
		handle->maps++;
	return 0;
}

#define MAX_UNMAPPED 32 /* mappings of one call, side by side; more are reported as unreadable */

/* cuMemUnmap(address, size): of one mapping, or of several that lie side by side. */
SEC("uretprobe")
int handle_unmapped(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), end;
	struct live_key key = {}, of_handle = {};
	struct mapping *found, mapping;
	struct live *handle;
	struct caller who;
	struct call call;

	if (!handle_return(ctx, cookie, &who, &call))
		return 0;
	key.tgid = who.tgid;
	key.incarnation = who.incarnation;
	key.address = call.address;
	end = call.address + call.size;
	for (int i = 0; i < MAX_UNMAPPED; i++) {
		found = bpf_map_lookup_elem(&mapped, &key);
		if (!found)
			return 0;
		mapping = *found;
		bpf_map_delete_elem(&mapped, &key);
		handle = find_handle(&who, mapping.handle, &of_handle);
		if (handle) {
			if (handle->maps)
				handle->maps--;
			free_handle(&who, &of_handle, handle);
		}
		key.address += mapping.size;
		if (!mapping.size || key.address >= end)
			return 0;
	}
	lose(LOSS_READ_FAILED);
	return 0;
}

/* ---- synchronisation ---- */

static __always_inline void awaited_of(const struct caller *who, u64 cookie, const struct call *call, struct awaited *a)
{
	*a = (struct awaited){
		.what = COOKIE_KIND(cookie),
		.began_ns = call->start_ns,
		.tid = who->pid_tgid,
		.event = call->address,
	};
	busy_key_of(&a->key, who, device_of(who));
	a->stream = normal_stream(who, call->address, COOKIE_FLAGS(cookie));
}

/* Calls that wait: for a context, a stream or an event; see enum wait_kind. */
SEC("uprobe")
int wait(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct call call = {};
	struct caller who;

	if (!identify(&who))
		return 0;
	call.address = argument(ctx, 0);
	read_thread_state(&call.thread);
	enter(ctx, &who, cookie, &call);
	return 0;
}

SEC("uretprobe")
int wait_done(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), now = bpf_ktime_get_ns();
	struct awaited a;
	struct caller who;
	struct call call;
	s32 code = RESULT(ctx);

	if (!identify(&who) || !leave(&who, cookie, &call))
		return 0;
	if (code)
		count_error(&who, cookie, code);
	count_wait(&who, cookie, now - call.start_ns);
	if (is_followed(cookie) && !code) {
		awaited_of(&who, cookie, &call, &a);
		waited(&a, &call.thread, now);
		/* Waiting for an event has moved the beginning. */
		awaited_of(&who, cookie, &call, &a);
		seen_done(&a, now);
	}
	return 0;
}

/* Calls that ask whether a stream or an event is done. */
SEC("uprobe")
int query(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct call call = {};
	struct caller who;

	if (!busy_time || !identify(&who))
		return 0;
	call.address = argument(ctx, 0);
	enter(ctx, &who, cookie, &call);
	return 0;
}

#define NOT_READY 600 /* CUDA_ERROR_NOT_READY */

SEC("uretprobe")
int query_done(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), now = bpf_ktime_get_ns();
	struct awaited a;
	struct caller who;
	struct call call;
	s32 code = RESULT(ctx);

	if (!identify(&who) || !leave(&who, cookie, &call))
		return 0;
	awaited_of(&who, cookie, &call, &a);
	if (code == NOT_READY)
		seen_busy(&a, call.start_ns, 1);
	else if (!code)
		seen_done(&a, now);
	else
		count_error(&who, cookie, code);
	return 0;
}

/* Calls after which a stream, or every launch of a graph, waits for something else than the device. */
SEC("uprobe")
int held(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct caller who;

	if (!busy_time || !identify(&who))
		return 0;
	if (COOKIE_STREAM(cookie) == ARGUMENT_NONE || capturing_call(ctx, &who, cookie))
		hold_graphs(&who);
	hold(&who, device_of(&who));
	return 0;
}

/* (float *milliseconds, CUevent, CUevent) */
SEC("uprobe")
int elapsed(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct call call = {};
	struct caller who;

	if (!busy_time || !identify(&who))
		return 0;
	call.address = argument(ctx, 0);
	enter(ctx, &who, cookie, &call);
	return 0;
}

/* Milliseconds in IEEE 754's binary32, as nanoseconds; 0 for what is no time. */
static __always_inline u64 float_ms_to_ns(u32 bits)
{
	u64 fraction = (bits & 0x7fffff) | 0x800000;
	int exponent = (int)(bits >> 23 & 0xff) - 127 - 23;

	if (bits >> 31 || exponent < -60 || exponent > 0) /* negative, less than 10^-8 ns, more than 4 hours */
		return 0;
	return fraction * 1000000 >> -exponent;
}

SEC("uretprobe")
int elapsed_done(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), ns;
	struct row_key key;
	struct caller who;
	struct call call;
	s32 code = RESULT(ctx);
	u32 bits;

	if (!identify(&who) || !leave(&who, cookie, &call))
		return 0;
	if (code && code != NOT_READY)
		count_error(&who, cookie, code);
	if (code || !read_user(&bits, sizeof(bits), call.address))
		return 0;
	ns = float_ms_to_ns(bits);
	start_key(&key, &who, FAMILY_ELAPSED, 0);
	key.device = device_of(&who);
	key.bucket_a = duration_bucket(ns);
	count(&key, ns, 0);
	return 0;
}

/* ---- stream capture ---- */

/* (CUstream, ...) */
SEC("uprobe")
int capture_begin(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct call call = {};
	struct caller who;

	if (!identify(&who))
		return 0;
	call.stream = argument(ctx, 0);
	enter(ctx, &who, cookie, &call);
	return 0;
}

SEC("uretprobe")
int capture_begun(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct caller who;
	struct call call;
	s32 code = RESULT(ctx);

	if (!identify(&who) || !leave(&who, cookie, &call))
		return 0;
	if (code)
		count_error(&who, cookie, code);
	else
		start_capture(&who, call.stream, COOKIE_FLAGS(cookie), call.start_ns);
	return 0;
}

/* (CUevent, CUstream, ...) */
SEC("uprobe")
int event_record(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct caller who;

	if (!(captures || is_followed(cookie)) || !identify(&who))
		return 0;
	if (captures)
		capture_event(&who, argument(ctx, 0), argument(ctx, 1), COOKIE_FLAGS(cookie));
	if (!is_followed(cookie))
		return 0;
	if (capturing_call(ctx, &who, cookie))
		forget_event(&who, argument(ctx, 0));
	else
		record_event(&who, argument(ctx, 0), argument(ctx, 1), COOKIE_FLAGS(cookie));
	return 0;
}

/* An event is destroyed, and its handle may become another's; or graphs will record it, unseen. */
SEC("uprobe")
int event_lost(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct caller who;

	if (busy_time && identify(&who))
		forget_event(&who, argument(ctx, COOKIE_OUT(cookie)));
	return 0;
}

/* (CUstream, CUevent, ...) */
SEC("uprobe")
int stream_wait_event(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct caller who;

	if (!(captures || is_followed(cookie)) || !identify(&who))
		return 0;
	if (captures)
		join_capture(&who, argument(ctx, 0), argument(ctx, 1), COOKIE_FLAGS(cookie));
	if (is_followed(cookie) && !capturing_call(ctx, &who, cookie))
		join_streams(&who, argument(ctx, 0), argument(ctx, 1), COOKIE_FLAGS(cookie));
	return 0;
}

/* ---- names, graphs, contexts: rare calls, of which the agent is told ---- */

/* (CUfunction or CUkernel *, CUmodule or CUlibrary, const char *name) */
SEC("uprobe")
int name(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct call call = {};
	struct caller who;

	if (!identify(&who))
		return 0;
	call.address = argument(ctx, 0);
	call.arguments[0] = argument(ctx, 1);
	call.arguments[1] = argument(ctx, 2);
	enter(ctx, &who, cookie, &call);
	return 0;
}

SEC("uretprobe")
int named(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), handle;
	struct caller who;
	struct call call;

	if (handle_return(ctx, cookie, &who, &call) && read_user(&handle, sizeof(handle), call.address))
		emit_name(&who, handle, call.arguments[0], call.arguments[1]);
	return 0;
}

/* CUgraphNodeType: host functions, waits for events, for others' semaphores and for memory's values, conditions. */
static __always_inline int may_hold(u32 type)
{
	return type == 3 || type == 6 || type == 9 || type >= 12;
}

SEC("uprobe")
int call(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct call call = {};
	struct caller who;

	if (!identify(&who))
		return 0;
#pragma unroll
	for (int i = 0; i < RECORDED_ARGUMENTS; i++)
		call.arguments[i] = argument(ctx, i);
	if (COOKIE_OUT(cookie) != ARGUMENT_NONE)
		call.address = argument(ctx, COOKIE_OUT(cookie));
	if (COOKIE_SIZE(cookie) != ARGUMENT_NONE)
		call.size = argument(ctx, COOKIE_SIZE(cookie));
	call.stream = capturing_call(ctx, &who, cookie);
	enter(ctx, &who, cookie, &call);
	if (COOKIE_KIND(cookie) == CALL_ADDS_NODE) {
		u32 type;
		if (!read_user(&type, sizeof(type), call.size) || may_hold(type))
			hold_graphs(&who);
	}
	if ((COOKIE_KIND(cookie) & ~KIND_HIP) == CALL_ENDS_CAPTURE)
		end_capture(&who, argument(ctx, COOKIE_STREAM(cookie)), COOKIE_FLAGS(cookie));
	return 0;
}

/* Errors after which a capture goes on, of CUDA and of HIP. */
#define CAPTURE_UNMATCHED 903
#define CAPTURE_WRONG_THREAD 908

SEC("uretprobe")
int call_done(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), out = 0, at, id;
	struct call_event *e;
	struct caller who;
	struct call call;
	s32 code = RESULT(ctx);

	if (!identify(&who) || !leave(&who, cookie, &call))
		return 0;
	if (code) {
		count_error(&who, cookie, code);
		if ((COOKIE_KIND(cookie) & ~KIND_HIP) == CALL_ENDS_CAPTURE && call.stream &&
		    (code == CAPTURE_UNMATCHED || code == CAPTURE_WRONG_THREAD))
			resume_capture(&who, call.stream);
		return 0;
	}
	if (COOKIE_OUT(cookie) != ARGUMENT_NONE && !(COOKIE_FLAGS(cookie) & FLAG_RESULT))
		read_user(&out, sizeof(out), call.address);
	id = call.stream;
	if (COOKIE_KIND(cookie) == CALL_ALIASES)
		id = kernel_is(&who, out, mark_of(&who, call.arguments[1]));
	if (COOKIE_KIND(cookie) == CALL_RESETS_PRIMARY)
		id = primary_context(&who, call.arguments[0]);
	if (COOKIE_KIND(cookie) == CALL_RELEASES_PRIMARY) {
		id = release_primary(&who, call.arguments[0]);
		if (!id)
			return 0;
	}
	if (COOKIE_FLAGS(cookie) & FLAG_EXEC) {
		struct context_key key = { who.tgid, who.incarnation, out ? out : call.arguments[0] };
		id = call.start_ns;
		bpf_map_update_elem(&graphs, &key, &id, BPF_ANY);
	}
	e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e) {
		lose(LOSS_EVENTS_FULL);
		return 0;
	}
	fill_event(&e->event, &who, EVENT_CALL, COOKIE_FUNCTION(cookie), out, id, device_of(&who));
	__builtin_memcpy(e->arguments.values, call.arguments, sizeof(e->arguments.values));
	__builtin_memset(e->arguments.data, 0, sizeof(e->arguments.data));
	at = COOKIE_FLAGS(cookie) & FLAG_RESULT ? call.address : call.size;
	if (at && bpf_probe_read_user(e->arguments.data, RECORDED_BYTES, (void *)at))
		/* It may end before that: a quarter holds every structure's most important part. */
		bpf_probe_read_user(e->arguments.data, RECORDED_BYTES / 4, (void *)at);
	bpf_ringbuf_submit(e, 0);
	return 0;
}

/* Not HIP's, whose devices have numbers of their own. */
static __always_inline int is_retaining(u64 cookie)
{
	return !(COOKIE_FLAGS(cookie) & FLAG_PUSH) && !(COOKIE_KIND(cookie) & KIND_HIP);
}

/* cuCtxCreate(CUcontext *, ..., CUdevice) and cuDevicePrimaryCtxRetain(CUcontext *, CUdevice) */
SEC("uprobe")
int context(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct call call = {};
	struct caller who;

	if (!identify(&who))
		return 0;
	call.address = argument(ctx, COOKIE_OUT(cookie));
	call.size = (u32)argument(ctx, COOKIE_SIZE(cookie));
	enter(ctx, &who, cookie, &call);
	if (is_retaining(cookie))
		retain_primary(&who, call.size);
	return 0;
}

SEC("uretprobe")
int context_made(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), made;
	struct call call = {};
	struct caller who;

	if (!handle_return(ctx, cookie, &who, &call)) {
		if (call.start_ns && is_retaining(cookie))
			release_primary(&who, call.size);
		return 0;
	}
	if (!read_user(&made, sizeof(made), call.address))
		return 0;
	learn_context(&who, made, call.size);
	if (COOKIE_FLAGS(cookie) & FLAG_PUSH)
		set_context(&who, made, call.size, 1);
	else if (is_retaining(cookie))
		learn_primary(&who, made, call.size);
	return 0;
}

/* cuCtxSetCurrent(CUcontext) and cuCtxPushCurrent(CUcontext) */
SEC("uprobe")
int context_set(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), which = argument(ctx, 0);
	struct caller who;

	if (!identify(&who))
		return 0;
	if (which)
		set_context(&who, which, device_of_context(&who, which), COOKIE_FLAGS(cookie) & FLAG_PUSH);
	else
		pop_context(&who); /* so the driver defines it: what was below becomes current */
	return 0;
}

/* hipSetDevice(int) */
SEC("uprobe")
int device_set(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct call call = { .size = argument(ctx, 0) };
	struct caller who;

	if (identify(&who))
		enter(ctx, &who, cookie, &call);
	return 0;
}

SEC("uretprobe")
int device_is_set(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct caller who;
	struct call call;

	if (handle_return(ctx, cookie, &who, &call))
		set_context(&who, 0, call.size, 0);
	return 0;
}

SEC("uprobe")
int context_pop(struct pt_regs *ctx)
{
	struct caller who;

	if (identify(&who))
		pop_context(&who);
	return 0;
}
