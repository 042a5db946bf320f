/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is kept of a call between its entry and its return, and what do the two count, whatever its shape? */
#ifndef OTEL_GPU_CALLS_BPF_H
#define OTEL_GPU_CALLS_BPF_H

#include "busy.bpf.h"
#include "capture.bpf.h"
#include "common.bpf.h"
#include "rows.bpf.h"

/* A call in flight, from its entry to its return. */
struct call_key {
	u64 pid_tgid;
	u64 function; /* calls of different functions may nest */
};

struct call {
	u64 start_ns;
	u64 size;
	u64 address; /* freed or registered pointer, or where the result will stand */
	u64 stream;
	u64 pitch_at; /* where the pitch will stand */
	struct thread_state thread;
	struct live freed;
	u64 arguments[RECORDED_ARGUMENTS];
	u8 host; /* enum host_memory */
	u8 kind;
};

/* Calls in flight. Sized for the threads of a node; a thread that dies inside a call leaves its entry behind,
 * which the agent removes with the process. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__type(key, struct call_key);
	__type(value, struct call);
} calls SEC(".maps");

/* The capture that a call with a stream parameter would be recorded by; 0 when it runs. */
static __always_inline u64 capturing_call(struct pt_regs *ctx, const struct caller *who, u64 cookie)
{
	u32 stream = COOKIE_STREAM(cookie);

	return captures && stream != ARGUMENT_NONE ? capturing_stream(who, argument(ctx, stream), COOKIE_FLAGS(cookie))
						   : 0;
}

/* A list in the target's memory that is walked, with bpf_loop: the agent leaves these programs out below 5.17. */
struct walk {
	struct pt_regs *ctx;
	struct caller who;
	u64 cookie;
	u64 at;
	u64 capture;
};

static __always_inline void count_error(const struct caller *who, u64 cookie, s32 code)
{
	struct row_key key;

	start_key(&key, who, FAMILY_ERROR, cookie);
	key.subject = (u32)code;
	count(&key, 0, 0);
}

static __always_inline void enter(struct pt_regs *ctx, const struct caller *who, u64 cookie, struct call *call)
{
	struct call_key key = { who->pid_tgid, COOKIE_FUNCTION(cookie) };

	call->start_ns = bpf_ktime_get_ns();
	if (bpf_map_update_elem(&calls, &key, call, BPF_ANY))
		lose(LOSS_CALLS_FULL);
}

/* Takes a call out of `calls`; false when its entry was not seen. */
static __always_inline int leave(const struct caller *who, u64 cookie, struct call *call)
{
	struct call_key key = { who->pid_tgid, COOKIE_FUNCTION(cookie) };
	struct call *found = bpf_map_lookup_elem(&calls, &key);

	if (!found)
		return 0;
	*call = *found;
	bpf_map_delete_elem(&calls, &key);
	return 1;
}

/* A call returns whose entry was seen; an error is counted. */
static __always_inline int returned(struct pt_regs *ctx, u64 cookie, struct caller *who, struct call *call)
{
	s32 code = RESULT(ctx);

	if (!identify(who) || !leave(who, cookie, call))
		return 0;
	if (code)
		count_error(who, cookie, code);
	return 1;
}

static __always_inline int succeeded(struct pt_regs *ctx, u64 cookie, struct caller *who, struct call *call)
{
	return returned(ctx, cookie, who, call) && !RESULT(ctx);
}

static __always_inline void count_wait(const struct caller *who, u64 cookie, u64 ns)
{
	struct row_key key;

	start_key(&key, who, FAMILY_WAIT, cookie);
	key.device = device_of(who);
	key.bucket_a = duration_bucket(ns);
	count(&key, ns, 0);
}

/* A call that puts work on the stream it names, or on the default one. */
static __always_inline void submit_call(struct pt_regs *ctx, const struct caller *who, u64 cookie)
{
	u32 stream = COOKIE_STREAM(cookie);

	submit(who, thread_of(who), stream == ARGUMENT_NONE ? 0 : argument(ctx, stream), cookie);
}

#endif
