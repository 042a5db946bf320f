// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Programs of names: what is a kernel called? */
#include "cuda/calls.bpf.h"
#include "cuda/names.bpf.h"

/* (CUfunction or CUkernel *, CUmodule or CUlibrary, const char *name) */
SEC("uprobe")
int name(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct caller who;
	struct call *call;

	call = call_begun(&who, cookie);
	if (!call)
		return 0;
	call->address = argument(ctx, 0);
	call->arguments[0] = argument(ctx, 1);
	call->arguments[1] = argument(ctx, 2);
	return 0;
}

SEC("uretprobe")
int named(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), handle;
	struct returning back;

	if (succeeded(ctx, cookie, &back) && read_user(&handle, sizeof(handle), back.call->address))
		emit_name(handle, back.call->arguments[0], back.call->arguments[1]);
	return 0;
}

/* (const char **name, CUfunction or CUkernel): a program that listed its kernels asks what they are called. */
SEC("uretprobe")
int name_told(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), name;
	struct returning back;

	if (succeeded(ctx, cookie, &back) && read_user(&name, sizeof(name), back.call->address))
		emit_name(back.call->arguments[0], 0, name);
	return 0;
}
