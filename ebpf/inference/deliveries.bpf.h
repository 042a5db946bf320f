/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is the agent told of programs that work for the requests of others? */
#ifndef OTEL_GPU_INFERENCE_DELIVERIES_BPF_H
#define OTEL_GPU_INFERENCE_DELIVERIES_BPF_H

#include "inference/steps.bpf.h"

static const struct engine no_engine = {};

/* A function of its own, for its parameter's type to be told to the agent's tests. */
static __noinline int fill_engine_event(struct engine_event *e, const struct caller *who)
{
	if (!e || !who)
		return 0;
	__builtin_memset(e, 0, sizeof(*e));
	e->tgid = who->tgid;
	e->exec_id = who->exec_id;
	e->tid = who->pid_tgid;
	e->time_ns = bpf_ktime_get_ns();
	return 0;
}

static __always_inline void tell_engine(u32 kind, const struct caller *who, u64 request,
					const struct program_key *sender)
{
	struct engine_event *e = new_engine_event(1);

	if (!e) {
		lose(LOSS_REQUESTS_FULL);
		return;
	}
	fill_engine_event(e, who);
	e->kind = kind;
	e->request = request;
	e->sender = sender->tgid;
	e->sender_exec_id = sender->exec_id;
	bpf_ringbuf_submit(e, 0);
}

static __always_inline int is_engine(const struct caller *who)
{
	struct program_key program = { who->tgid, who->exec_id };
	struct engine *engine = bpf_map_lookup_elem(&engines, &program);

	return engine && engine->is_delivered;
}

/* The calling program, as one that others send messages to; NULL where there is no room. Where it was there before, and was not
 * quiet since, it may work for requests that nobody knows of: as if strangers had asked for it. */
static __always_inline struct engine *meet_receiver(const struct caller *who)
{
	struct program_key program = { who->tgid, who->exec_id };
	struct engine *engine = bpf_map_lookup_elem(&engines, &program);
	struct followed *f;
	u64 now;

	if (engine)
		return engine;
	if (!program_of(who))
		meet();
	if (!KEEP_IN(engines, TABLE_ENGINES, who, &program, &no_engine)) {
		lose(LOSS_REQUESTS_FULL);
		return NULL;
	}
	engine = bpf_map_lookup_elem(&engines, &program);
	f = bpf_map_lookup_elem(&followed, &who->tgid);
	now = bpf_ktime_get_ns();
	if (engine && f && f->exec_id == who->exec_id && may_have_requests(f, now) &&
	    CHANGES(&engine->cold_ns, 0, now)) {
		engine->stranger = STRANGERS;
		__sync_fetch_and_add(&engine->strangers, 1);
	}
	return engine;
}

/* The calling program, as one that works for the requests of others; NULL where there is no room. */
static __always_inline struct engine *meet_engine(const struct caller *who)
{
	struct engine *engine = meet_receiver(who);

	if (engine)
		engine->is_delivered = 1;
	return engine;
}

#endif
