/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Programs of rare calls that the agent is told of: names, graphs, ends of contexts. */
#ifndef OTEL_GPU_FACTS_BPF_H
#define OTEL_GPU_FACTS_BPF_H

#include "calls.bpf.h"
#include "device.bpf.h"
#include "events.bpf.h"
#include "launches.bpf.h"

/* (CUfunction or CUkernel *, CUmodule or CUlibrary, const char *name) */
SEC("uprobe")
int name(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct call call = {};
	struct caller who;

	if (!identify(&who))
		return 0;
	call.address = argument(ctx, 0);
	call.arguments[0] = argument(ctx, 1);
	call.arguments[1] = argument(ctx, 2);
	enter(ctx, &who, cookie, &call);
	return 0;
}

SEC("uretprobe")
int named(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), handle;
	struct caller who;
	struct call call;

	if (succeeded(ctx, cookie, &who, &call) && read_user(&handle, sizeof(handle), call.address))
		emit_name(&who, handle, call.arguments[0], call.arguments[1]);
	return 0;
}

/* (const char **name, CUfunction or CUkernel): a program that listed its kernels asks what they are called. */
SEC("uretprobe")
int name_told(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), name;
	struct caller who;
	struct call call;

	if (succeeded(ctx, cookie, &who, &call) && read_user(&name, sizeof(name), call.address))
		emit_name(&who, call.arguments[0], 0, name);
	return 0;
}

/* CUgraphNodeType: host functions, waits for events, for others' semaphores and for memory's values, conditions. */
static __always_inline int may_hold(u32 type)
{
	return type == 3 || type == 6 || type == 9 || type >= 12;
}

static __always_inline int unloads_kernels(u8 kind)
{
	return kind == CALL_UNLOADS || kind == CALL_RESETS_PRIMARY || kind == CALL_RELEASES_PRIMARY;
}

SEC("uprobe")
int call(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct call call = {};
	struct caller who;

	if (!identify(&who))
		return 0;
#pragma unroll
	for (int i = 0; i < RECORDED_ARGUMENTS; i++)
		call.arguments[i] = argument(ctx, i);
	if (COOKIE_OUT(cookie) != ARGUMENT_NONE)
		call.address = argument(ctx, COOKIE_OUT(cookie));
	if (COOKIE_SIZE(cookie) != ARGUMENT_NONE)
		call.size = argument(ctx, COOKIE_SIZE(cookie));
	call.stream = capturing_call(ctx, &who, cookie);
	enter(ctx, &who, cookie, &call);
	if (COOKIE_KIND(cookie) == CALL_ADDS_NODE) {
		u32 type;
		if (!read_user(&type, sizeof(type), call.size) || may_hold(type))
			hold_graphs(&who);
	}
	if (unloads_kernels(COOKIE_KIND(cookie) & ~KIND_HIP))
		note_unload(&who);
	if ((COOKIE_KIND(cookie) & ~KIND_HIP) == CALL_ENDS_CAPTURE)
		end_capture(&who, argument(ctx, COOKIE_STREAM(cookie)), COOKIE_FLAGS(cookie));
	return 0;
}

/* Errors after which a capture goes on, of CUDA and of HIP. */
#define CAPTURE_UNMATCHED 903
#define CAPTURE_WRONG_THREAD 908

SEC("uretprobe")
int call_done(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), out = 0, at, id;
	struct call_event *e;
	struct caller who;
	struct call call;
	s32 code = RESULT(ctx);

	if (!returned(ctx, cookie, &who, &call))
		return 0;
	if (code) {
		if ((COOKIE_KIND(cookie) & ~KIND_HIP) == CALL_ENDS_CAPTURE && call.stream &&
		    (code == CAPTURE_UNMATCHED || code == CAPTURE_WRONG_THREAD))
			resume_capture(&who, call.stream);
		return 0;
	}
	if (COOKIE_OUT(cookie) != ARGUMENT_NONE && !(COOKIE_FLAGS(cookie) & FLAG_RESULT))
		read_user(&out, sizeof(out), call.address);
	id = call.stream;
	if (COOKIE_KIND(cookie) == CALL_ALIASES)
		id = kernel_is(&who, out, mark_of(&who, call.arguments[1]));
	if (COOKIE_KIND(cookie) == CALL_RESETS_PRIMARY)
		id = primary_context(&who, call.arguments[0]);
	if (COOKIE_KIND(cookie) == CALL_RELEASES_PRIMARY) {
		id = release_primary(&who, call.arguments[0]);
		if (!id)
			return 0;
	}
	if (COOKIE_FLAGS(cookie) & FLAG_EXEC) {
		struct context_key key = { who.tgid, who.incarnation, out ? out : call.arguments[0] };
		id = call.start_ns;
		bpf_map_update_elem(&graphs, &key, &id, BPF_ANY);
	}
	e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e) {
		lose(LOSS_EVENTS_FULL);
		return 0;
	}
	fill_event(&e->event, &who, EVENT_CALL, COOKIE_FUNCTION(cookie), out, id, device_of(&who));
	__builtin_memcpy(e->arguments.values, call.arguments, sizeof(e->arguments.values));
	__builtin_memset(e->arguments.data, 0, sizeof(e->arguments.data));
	at = COOKIE_FLAGS(cookie) & FLAG_RESULT ? call.address : call.size;
	if (at && bpf_probe_read_user(e->arguments.data, RECORDED_BYTES, (void *)at))
		/* It may end before that: a quarter holds every structure's most important part. */
		bpf_probe_read_user(e->arguments.data, RECORDED_BYTES / 4, (void *)at);
	bpf_ringbuf_submit(e, 0);
	return 0;
}

#endif
