/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which callback of an executor does a thread run? Executors call one after another, and a callback may run an executor
 * itself: what a thread is in lies on its stack, and so do they here. */
#ifndef OTEL_GPU_INFERENCE_CALLBACKS_BPF_H
#define OTEL_GPU_INFERENCE_CALLBACKS_BPF_H

#include "inference/serving.bpf.h"

#define CALLBACKS_DEEP 8
_Static_assert((CALLBACKS_DEEP & (CALLBACKS_DEEP - 1)) == 0, "a mask bounds it");

/* A callback that a thread is in. */
struct callback {
	struct callback_frame frame;
	u64 entity;   /* whose it is: a subscription, a timer, ... */
	u64 taking;   /* the stack pointer of the call that takes its message; 0: it takes none now */
	u64 message;  /* where that call says of which message it is; 0: nowhere */
	u8 kind;      /* enum callback_kind */
	u8 is_outer;  /* it began where an executor runs whatever is due, */
	u8 has_inner; /* and the function of its kind was called by that */
	u8 has_taken;
	u8 took_nothing;
	u8 only_tells; /* of the kind of one that has begun: its end would not be seen */
	u8 pad[2];
};

/* A message that rclpy takes. */
struct taken_message {
	u64 stack;  /* the stack pointer of the call; 0: none */
	u64 entity; /* whose message it is */
	u64 message;
	u64 kind;
};

struct callback_stack {
	u32 exec_id;
	u32 depth;
	struct taken_message taking;
	struct callback_frame beyond; /* the first that found no room */
	struct callback callbacks[CALLBACKS_DEEP];
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct callback_stack);
} callback_stacks SEC(".maps");

static const struct callback_frame no_frame = {};

static __always_inline struct callback_stack *callbacks_of(const struct caller *who)
{
	struct callback_stack *s = bpf_task_storage_get(&callback_stacks, bpf_get_current_task_btf(), NULL, 0);

	return s && s->exec_id == who->exec_id ? s : NULL;
}

static __always_inline struct callback_stack *meet_callbacks(const struct caller *who)
{
	struct callback_stack *s = bpf_task_storage_get(&callback_stacks, bpf_get_current_task_btf(), NULL,
							BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (s && s->exec_id != who->exec_id) {
		s->exec_id = who->exec_id;
		s->depth = 0;
		s->beyond = no_frame;
		s->taking.stack = 0;
	}
	return s;
}

/* The innermost one; NULL where there is none, or it found no room. */
static __always_inline struct callback *innermost(struct callback_stack *s)
{
	if (!s->depth || s->beyond.stack)
		return NULL;
	return &s->callbacks[(s->depth - 1) & (CALLBACKS_DEEP - 1)];
}

static __always_inline int did_nothing(const struct request *r)
{
	const u64 *owned = (const u64 *)&r->owned;

#pragma unroll
	for (u32 i = 0; i < sizeof(r->owned) / sizeof(u64); i++)
		if (owned[i])
			return 0;
	return 1;
}

/* Ends the callbacks whose frames begin at `stack` or below. Where the function of one is about to return, those below it were
 * left without having been seen. */
static __noinline int leave_callbacks(struct callback_stack *s, struct request_thread *t, u64 stack, u32 ending)
{
	struct callback *c;
	struct request *r;

	if (!s || !t)
		return 0;
	if (s->beyond.stack && s->beyond.stack <= stack)
		s->beyond = no_frame;
	for (u32 i = 0; i < CALLBACKS_DEEP; i++) {
		c = innermost(s);
		if (!c || c->frame.stack > stack)
			break;
		r = request_numbered(c->frame.request);
		if (r && c->took_nothing && !c->has_taken && did_nothing(r))
			drop_request(r);
		else
			end_request(r, ending == ENDING_COMPLETE && c->frame.stack != stack ? ENDING_LOST : ending);
		s->depth--;
	}
	c = innermost(s);
	t->callback = c ? c->frame : s->beyond;
	return 0;
}

#endif
