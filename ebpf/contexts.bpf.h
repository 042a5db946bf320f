/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Programs of contexts: which one does a thread work in, and on which device is it? */
#ifndef OTEL_GPU_CONTEXTS_BPF_H
#define OTEL_GPU_CONTEXTS_BPF_H

#include "calls.bpf.h"
#include "device.bpf.h"

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

	if (!succeeded(ctx, cookie, &who, &call)) {
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

	if (succeeded(ctx, cookie, &who, &call))
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

#endif
