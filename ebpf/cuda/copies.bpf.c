// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Programs of copies and memsets: how much goes which way, and how long does the caller wait for it? */
#include "abi/cookies.h"
#include "abi/events.h"
#include "abi/programs.h"
#include "abi/rows.h"
#include "abi/samples.h"
#include "cuda/awaited.bpf.h"
#include "cuda/calls.bpf.h"
#include "cuda/copy.bpf.h"
#include "cuda/device.bpf.h"
#include "cuda/extents.bpf.h"
#include "cuda/pinned.bpf.h"
#include "cuda/ranges.bpf.h"
#include "cuda/tail_calls.bpf.h"
#include "lib/events.bpf.h"

static __always_inline u64 host_side(u8 kind, u64 from, u64 to)
{
	kind &= ~KIND_HIP;
	if (kind == COPY_HOST_TO_DEVICE || kind == COPY_HOST_TO_HOST)
		return from;
	return kind == COPY_DEVICE_TO_HOST ? to : 0;
}

#define HOST_SHIFT 8
#define WHERE_BITS 16
#define WHERE_MASK ((1 << WHERE_BITS) - 1)

/* What a copy is that leaves it to the driver to find out, by its two pointers and by where these lie, as far as the call says that:
 * its kind, and behind it the host's memory. In numbers, so that the verifier looks at it once. */
RARE int find_out_kind(u64 from, u64 to, u32 wheres, u32 hip, u32 library)
{
	u32 from_where = wheres & WHERE_MASK, to_where = wheres >> WHERE_BITS;
	struct caller who;
	u8 kind;

	meet();
	if (!identify(&who))
		return COPY_DEFAULT;
	if (from_where == LIES_NOWHERE)
		from_where = lies_at(from, library);
	if (to_where == LIES_NOWHERE)
		to_where = lies_at(to, library);
	kind = kind_between(from_where, to_where);
	return kind | hip | host_memory(&who, host_side(kind, from, to)) << HOST_SHIFT;
}

/* Settles a copy's kind, and returns the host's memory. */
static __always_inline u8 settle_kind(const struct caller *who, struct copy *copy, u64 cookie)
{
	u32 hip = copy->kind & KIND_HIP, found;

	if ((copy->kind & ~KIND_HIP) != COPY_DEFAULT)
		return host_memory(who, host_side(copy->kind, copy->from.pointer, copy->to.pointer));
	found = find_out_kind(copy->from.pointer, copy->to.pointer, copy->from.where | copy->to.where << WHERE_BITS,
			      hip, COOKIE_LIBRARY(cookie));
	copy->kind = found;
	return found >> HOST_SHIFT;
}

static __always_inline void count_copy(const struct caller *who, const struct thread *t, u8 kind, u8 host, u64 bytes)
{
	struct row_key key;

	bytes = plausible(bytes);
	start_key(&key, who, FAMILY_COPY, 0);
	key.device = device_of_thread(t);
	key.kind = kind;
	key.detail = host;
	key.bucket_a = bucket(bytes);
	count_owned(&key, bytes, 0);
}

/* The call that this one is a part of, and which is counted; NULL when it is none. */
static __always_inline struct call *outer_call(struct thread *t, u64 cookie)
{
	return COOKIE_FLAGS(cookie) & FLAG_INNER && t ? FIND_CALL(t->calls, cookie) : NULL;
}

/* Asynchronous copies are counted at the call. False when they do not run, or belong to another call. */
static __always_inline int copy_now(struct pt_regs *ctx, const struct caller *who, u64 cookie, struct copy *copy)
{
	u64 capture = capturing_call(ctx, who, cookie);
	struct thread *t = thread_of(who);
	struct call *outer = outer_call(t, cookie);
	u8 host = settle_kind(who, copy, cookie);

	if (outer) {
		outer->function = 0;
		return 0;
	}
	if (capture) {
		emit(EVENT_CAPTURED, capture, NODE_COPY, plausible(copy->bytes), NODE_DETAIL(copy->kind, host));
		return 0;
	}
	count_copy(who, t, copy->kind, host, copy->bytes);
	submit_call(ctx, who, t, cookie);
	return 1;
}

/* Blocking copies are counted when they return, if they succeeded, with the time they took. */
static __always_inline int copy_begin(struct pt_regs *ctx, const struct caller *who, u64 cookie, struct copy *copy)
{
	struct thread *t = thread_of(who);
	struct call *call;

	/* An inner call's return takes out its caller's entry, and so counts what the caller was asked. */
	if (outer_call(t, cookie))
		return 0;
	submit_call(ctx, who, t, cookie);
	call = enter(who, cookie);
	if (!call)
		return 1;
	call->size = copy->bytes;
	call->host = settle_kind(who, copy, cookie);
	call->kind = copy->kind;
	read_thread_state(&call->thread);
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
			tail_call_profile(ctx, cookie, SUBMITTED_OTHER);                                               \
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
			tail_call_profile(ctx, cookie, SUBMITTED_OTHER);                                               \
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
	struct caller who;

	if (!identify(&who) || !copy_linear_of(ctx, cookie, &copy))
		return 0;
	copy_now(ctx, &who, cookie, &copy);
	enter(&who, cookie);
	return 0;
}

SEC("uretprobe")
int copy_outer_done(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct returning back;

	comes_back(cookie, &back);
	return 0;
}

#define SMALL_COPY 65536 /* bytes that a host copies to or from pageable memory in no time */

/* The program has what it copied to the host, and the driver what was copied from page-locked memory: not so with
 * pageable memory, which may be on its way still. */
static __always_inline void copy_returned(const struct returning *back, u64 cookie, u64 now)
{
	const struct call *call = back->call;
	struct awaited a = { .what = WAIT_STREAM, .began_ns = call->start_ns, .tid = back->who.pid_tgid };
	int pinned = call->host == HOST_MEMORY_PINNED;

	if (!is_followed(cookie) ||
	    (call->kind != COPY_DEVICE_TO_HOST && !(call->kind == COPY_HOST_TO_DEVICE && pinned)))
		return;
	busy_key_of(&a.key, &back->who, device_of_thread(back->thread));
	a.stream = normal_stream(&back->who, 0, COOKIE_FLAGS(cookie));
	if (pinned || call->size <= SMALL_COPY)
		waited(&a, &call->thread, now);
	seen_done(&a, now);
}

SEC("uretprobe")
int copy_done(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), now = bpf_ktime_get_ns();
	struct returning back;
	s32 code = RESULT(ctx);

	if (!returned(ctx, cookie, &back))
		return 0;
	if (!code)
		count_copy(&back.who, back.thread, back.call->kind, back.call->host, back.call->size);
	count_wait(&back, cookie, now - back.call->start_ns);
	if (!code && back.call->kind == COPY_DEVICE_TO_HOST)
		done_seen(&back.who);
	if (!code)
		copy_returned(&back, cookie, now);
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

/* A copy of a batch, whose sides were looked up: where it lies says what host memory is. */
static __always_inline void count_batched(const struct walk *walk, u32 from, u32 to, u64 bytes)
{
	u8 kind = kind_between(from, to), host = host_memory_between(kind, from, to);

	if (walk->capture)
		emit(EVENT_CAPTURED, walk->capture, NODE_COPY, plausible(bytes), NODE_DETAIL(kind, host));
	else
		count_copy(&walk->who, thread_of(&walk->who), kind, host, bytes);
}

/* Of the pointer that stands at this address. */
RARE int where_is_listed(u64 at, u32 library)
{
	u64 pointer;

	return read_user(&pointer, sizeof(pointer), at) ? lies_at(pointer, library) : LIES_UNKNOWN;
}

static long copy_one(u64 i, struct walk *walk)
{
	u64 bytes;
	u32 from, to;

	if (!read_user(&bytes, sizeof(bytes), walk->at + i * sizeof(bytes)))
		return 1;
	from = where_is_listed(walk->from + i * sizeof(u64), COOKIE_LIBRARY(walk->cookie));
	to = where_is_listed(walk->to + i * sizeof(u64), COOKIE_LIBRARY(walk->cookie));
	count_batched(walk, from, to, bytes);
	return 0;
}

/* cuMemcpyBatchAsync(dsts, srcs, sizes, count, ...): kinds are the driver's to find out. */
SEC("uprobe")
int copy_batch(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct walk walk = { .cookie = cookie,
			     .at = argument(ctx, COOKIE_SIZE(cookie)),
			     .from = argument(ctx, COOKIE_HOST(cookie)),
			     .to = argument(ctx, COOKIE_OUT(cookie)) };
	u32 n = batch_size(argument(ctx, COOKIE_SIZE2(cookie)));

	if (!identify(&walk.who))
		return 0;
	meet();
	walk.capture = capturing_call(ctx, &walk.who, cookie);
	bpf_loop(n, copy_one, &walk, 0);
	if (!walk.capture) {
		submit_call(ctx, &walk.who, thread_of(&walk.who), cookie);
		tail_call_profile(ctx, cookie, SUBMITTED_OTHER);
	}
	return 0;
}

/* CUDA_MEMCPY3D_BATCH_OP: two operands of 40 bytes, then the extent. */
#define COPY_OPERATION_SIZE 112
#define COPY_OPERATION_TO 40
#define COPY_OPERATION_EXTENT 80
#define OPERAND_IS_POINTER 1

/* A CUmemcpy3DOperand: its type, and behind it the pointer of those that are one; the rest are arrays. */
RARE int where_is_operand(u64 at, u32 library)
{
	u64 word;

	if (!read_user(&word, sizeof(word), at))
		return LIES_UNKNOWN;
	if ((u32)word != OPERAND_IS_POINTER)
		return LIES_ON(DEVICE_UNKNOWN);
	if (!read_user(&word, sizeof(word), at + sizeof(word)))
		return LIES_UNKNOWN;
	return lies_at(word, library);
}

static long copy_one_3d(u64 i, struct walk *walk)
{
	u64 at = walk->at + i * COPY_OPERATION_SIZE, bytes = 1, size;
	u32 from, to;

	for (int side = 0; side < 3; side++) {
		if (!read_user(&size, sizeof(size), at + COPY_OPERATION_EXTENT + side * sizeof(size)))
			return 1;
		bytes *= size;
	}
	from = where_is_operand(at, COOKIE_LIBRARY(walk->cookie));
	to = where_is_operand(at + COPY_OPERATION_TO, COOKIE_LIBRARY(walk->cookie));
	count_batched(walk, from, to, bytes);
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
	meet();
	walk.capture = capturing_call(ctx, &walk.who, cookie);
	bpf_loop(n, copy_one_3d, &walk, 0);
	if (!walk.capture) {
		submit_call(ctx, &walk.who, thread_of(&walk.who), cookie);
		tail_call_profile(ctx, cookie, SUBMITTED_OTHER);
	}
	return 0;
}

static __always_inline void count_memset(const struct caller *who, const struct thread *t, u64 cookie, u64 bytes)
{
	struct row_key key;

	start_key(&key, who, FAMILY_MEMSET, 0);
	key.kind = COOKIE_KIND(cookie);
	key.device = device_of_thread(t);
	key.bucket_a = bucket(bytes);
	count(&key, bytes, 0);
}

/* The size is one argument, or the product of two, in elements of 1, 2 or 4 bytes. */
static __always_inline int fill_bytes(struct pt_regs *ctx, const struct caller *who, u64 cookie, u64 bytes)
{
	u64 capture = capturing_call(ctx, who, cookie);
	struct thread *t = thread_of(who);

	bytes = plausible(bytes);
	if (capture) {
		emit(EVENT_CAPTURED, capture, NODE_MEMSET, bytes, 0);
		return 0;
	}
	count_memset(who, t, cookie, bytes);
	submit_call(ctx, who, t, cookie);
	tail_call_profile(ctx, cookie, SUBMITTED_OTHER);
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
