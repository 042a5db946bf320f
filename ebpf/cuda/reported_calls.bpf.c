// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Programs of rare calls that the agent is told of: names, graphs, ends of contexts. */
#include "abi/cookies.h"
#include "abi/events.h"
#include "abi/rows.h"
#include "cuda/calls.bpf.h"
#include "cuda/device.bpf.h"
#include "cuda/generations.bpf.h"
#include "cuda/graphs.bpf.h"
#include "cuda/ranges.bpf.h"
#include "lib/events.bpf.h"

#define NODE_ALLOCATES 10 /* CUgraphNodeType */
#define BODIES_AT 32	  /* where CUgraphNodeParams of a condition has the address of its bodies */
#define BODIES_BEHIND 64  /* where the agent finds them: the words there are reserved */

/* CUgraphNodeType: host functions, waits for events, for others' semaphores and for memory's values, conditions. */
static __always_inline int may_hold(u32 type)
{
	return type == 3 || type == 6 || type == 9 || type >= 12;
}

static __always_inline int unloads_kernels(u8 kind)
{
	return kind == CALL_UNLOADS || kind == CALL_RESETS_PRIMARY || kind == CALL_RELEASES_PRIMARY ||
	       kind == CALL_DESTROYS_GREEN;
}

SEC("uprobe")
int call(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), data = 0, capture;
	u8 kind = COOKIE_KIND(cookie) & ~KIND_HIP;
	struct caller who;
	struct call *call;

	if (!identify(&who))
		return 0;
	capture = capturing_call(ctx, &who, cookie);
	if (COOKIE_SIZE(cookie) != ARGUMENT_NONE)
		data = argument(ctx, COOKIE_SIZE(cookie));
	call = enter(&who, cookie);
	if (call) {
#pragma unroll
		for (int i = 0; i < RECORDED_ARGUMENTS; i++)
			call->arguments[i] = argument(ctx, i);
		if (COOKIE_OUT(cookie) != ARGUMENT_NONE)
			call->address = argument(ctx, COOKIE_OUT(cookie));
		call->size = data;
		call->stream = capture;
	}
	if (COOKIE_KIND(cookie) == CALL_ADDS_NODE) {
		u32 type;
		int is_known = read_user(&type, sizeof(type), data);
		if (!is_known || may_hold(type))
			hold_graphs(&who);
		if (!is_known || type == NODE_ALLOCATES)
			hide_memory();
	}
	if (unloads_kernels(kind))
		note_unload(&who);
	/* At the call: once the driver has the handle back, another thread may be given it before this one returns. */
	if (kind == CALL_UNLOADS)
		forget_context(&who, argument(ctx, 0));
	if (kind == CALL_DESTROYS_GREEN && call) {
		call->device = device_of_context(&who, argument(ctx, 0));
		forget_context(&who, argument(ctx, 0));
	}
	if (kind == CALL_DESTROYS_EXEC)
		forget_version(&who, argument(ctx, 0));
	if (kind == CALL_ENDS_CAPTURE)
		end_capture(&who, argument(ctx, COOKIE_STREAM(cookie)), COOKIE_FLAGS(cookie));
	return 0;
}

/* Errors after which a capture goes on, of CUDA and of HIP. */
#define CAPTURE_UNMATCHED 903
#define CAPTURE_WRONG_THREAD 908

/* A call that ended a capture, or tried to, returns. */
static __always_inline void capture_ended(const struct returning *back, u64 cookie, s32 code)
{
	u64 id = back->call->stream;

	if (!id)
		return;
	if (code == CAPTURE_UNMATCHED || code == CAPTURE_WRONG_THREAD)
		resume_capture(&back->who, id);
	else /* the stream is the first argument of all that end captures */
		forget_stream(&back->who, back->call->arguments[0], COOKIE_FLAGS(cookie), id);
}

/* What the agent is told of a call besides its arguments; 0 in `*tell` when it is told nothing. */
static __always_inline u64 ident_of(const struct returning *back, u64 cookie, u64 out, int *tell)
{
	const struct caller *who = &back->who;
	const struct call *call = back->call;
	u64 id = call->stream;

	switch (COOKIE_KIND(cookie)) {
	case CALL_ALIASES:
		id = kernel_is(out, mark_of(who, call->arguments[1]));
		break;
	case CALL_RESETS_PRIMARY:
		id = primary_context(who, call->arguments[0]);
		break;
	case CALL_RELEASES_PRIMARY:
		id = release_primary(who, call->arguments[0]);
		*tell = id != 0;
		break;
	case CALL_DESTROYS_GREEN:
		id = release_primary(who, call->device);
		*tell = id != 0;
		break;
	}
	if (COOKIE_FLAGS(cookie) & FLAG_EXEC) {
		id = call->start_ns;
		learn_version(out ? out : call->arguments[0], id);
	}
	return id;
}

/* Graphs that the driver made for a condition, as far as they find room behind its parameters. */
static __always_inline void read_bodies(u8 *data)
{
	void *at = *(void **)(data + BODIES_AT);

	if (bpf_probe_read_user(data + BODIES_BEHIND, RECORDED_BYTES - BODIES_BEHIND, at))
		bpf_probe_read_user(data + BODIES_BEHIND, sizeof(u64), at); /* it may end there */
}

SEC("uretprobe")
int call_done(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), out = 0, at, id;
	struct returning back;
	struct call_event *e;
	s32 code = RESULT(ctx);
	int tell = 1;

	if (!returned(ctx, cookie, &back))
		return 0;
	if ((COOKIE_KIND(cookie) & ~KIND_HIP) == CALL_ENDS_CAPTURE)
		capture_ended(&back, cookie, code);
	if (code)
		return 0;
	if (COOKIE_OUT(cookie) != ARGUMENT_NONE && !(COOKIE_FLAGS(cookie) & FLAG_RESULT))
		read_user(&out, sizeof(out), back.call->address);
	id = ident_of(&back, cookie, out, &tell);
	e = tell ? RESERVE_EVENT(struct call_event) : NULL;
	if (!e)
		return 0;
	fill_event(&e->event, &back.who, EVENT_CALL, COOKIE_FUNCTION(cookie), out, id, device_of_thread(back.thread));
	__builtin_memcpy(e->arguments.values, back.call->arguments, sizeof(e->arguments.values));
	__builtin_memset(e->arguments.data, 0, sizeof(e->arguments.data));
	at = COOKIE_FLAGS(cookie) & FLAG_RESULT ? back.call->address : back.call->size;
	if (at && bpf_probe_read_user(e->arguments.data, RECORDED_BYTES, (void *)at))
		/* It may end before that: a quarter holds every structure's most important part. */
		bpf_probe_read_user(e->arguments.data, RECORDED_BYTES / 4, (void *)at);
	if (COOKIE_KIND(cookie) == CALL_ADDS_NODE && *(u32 *)e->arguments.data == NODE_CONDITIONAL)
		read_bodies(e->arguments.data);
	bpf_ringbuf_submit(e, 0);
	return 0;
}
