/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is kept of a call between its entry and its return, and what do the two count, whatever its shape? */
#ifndef OTEL_GPU_CUDA_CALLS_BPF_H
#define OTEL_GPU_CUDA_CALLS_BPF_H

#include "abi/cookies.h"
#include "abi/programs.h"
#include "abi/rows.h"
#include "cuda/capture.bpf.h"
#include "cuda/rows.bpf.h"
#include "cuda/submissions.bpf.h"
#include "lib/calls.bpf.h"

/* Remembers that a call has begun, for its return. NULL when nothing can be remembered. */
static __always_inline struct call *enter(const struct caller *who, u64 cookie)
{
	struct thread *t = meet_thread(who);
	u32 number = CALL_NUMBER(cookie);
	struct call *call;

	if (!t) {
		lose(LOSS_CALLS_FULL);
		return NULL;
	}
	call = ROOM_FOR_CALL(t->calls, number);
	call->function = number;
	call->start_ns = bpf_ktime_get_ns();
	call->address = call->size = call->stream = 0;
	call->host = call->kind = 0;
	call->device = DEVICE_UNKNOWN;
	return call;
}

/* A call of the process that runs has begun. NULL when nothing can be remembered, or the process is not to be observed. */
static __always_inline struct call *call_begun(struct caller *who, u64 cookie)
{
	return identify(who) ? enter(who, cookie) : NULL;
}

/* A thread's call returns: what its entry remembered, to be used at once; NULL when that was not seen. */
static __always_inline struct call *leave(struct thread *t, u64 cookie)
{
	struct call *call = t ? FIND_CALL(t->calls, cookie) : NULL;

	if (call)
		call->function = 0;
	return call;
}

/* The capture that a call with a stream parameter would be recorded by; 0 when it runs. */
static __always_inline u64 capturing_call(struct pt_regs *ctx, const struct caller *who, u64 cookie)
{
	u32 stream = COOKIE_STREAM(cookie);

	if (stream == ARGUMENT_NONE || !may_capture(who))
		return 0;
	return capturing_stream(who, argument(ctx, stream), COOKIE_FLAGS(cookie));
}

/* A list in the target's memory that is walked, with bpf_loop: the agent leaves these programs out below 5.17. */
struct walk {
	struct pt_regs *ctx;
	struct caller who;
	u64 cookie;
	u64 at;
	u64 from, to; /* lists beside it, of batched copies */
	u64 capture;
};

static __always_inline void count_error(const struct caller *who, u64 cookie, s32 code)
{
	struct row_key key;

	start_key(&key, who, FAMILY_ERROR, cookie);
	key.subject = (u32)code < ERROR_CODES ? (u32)code : 0;
	count(&key, 0, 0);
}

/* A call returns whose entry was seen, and which its thread has left. */
struct returning {
	struct caller who;
	struct thread *thread;
	struct call *call; /* to be read before the thread enters another one */
};

static __always_inline int comes_back(u64 cookie, struct returning *back)
{
	back->call = NULL;
	if (!identify(&back->who))
		return 0;
	back->thread = thread_of(&back->who);
	back->call = leave(back->thread, cookie);
	return back->call != NULL;
}

/* The same; an error is counted. */
static __always_inline int returned(struct pt_regs *ctx, u64 cookie, struct returning *back)
{
	s32 code = RESULT(ctx);

	if (!comes_back(cookie, back))
		return 0;
	if (code)
		count_error(&back->who, cookie, code);
	return 1;
}

static __always_inline int succeeded(struct pt_regs *ctx, u64 cookie, struct returning *back)
{
	return returned(ctx, cookie, back) && !RESULT(ctx);
}

static __always_inline void count_wait(const struct returning *back, u64 cookie, u64 ns)
{
	struct row_key key;

	start_key(&key, &back->who, FAMILY_WAIT, cookie);
	key.device = device_of_thread(back->thread);
	key.bucket_a = duration_bucket(ns);
	count_owned(&key, ns, 0);
}

/* A call that puts work on the stream it names, or on the default one. */
static __always_inline void submit_call(struct pt_regs *ctx, const struct caller *who, const struct thread *t,
					u64 cookie)
{
	u32 stream = COOKIE_STREAM(cookie);

	submit(who, t, stream == ARGUMENT_NONE ? 0 : argument(ctx, stream), cookie);
}

#endif
