/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The trickle of events: what happens seldom and cannot be summed. */
#ifndef OTEL_GPU_EVENTS_BPF_H
#define OTEL_GPU_EVENTS_BPF_H

#include "common.bpf.h"
#include "generations.bpf.h"

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

/* A name that cannot be told: whatever the handle was, it may be another kernel. */
static __always_inline void lose_name(const struct caller *who, u64 handle)
{
	lose(LOSS_EVENTS_FULL);
	kernel_is(who, handle, bpf_ktime_get_ns());
}

/* A hash of a name of `size` bytes, the NUL among them, in a buffer of `room`. */
static __always_inline u64 mark_of_name(const char *name, u32 size, u32 room)
{
	const u64 *words = (const u64 *)name;
	u64 mark = size, word;
	u32 left = size;

	for (u32 i = 0; i < room / 8; i++) {
		if (!left)
			break;
		word = words[i];
		if (left < 8)
			word &= (1ULL << 8 * left) - 1;
		left = left < 8 ? 0 : left - 8;
		mark = (mark ^ word) * 0x100000001b3ULL;
		mark ^= mark >> 32;
	}
	return mark;
}

static __noinline int emit_huge_name(const struct caller *who, u64 handle, u64 module, u64 name)
{
	struct huge_name *h = who ? bpf_ringbuf_reserve(&events, sizeof(*h), 0) : 0;
	long size;

	if (!h) {
		if (who)
			lose_name(who, handle);
		return 0;
	}
	fill_event(&h->event, who, EVENT_NAMED, handle, module, name, 0);
	size = bpf_probe_read_user_str(h->name, sizeof(h->name), (void *)name);
	if (size <= 0) {
		lose(LOSS_READ_FAILED);
		h->name[0] = 0;
		size = 1;
	}
	h->event.d = kernel_is(who, handle, mark_of_name(h->name, size, NAME_HUGE));
	bpf_ringbuf_submit(h, 0);
	return 0;
}

static __noinline int emit_long_name(const struct caller *who, u64 handle, u64 module, u64 name)
{
	struct long_name *l = who ? bpf_ringbuf_reserve(&events, sizeof(*l), 0) : 0;
	long size;

	if (!l) {
		if (who)
			lose_name(who, handle);
		return 0;
	}
	fill_event(&l->event, who, EVENT_NAMED, handle, module, name, 0);
	size = bpf_probe_read_user_str(l->name, sizeof(l->name), (void *)name);
	if (size >= (long)sizeof(l->name)) {
		bpf_ringbuf_discard(l, BPF_RB_NO_WAKEUP);
		return emit_huge_name(who, handle, module, name);
	}
	if (size <= 0) {
		lose(LOSS_READ_FAILED);
		l->name[0] = 0;
		size = 1;
	}
	l->event.d = kernel_is(who, handle, mark_of_name(l->name, size, NAME_LONG));
	bpf_ringbuf_submit(l, 0);
	return 0;
}

/* Most names are short; only for the others is a long record taken. */
static __always_inline void emit_name(const struct caller *who, u64 handle, u64 module, u64 name)
{
	struct short_name *s = bpf_ringbuf_reserve(&events, sizeof(*s), 0);
	long size;

	if (!s) {
		lose_name(who, handle);
		return;
	}
	fill_event(&s->event, who, EVENT_NAMED, handle, module, name, 0);
	size = bpf_probe_read_user_str(s->name, sizeof(s->name), (void *)name);
	if (size >= (long)sizeof(s->name)) {
		bpf_ringbuf_discard(s, BPF_RB_NO_WAKEUP);
		emit_long_name(who, handle, module, name);
		return;
	}
	if (size <= 0) {
		lose(LOSS_READ_FAILED);
		s->name[0] = 0;
		size = 1;
	}
	s->event.d = kernel_is(who, handle, mark_of_name(s->name, size, NAME_SHORT));
	bpf_ringbuf_submit(s, 0);
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
