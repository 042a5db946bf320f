// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Programs of contexts: which one does a thread work in, and on which device is it? */
#include "abi/cookies.h"
#include "abi/rows.h"
#include "cuda/calls.bpf.h"
#include "cuda/device.bpf.h"

/* Not HIP's, whose devices have numbers of their own. */
static __always_inline int is_retaining(u64 cookie)
{
	return !(COOKIE_FLAGS(cookie) & FLAG_PUSH) && !(COOKIE_KIND(cookie) & KIND_HIP);
}

/* cuCtxCreate(CUcontext *, ..., CUdevice), cuDevicePrimaryCtxRetain(CUcontext *, CUdevice) and
 * cuGreenCtxCreate(CUgreenCtx *, ..., CUdevice, ...), whose handle is no CUcontext. */
SEC("uprobe")
int context(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct caller who;
	struct call *call;

	call = call_begun(&who, cookie);
	if (!call)
		return 0;
	call->address = argument(ctx, COOKIE_OUT(cookie));
	call->size = (u32)argument(ctx, COOKIE_SIZE(cookie));
	if (is_retaining(cookie))
		retain_primary(call->size, COOKIE_LIBRARY(cookie));
	return 0;
}

SEC("uretprobe")
int context_made(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), made;
	struct returning back;
	u32 device;

	if (!succeeded(ctx, cookie, &back)) {
		if (back.call && is_retaining(cookie))
			release_primary(&back.who, back.call->size);
		return 0;
	}
	device = back.call->size;
	if (!read_user(&made, sizeof(made), back.call->address))
		return 0;
	learn_context(made, ordinal(device));
	if (COOKIE_FLAGS(cookie) & FLAG_PUSH)
		set_context(&back.who, made, ordinal(device), 1);
	else if (back.thread)
		find_device(back.thread, made, ordinal(device));
	if (is_retaining(cookie) && COOKIE_KIND(cookie) != CONTEXT_GREEN)
		learn_primary(&back.who, made, device);
	return 0;
}

/* cuCtxFromGreenCtx(CUcontext *, CUgreenCtx) */
SEC("uprobe")
int green_context(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct caller who;
	struct call *call;

	call = call_begun(&who, cookie);
	if (!call)
		return 0;
	call->address = argument(ctx, COOKIE_OUT(cookie));
	call->device = device_of_context(&who, argument(ctx, COOKIE_SIZE(cookie)));
	return 0;
}

SEC("uretprobe")
int green_context_made(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), made;
	struct returning back;

	if (!succeeded(ctx, cookie, &back) || back.call->device == DEVICE_UNKNOWN)
		return 0;
	if (read_user(&made, sizeof(made), back.call->address))
		learn_context(made, back.call->device | OF_PRIMARY);
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
	struct caller who;
	struct call *call;

	call = call_begun(&who, cookie);
	if (call)
		call->size = (u32)argument(ctx, 0);
	return 0;
}

SEC("uretprobe")
int device_is_set(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct returning back;

	if (succeeded(ctx, cookie, &back))
		set_context(&back.who, 0, ordinal(back.call->size), 0);
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
