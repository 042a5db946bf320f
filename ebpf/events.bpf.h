/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The trickle of events: what happens seldom and cannot be summed. */
#ifndef OTEL_GPU_EVENTS_BPF_H
#define OTEL_GPU_EVENTS_BPF_H

#include "common.bpf.h"

/* Ordered over all CPUs. Holds the names of 8,000 kernels; the agent reads as they come, and maps it twice. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 2 << 20);
} events SEC(".maps");

static __always_inline void fill_event(struct event *e, const struct caller *who, u32 type, u64 a, u64 b, u64 c, u64 d)
{
	*e = (struct event){
		.type = type,
		.tgid = who->tgid,
		.incarnation = who->incarnation,
		.tid = (u32)who->pid_tgid,
		.time_ns = bpf_ktime_get_ns(),
		.a = a,
		.b = b,
		.c = c,
		.d = d,
	};
}

static __always_inline void emit(const struct caller *who, u32 type, u64 a, u64 b, u64 c, u64 d)
{
	struct event *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);

	if (!e) {
		lose(LOSS_EVENTS_FULL);
		return;
	}
	fill_event(e, who, type, a, b, c, d);
	bpf_ringbuf_submit(e, 0);
}

/* Most names are short; only for the others is a long record taken. */
static __always_inline void emit_name(const struct caller *who, u64 handle, u64 module, u64 name)
{
	struct short_name *s = bpf_ringbuf_reserve(&events, sizeof(*s), 0);
	struct long_name *l;
	long size;

	if (!s) {
		lose(LOSS_EVENTS_FULL);
		return;
	}
	fill_event(&s->event, who, EVENT_NAMED, handle, module, name, 0);
	size = bpf_probe_read_user_str(s->name, sizeof(s->name), (void *)name);
	if (size < (long)sizeof(s->name)) {
		if (size < 0) {
			lose(LOSS_READ_FAILED);
			s->name[0] = 0;
		}
		bpf_ringbuf_submit(s, 0);
		return;
	}
	bpf_ringbuf_discard(s, BPF_RB_NO_WAKEUP);
	l = bpf_ringbuf_reserve(&events, sizeof(*l), 0);
	if (!l) {
		lose(LOSS_EVENTS_FULL);
		return;
	}
	fill_event(&l->event, who, EVENT_NAMED, handle, module, name, 0);
	if (bpf_probe_read_user_str(l->name, sizeof(l->name), (void *)name) < 0)
		l->name[0] = 0;
	bpf_ringbuf_submit(l, 0);
}

/* Sends where a launch came from; `kind` tells HIP's from CUDA's. */
static __always_inline void emit_first_launch(struct pt_regs *ctx, const struct caller *who, u64 handle, u8 kind)
{
	struct first_launch *f = bpf_ringbuf_reserve(&events, sizeof(*f), 0);
	struct origin *o;

	if (!f) {
		lose(LOSS_EVENTS_FULL);
		return;
	}
	o = &f->origin;
	fill_event(&f->event, who, EVENT_FIRST_LAUNCH, handle, kind, 0, 0);
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
}

#endif
