// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Programs of waits and questions: how long did the host wait, and what did it learn of the device? */
#include "abi/cookies.h"
#include "abi/rows.h"
#include "cuda/awaited.bpf.h"
#include "cuda/calls.bpf.h"

static __always_inline void awaited_of(const struct returning *back, u64 cookie, struct awaited *a)
{
	*a = (struct awaited){
		.what = COOKIE_KIND(cookie),
		.began_ns = back->call->start_ns,
		.tid = back->who.pid_tgid,
		.event = back->call->address,
	};
	busy_key_of(&a->key, &back->who, device_of_thread(back->thread));
	a->stream = normal_stream(&back->who, back->call->address, COOKIE_FLAGS(cookie));
}

/* Calls that wait: for a context, a stream or an event; see enum wait_kind. */
SEC("uprobe")
int wait(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct caller who;
	struct call *call;

	call = call_begun(&who, cookie);
	if (!call)
		return 0;
	call->address = argument(ctx, 0);
	read_thread_state(&call->thread);
	return 0;
}

SEC("uretprobe")
int wait_done(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), now = bpf_ktime_get_ns();
	struct returning back;
	struct awaited a;

	if (!returned(ctx, cookie, &back))
		return 0;
	count_wait(&back, cookie, now - back.call->start_ns);
	if (!RESULT(ctx))
		done_seen(&back.who);
	if (is_followed(cookie) && !RESULT(ctx)) {
		awaited_of(&back, cookie, &a);
		waited(&a, &back.call->thread, now);
		/* Waiting for an event has moved the beginning. */
		awaited_of(&back, cookie, &a);
		seen_done(&a, now);
	}
	return 0;
}

/* Calls that ask: whether a stream or an event is done, or how much time lay between two events. */
SEC("uprobe")
int query(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct caller who;
	struct call *call;

	if (!busy_time || !identify(&who))
		return 0;
	call = enter(&who, cookie);
	if (call)
		call->address = argument(ctx, 0);
	return 0;
}

#define NOT_READY 600 /* CUDA_ERROR_NOT_READY */

SEC("uretprobe")
int query_done(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), now = bpf_ktime_get_ns();
	struct returning back;
	struct awaited a;
	s32 code = RESULT(ctx);

	if (!comes_back(cookie, &back))
		return 0;
	awaited_of(&back, cookie, &a);
	if (code == NOT_READY)
		seen_busy(&a, back.call->start_ns, 1);
	else if (!code)
		seen_done(&a, now);
	else
		count_error(&back.who, cookie, code);
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
	hold(&who, thread_of(&who));
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

/* (float *milliseconds, CUevent, CUevent) */
SEC("uretprobe")
int elapsed_done(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), ns;
	struct returning back;
	struct row_key key;
	s32 code = RESULT(ctx);
	u32 bits;

	if (!comes_back(cookie, &back))
		return 0;
	if (code && code != NOT_READY)
		count_error(&back.who, cookie, code);
	if (code || !read_user(&bits, sizeof(bits), back.call->address))
		return 0;
	ns = float_ms_to_ns(bits);
	start_key(&key, &back.who, FAMILY_ELAPSED, 0);
	key.device = device_of_thread(back.thread);
	key.bucket_a = duration_bucket(ns);
	count(&key, ns, 0);
	return 0;
}
