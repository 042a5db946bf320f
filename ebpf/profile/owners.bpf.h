/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* For which request, and in which span of the program's own, does the thread work whose stack is taken? What cannot be known
 * is left out. */
#ifndef OTEL_GPU_PROFILE_OWNERS_BPF_H
#define OTEL_GPU_PROFILE_OWNERS_BPF_H

#include "abi/samples.h"
#include "abi/stacks.h"
#include "inference/owner.bpf.h"

/* Whether a request that is answered still owns what its thread does: as with what is charged, but for mere time, which passes
 * while the thread waits for the next one. */
static __always_inline int still_owns(const struct request *r, u32 type)
{
	if (r->flags & REQUEST_CLOSED)
		return 0;
	return !r->ended_ns || (type != SAMPLE_CPU && type != SAMPLE_OFF_CPU);
}

/* Who holds it decides later. */
RARE int note_request(struct sample_owner *to, u64 program, u32 type)
{
	struct python_context *holder;
	struct owning o = {};
	struct followed *f;
	struct request *r;

	if (!follows_requests || !to)
		return 0;
	f = caller_of(&o, program);
	if (!f)
		return 0;
	own(&o, f);
	r = request_numbered(o.request);
	if (!r || !still_owns(r, type))
		return 0;
	if (o.holder.number && !is_alone(r, &o)) {
		holder = living(&o, &o.holder);
		if (!holder)
			return 0;
		holder->has_stacks = 1;
		to->holder = o.holder.number;
	}
	to->request = o.request;
	r->stacks = 1;
	return 0;
}

/* The program's own span goes before the request's. One that is not recorded leads nowhere. */
RARE int note_own_span(struct sample_owner *to, u64 program)
{
	u32 tgid = program >> 32, exec_id = program, is_shared;
	struct own_span own = {};
	struct request_thread *t;
	struct span_source *s;
	struct followed *f;

	if (!follows_requests || !to)
		return 0;
	f = bpf_map_lookup_elem(&followed, &tgid);
	s = span_source_of(tgid, exec_id);
	if (!f || f->exec_id != exec_id || (!s && !obi_contexts_now()))
		return 0;
	t = request_thread_of(bpf_get_current_task(), tgid, exec_id);
	is_shared = !to->request || (t && t->is_loop);
	if (!find_own_span(s, context_now(f), is_shared, &own) || own.flags & SPAN_REMOTE)
		return 0;
	if (own.flags & SPAN_KNOWS_FLAGS && !(own.trace_flags & 1)) {
		to->request = 0;
		return 0;
	}
	to->trace[0] = own.trace[0];
	to->trace[1] = own.trace[1];
	to->span = own.span;
	return 0;
}

/* `latest` is what of the sample's value is the work that the thread does now. */
static __always_inline void note_owner(struct stack_sample *s, u64 latest)
{
	u64 program = (u64)s->tgid << 32 | s->exec_id;

	s->latest = latest;
	/* The time of devices is split by estimate, and what waits for a backward pass is counted elsewhere. */
	if (s->type == SAMPLE_SUBMISSION || s->type == SAMPLE_BACKWARD)
		return;
	note_request(&s->owner, program, s->type);
	note_own_span(&s->owner, program);
}

#endif
