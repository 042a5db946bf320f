/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* To whose account goes what a thread has just asked a device for? To the request's that own() names, or to nobody's. */
#ifndef OTEL_GPU_INFERENCE_CHARGES_BPF_H
#define OTEL_GPU_INFERENCE_CHARGES_BPF_H

#include "inference/owner.bpf.h"
#include "inference/steps.bpf.h"
#include "lib/atomics.bpf.h"

/* What was done: the family of a row, its kind, its function, and its sum. */
struct done {
	u32 family;
	u32 kind;
	u32 function;
	u64 amount;
};

static __always_inline void add_done(struct gpu_totals *totals, const struct done *d)
{
	u32 direction = d->kind - COPY_HOST_TO_DEVICE;

	switch (d->family) {
	case FAMILY_LAUNCH:
		__sync_fetch_and_add(&totals->launches, 1);
		break;
	case FAMILY_GRAPH_LAUNCH:
		__sync_fetch_and_add(&totals->graph_launches, 1);
		break;
	case FAMILY_COPY:
		if (direction < DIRECTIONS) {
			__sync_fetch_and_add(&totals->copies[direction], 1);
			__sync_fetch_and_add(&totals->copied_bytes[direction], d->amount);
		}
		break;
	case FAMILY_WAIT:
		__sync_fetch_and_add(&totals->synchronize_ns, d->amount);
		break;
	}
}

/* Totals that grow by others, or shrink. */
static __always_inline void add_totals(struct gpu_totals *to, const struct gpu_totals *from, u64 sign)
{
	const u64 *words = (const u64 *)from;
	u64 *sums = (u64 *)to;

#pragma unroll
	for (u32 i = 0; i < sizeof(*to) / sizeof(u64); i++)
		__sync_fetch_and_add(&sums[i], words[i] * sign);
}

static __always_inline struct gpu_totals *nobodys(u32 tgid, u32 exec_id, u32 reason)
{
	struct no_owner_key key = { .tgid = tgid, .exec_id = exec_id, .reason = reason };
	struct gpu_totals *totals = bpf_map_lookup_elem(&no_owners, &key);

	if (!totals) {
		if (bpf_map_update_elem(&no_owners, &key, &no_totals, BPF_NOEXIST))
			bpf_map_update_elem(&no_owners, &key, &no_totals, BPF_NOEXIST);
		totals = bpf_map_lookup_elem(&no_owners, &key);
	}
	if (!totals)
		lose(LOSS_REQUESTS_FULL);
	return totals;
}

static __always_inline struct gpu_work *next_work(struct request *r)
{
	u32 at = r->works;

	if (at >= REQUEST_WORKS) {
		__sync_fetch_and_add(&r->works_left_out, 1);
		return NULL;
	}
	r->works = at + 1;
	asm volatile("" : "+r"(at)); /* the verifier must see the mask */
	return &r->work[at & (REQUEST_WORKS - 1)];
}

#define SEVERAL_HOLDERS ~0U /* decided once nothing of the request is held any more */

/* A launch begins a batch, or joins it; a wait ends it. Threads that work for one request at once may get this a little
 * wrong, as no total does. */
static __always_inline void note_work(struct request *r, struct request_thread *t, const struct done *d, u32 holder,
				      u64 span)
{
	struct gpu_work *work;
	u64 now;

	if (d->family == FAMILY_LAUNCH || d->family == FAMILY_GRAPH_LAUNCH) {
		if (!r->batch_ns) {
			r->batch_ns = bpf_ktime_get_ns();
			r->batch_launches = r->batch_graphs = 0;
			r->batch_holder = holder;
			r->batch_span = span;
		}
		if (d->family == FAMILY_LAUNCH)
			__sync_fetch_and_add(&r->batch_launches, 1);
		else
			__sync_fetch_and_add(&r->batch_graphs, 1);
		/* What is decided waits for what is not: others came, or went, while the batch ran. */
		if (!r->batch_holder)
			r->batch_holder = holder;
		else if (holder && r->batch_holder != holder)
			r->batch_holder = SEVERAL_HOLDERS;
		if (r->batch_span != span)
			r->batch_span = 0;
	} else if (d->family == FAMILY_COPY) {
		if (t) {
			t->copied = d->kind;
			t->copied_bytes = d->amount;
		}
	} else {
		now = bpf_ktime_get_ns();
		if (r->batch_ns) {
			work = next_work(r);
			if (work)
				*work = (struct gpu_work){
					.kind = WORK_BATCH,
					.began_ns = r->batch_ns,
					.ended_ns = now,
					.launches = r->batch_launches,
					.graph_launches = r->batch_graphs,
					.holder = r->batch_holder,
					.span = r->batch_span,
				};
			r->batch_ns = 0;
		}
		work = next_work(r);
		if (work)
			*work = (struct gpu_work){
				.kind = WORK_WAIT,
				.began_ns = now - d->amount,
				.ended_ns = now,
				.function = d->function,
				.direction = t ? t->copied : 0,
				.bytes = t ? t->copied_bytes : 0,
				.holder = holder,
				.span = span,
			};
	}
}

/* Whether somebody says which span of the program's own is current. */
static __always_inline int has_own_spans(u32 tgid, u32 exec_id)
{
	return span_source_of(tgid, exec_id) || obi_contexts_now();
}

#define IS_HELD (1ULL << 63) /* no request has such a number */

/* Charges what the calling thread has just done to the request that it works for, or to nobody, and returns the request whose
 * piece of work that is, with IS_HELD where a context holds it: 0 for none, or where it is noted. `what` is the family, the
 * kind << 8 and the function << 16. */
RARE u64 charge(u64 program, u64 what, u64 amount)
{
	struct done d = { (u8)what, (u8)(what >> 8), (u16)(what >> 16), amount };
	struct owning o = { .reason = NO_OWNER_NOT_FOLLOWED };
	struct python_context *holder;
	struct gpu_totals *totals;
	struct followed *f;
	struct request *r;

	if (!follows_requests)
		return 0;
	f = caller_of(&o, program);
	if (f)
		own(&o, f);
	r = request_numbered(o.request);
	if (o.request && (!r || r->flags & REQUEST_CLOSED)) {
		r = NULL;
		o.reason = NO_OWNER_OUTLIVED;
	}
	/* While no other request goes on, what this one began can work for no other. */
	if (r && o.holder.number && is_alone(r, &o))
		o.holder.number = 0;
	holder = r && o.holder.number ? living(&o, &o.holder) : NULL;
	if (r && o.holder.number && !holder) {
		r = NULL;
		o.reason = NO_OWNER_UNDECIDED;
	}
	if (!r) {
		if (f)
			note_unowned_work(f);
		totals = NULL;
		if (o.reason == NO_OWNER_NO_REQUEST || o.reason == NO_OWNER_UNKNOWN_CONTEXT ||
		    o.reason == NO_OWNER_BATCH)
			totals = totals_of_step(&o, d.family, d.kind);
		if (o.reason == NO_OWNER_BATCH)
			o.reason = NO_OWNER_AMBIGUOUS;
		if (!totals)
			totals = nobodys(o.tgid, o.exec_id, o.reason);
		if (totals)
			add_done(totals, &d);
		return 0;
	}
	if (holder) {
		add_done(&holder->held, &d);
		add_done(&r->held, &d);
	} else {
		add_done(&r->owned, &d);
	}
	/* Spans that another program made itself are in the trace of who handed the request on, or in none of it. */
	if (!is_from_afar(r, &o) && has_own_spans(o.tgid, o.exec_id))
		return r->id | (holder ? IS_HELD : 0);
	note_work(r, request_thread_of(o.task, o.tgid, o.exec_id), &d, o.holder.number, 0);
	return 0;
}

/* Looks for the program's own span that is current while the calling thread works for a request: the request's first one
 * stays with it. Returns the span; 0 where there is none, or where it is in another trace than the first. Beside charge(),
 * not below it, as a stack has no room for both. */
RARE u64 meet_own_span(u64 program, u64 request)
{
	u32 tgid = program >> 32, exec_id = program, is_first;
	u64 task = bpf_get_current_task(), context;
	struct own_span own = {};
	struct request_thread *t;
	struct span_source *s;
	struct followed *f;
	struct request *r;

	if (!follows_requests)
		return 0;
	f = bpf_map_lookup_elem(&followed, &tgid);
	r = request_numbered(request);
	if (!f || !r)
		return 0;
	context = context_now(f);
	t = request_thread_of(task, tgid, exec_id);
	s = span_source_of(tgid, exec_id);
	if (!find_own_span(s, context, t && t->is_loop, &own) || own.flags & SPAN_REMOTE)
		return 0;
	is_first = !r->own_met && CHANGES(&r->own_met, 0, 1);
	if (!is_first && (r->own.trace[0] != own.trace[0] || r->own.trace[1] != own.trace[1]))
		return 0;
	if (own.span != r->kind_known_of) {
		if (s && own.says == SPAN_SAYS_PYTHON)
			python_kind(s, context, &own);
		r->kind_known_of = own.span;
		if (own.flags & SPAN_SERVER)
			r->server_span = own.span;
	}
	if (is_first)
		r->own = own;
	return own.span;
}

/* Notes the piece of work that charge() left, now that its span is known. Who holds it, if it is held, is found anew; whether
 * it is, is as charge() had it, since other requests may have begun or ended meanwhile. */
RARE int note_own_work(u64 program, u64 request, u64 what, u64 amount, u64 span)
{
	struct done d = { (u8)what, (u8)(what >> 8), (u16)(what >> 16), amount };
	struct python_context *c;
	struct request_thread *t;
	struct owning o = {};
	struct followed *f;
	struct request *r;

	if (!follows_requests)
		return 0;
	f = caller_of(&o, program);
	r = request_numbered(request & ~IS_HELD);
	if (!f || !r)
		return 0;
	t = request_thread_of(o.task, o.tgid, o.exec_id);
	if (request & IS_HELD) {
		c = telling_context(f, &o, t);
		if (c && c->kind == CONTEXT_FROZEN)
			hold_in_frozen(&o, c);
		else if (t)
			o.holder = t->holder;
	}
	note_work(r, t, &d, o.holder.number, span);
	return 0;
}

static __always_inline void charge_work(u64 program, u64 what, u64 amount)
{
	u64 request = charge(program, what, amount);

	if (request)
		note_own_work(program, request, what, amount, meet_own_span(program, request & ~IS_HELD));
}

#endif
