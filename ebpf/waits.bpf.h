/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Programs of waits and questions: how long did the host wait, and what did it learn of the device? */
#ifndef OTEL_GPU_WAITS_BPF_H
#define OTEL_GPU_WAITS_BPF_H

#include "calls.bpf.h"

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

	if (!returned(ctx, cookie, &who, &call))
		return 0;
	count_wait(&who, cookie, now - call.start_ns);
	if (is_followed(cookie) && !RESULT(ctx)) {
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

#endif
