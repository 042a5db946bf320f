/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which request owns the GPU's work that this thread is doing now? By the context it is in, where a CPython has one for each
 * task, else by the thread. What cannot be known is nobody's, and the reason is counted. */
#ifndef OTEL_GPU_INFERENCE_OWNER_BPF_H
#define OTEL_GPU_INFERENCE_OWNER_BPF_H

#include "inference/own_spans.bpf.h"
#include "inference/python_frames.bpf.h"

/* Set before loading: 0 leaves out all that is here. */
const volatile u8 follows_requests = 0;

/* Whose the work is, is told by its step: never counted by itself. */
#define NO_OWNER_BATCH NO_OWNER_COUNT

/* A thread, and whose work it does. */
struct owning {
	u32 tgid;
	u32 exec_id;
	u64 task;
	u64 context;
	u64 request;	/* 0: nobody's, */
	u32 reason;	/* enum no_owner: why */
	u32 is_unclear; /* of a step: it may be for somebody else as well */
	struct holder holder;
};

/* What is known of a context; NULL where it says nothing. From 3.14 on threads run in a context of their own, which outlives
 * all requests in the threads of pools: it says nothing. */
static __always_inline struct python_context *telling_context(const struct followed *f, const struct owning *o,
							      const struct request_thread *t)
{
	struct python_context *c = python_context_at(o->tgid, o->exec_id, o->context);

	if (!c || !f->threads_have_contexts || (t && t->is_loop))
		return c;
	return context_before(o->context) ? c : NULL;
}

/* The holder, if it still lives. */
static __always_inline struct python_context *living(const struct owning *o, const struct holder *holder)
{
	struct python_context *c = holder->number ? python_context_at(o->tgid, o->exec_id, holder->context) : NULL;

	return c && c->number == holder->number ? c : NULL;
}

/* Who holds what a context does that works for one request. */
static __always_inline void hold_in_frozen(struct owning *o, const struct python_context *c)
{
	if (c->flags & CONTEXT_ROOT)
		return;
	o->holder = c->holder;
	if (!living(o, &o->holder)) {
		o->holder.context = o->context;
		o->holder.number = c->number;
	}
}

static __always_inline void owned_by_frozen(struct owning *o, const struct python_context *c)
{
	struct request *r = request_numbered(c->request);

	if (!r || (r->ended_ns && !(c->flags & CONTEXT_ROOT))) {
		o->reason = NO_OWNER_OUTLIVED;
		return;
	}
	o->request = c->request;
	hold_in_frozen(o, c);
}

/* Whose request was handed on to this program on a channel, until it is answered. Several at once are a batch. */
static __always_inline void owned_by_channel(struct owning *o, const struct connection *connection)
{
	struct request *r = request_numbered(connection->request);

	if (connection->flags & CONNECTION_BATCH)
		o->reason = NO_OWNER_BATCH;
	else if (!connection->request)
		o->reason = connection->flags & CONNECTION_UNCLEAR ? NO_OWNER_AMBIGUOUS : NO_OWNER_IDLE;
	else if (!r || r->ended_ns)
		o->reason = NO_OWNER_OUTLIVED;
	else
		o->request = connection->request;
}

static __always_inline void owned_by_connection(struct owning *o, const struct python_context *c)
{
	struct connection *connection = connection_of(&c->connection);

	if (connection && connection->flags & CONNECTION_CHANNEL)
		owned_by_channel(o, connection);
	else if (!connection || !connection->request)
		o->reason = NO_OWNER_IDLE;
	else if (connection->flags & CONNECTION_AMBIGUOUS)
		o->reason = NO_OWNER_AMBIGUOUS;
	else
		o->request = connection->request;
}

static __always_inline void owned_by_thread(struct owning *o, const struct followed *f, const struct python_context *c,
					    const struct request_thread *t)
{
	struct connection *connection;
	struct request *r;
	int is_told;

	o->reason = c ? NO_OWNER_SHARED : NO_OWNER_NO_REQUEST;
	if (t && t->is_batch)
		o->reason = NO_OWNER_BATCH;
	if (!t || t->is_batch || !t->request)
		return;
	/* Who has read a request may work for another one by now. */
	if (f->has_loops && !f->context_offset) {
		o->reason = NO_OWNER_SHARED;
		return;
	}
	/* Outside of contexts: in none, or in the thread's own, which is never entered or has none before it. In the context
	 * that uvloop runs every connection's callbacks in, it counts where the bytes were read right before. */
	if (c && c->kind == CONTEXT_SERVER)
		is_told = t->why == CLAIM_READ && context_before(o->context) == t->context;
	else
		is_told = !t->is_loop && (!is_entered(o->context) || !context_before(o->context));
	if (!is_told) {
		if (!c)
			o->reason = NO_OWNER_UNKNOWN_CONTEXT;
		return;
	}
	if (t->why == CLAIM_CHANNEL) {
		connection = connection_of(&t->connection);
		o->reason = NO_OWNER_IDLE;
		if (connection && connection->request == t->request)
			owned_by_channel(o, connection);
		return;
	}
	r = request_numbered(t->request);
	if (!r || (t->why == CLAIM_READ && r->flags & REQUEST_GONE) || (t->why != CLAIM_READ && r->ended_ns)) {
		o->reason = NO_OWNER_OUTLIVED;
		return;
	}
	o->request = t->request;
	if (t->why != CLAIM_READ)
		o->holder = t->holder;
}

/* Whether the thread is in the call still: what left it unseen, as a jump may, has left its place on the stack too. */
static __always_inline int is_called(const struct callback_frame *c)
{
	struct pt_regs *regs = (void *)bpf_task_pt_regs(bpf_get_current_task_btf());

#if defined(__TARGET_ARCH_x86)
	return regs->sp < c->stack && read_word(c->stack) == c->returns_to;
#else
	return regs->sp < c->stack;
#endif
}

static __always_inline void owned_by_callback(struct owning *o, u64 request)
{
	struct request *r = request_numbered(request);

	if (!request)
		o->reason = NO_OWNER_FULL;
	else if (!r || r->ended_ns)
		o->reason = NO_OWNER_OUTLIVED;
	else
		o->request = request;
}

/* Where `callback` is what the thread's frames say. */
RARE_OF_POINTERS int own_beside(struct owning *o, const struct followed *f, u64 callback)
{
	struct request_thread *t;
	struct python_context *c;

	if (!o || !f)
		return 0;
	t = request_thread_of(o->task, o->tgid, o->exec_id);
	c = telling_context(f, o, t);
	o->request = 0;
	o->is_unclear = t && t->strangers;
	o->holder.context = o->holder.number = 0;
	if (t && t->callback.stack && is_called(&t->callback))
		owned_by_callback(o, t->callback.request);
	else if (callback != NO_CALLBACK)
		owned_by_callback(o, callback);
	else if (c && c->kind == CONTEXT_FROZEN)
		owned_by_frozen(o, c);
	else if (c && c->kind == CONTEXT_CONNECTION)
		owned_by_connection(o, c);
	else if (c && c->kind == CONTEXT_NONE)
		o->reason = NO_OWNER_NO_REQUEST;
	else
		owned_by_thread(o, f, c, t);
	return 0;
}

/* The one question. */
static __always_inline void own(struct owning *o, const struct followed *f)
{
	own_beside(o, f, f->frame_previous ? request_of_frames(o->tgid) : NO_CALLBACK);
}

/* Whether the request is served by another program, which has handed it on. */
static __always_inline int is_from_afar(const struct request *r, const struct owning *o)
{
	return r->tgid != o->tgid || r->exec_id != o->exec_id;
}

static __always_inline int is_alone(const struct request *r, const struct owning *o)
{
	u64 *count = going_on_of(r->tgid, r->exec_id);

	return !r->ended_ns && count && *count == 1 && !is_from_afar(r, o);
}

#define QUIET_NS 1000000000ULL /* who has done nothing for so long has answered what he was asked before */

/* Whether a program may still work for requests that it got before it was followed. */
static __always_inline int may_have_requests(const struct followed *f, u64 now)
{
	return f->was_there && (now < f->trusted_ns || now - f->worked_ns < QUIET_NS);
}

/* A program has done something for the GPU that is no request's. */
static __always_inline void note_unowned_work(struct followed *f)
{
	u64 now;

	if (!f->was_there)
		return;
	now = bpf_ktime_get_ns();
	if (may_have_requests(f, now))
		f->worked_ns = now;
	else
		f->was_there = 0;
}

/* The calling thread, as own() is asked about it; NULL where its program's requests are not followed. */
static __always_inline struct followed *caller_of(struct owning *o, u64 program)
{
	struct followed *f;

	o->tgid = program >> 32;
	o->exec_id = program;
	o->task = bpf_get_current_task();
	f = bpf_map_lookup_elem(&followed, &o->tgid);
	if (!f || f->exec_id != o->exec_id)
		return NULL;
	o->context = context_now(f);
	return f;
}

#endif
