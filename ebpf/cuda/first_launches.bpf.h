/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Where was a kernel launched from first? Its name may be told by that. */
#ifndef OTEL_GPU_CUDA_FIRST_LAUNCHES_BPF_H
#define OTEL_GPU_CUDA_FIRST_LAUNCHES_BPF_H

#include "abi/events.h"
#include "lib/arguments.bpf.h"
#include "lib/events.bpf.h"

/* Sends where a launch came from; `kind` tells HIP's from CUDA's. */
static __noinline int emit_first_launch(struct pt_regs *ctx, u64 handle, u32 kind)
{
	struct first_launch *f;
	struct caller who;
	struct origin *o;

	if (!identify(&who))
		return 0;
	f = RESERVE_EVENT(struct first_launch);
	if (!f)
		return 0;
	o = &f->origin;
	fill_event(&f->event, &who, EVENT_FIRST_LAUNCH, handle, kind, 0, 0);
	o->sp = STACK_POINTER(ctx);
#if defined(__TARGET_ARCH_x86)
	o->ip = ctx->ip;
	o->fp = ctx->bp;
	o->saved[0] = ctx->bx;
	o->saved[1] = ctx->r12;
	o->saved[2] = ctx->r13;
	o->saved[3] = ctx->r14;
	o->saved[4] = ctx->r15;
#else
	o->ip = ctx->pc;
	o->fp = ctx->regs[29];
	o->saved[0] = ctx->regs[19];
	o->saved[1] = ctx->regs[20];
	o->saved[2] = ctx->regs[21];
	o->saved[3] = ctx->regs[22];
	o->saved[4] = ctx->regs[23];
#endif
	/* A failed read leaves zeros: the stack may end before the copy does. */
	if (bpf_probe_read_user(o->stack, sizeof(o->stack), (void *)o->sp))
		bpf_probe_read_user(o->stack, sizeof(o->stack) / 4, (void *)o->sp);
	bpf_ringbuf_submit(f, 0);
	return 0;
}

#endif
