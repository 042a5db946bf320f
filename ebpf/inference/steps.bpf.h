/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which step does the work of a batched engine belong to? An engine works for the requests of other programs, for many at
 * once: its launches are no single request's. A thread's step goes from its first launch, or copy to the device, to the last
 * that the host waited for before the next first one. */
#ifndef OTEL_GPU_INFERENCE_STEPS_BPF_H
#define OTEL_GPU_INFERENCE_STEPS_BPF_H

#include "abi/engines.h"
#include "abi/programs.h"
#include "abi/rows.h"
#include "inference/owner.bpf.h"
#include "lib/atomics.bpf.h"

/* Programs that messages were delivered to. Their entries are made by deliveries.bpf.h. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, struct program_key);
	__type(value, struct engine);
} engines SEC(".maps");

/* What happens in engines, in its order: room for 7,700 deliveries, or half as many steps. Read by the agent. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} engine_events SEC(".maps");

/* Threads of engines, by caller.task, and the step that each is in. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, u64);
	__type(value, struct step);
} steps SEC(".maps");

static const struct step no_step = {};

/* Steps get half of the ring: what they are linked to has the rest. */
static __always_inline struct engine_event *new_engine_event(u32 parts)
{
	if (bpf_ringbuf_query(&engine_events, BPF_RB_AVAIL_DATA) >
	    bpf_ringbuf_query(&engine_events, BPF_RB_RING_SIZE) / parts)
		return NULL;
	return bpf_ringbuf_reserve(&engine_events, sizeof(struct engine_event), 0);
}

static __always_inline int step_changes(struct step *s, u32 from, u32 to)
{
	return CHANGES(&s->state, from, to);
}

/* Tells a step that was taken. Where there is no room it goes on, with what comes next. */
static __always_inline int tell_step(struct step *s, u64 ended_ns)
{
	struct engine_event *e = new_engine_event(2);
	u64 *sums = (u64 *)&s->totals, sum;

	if (!e) {
		s->state = STEP_GOES_ON;
		return 0;
	}
	e->kind = s->is_unclear ? ENGINE_UNCLEAR_STEP : ENGINE_STEP;
	s->is_unclear = 0;
	e->tgid = s->tgid;
	e->exec_id = s->exec_id;
	e->tid = s->tid;
	e->time_ns = ended_ns;
	e->request = 0;
	e->sender = e->sender_exec_id = 0;
	e->began_ns = s->began_ns;
	e->last_ns = s->last_ns;
	/* What its thread adds meanwhile stays. */
#pragma unroll
	for (u32 i = 0; i < sizeof(s->totals) / sizeof(u64); i++) {
		sum = *(volatile u64 *)&sums[i];
		((u64 *)&e->totals)[i] = sum;
		__sync_fetch_and_add(&sums[i], -sum);
	}
	bpf_ringbuf_submit(e, 0);
	s->state = STEP_NONE;
	return 1;
}

static __always_inline struct step *step_of_thread(u64 task, u32 tgid, u32 exec_id)
{
	struct step *s = bpf_map_lookup_elem(&steps, &task);

	return s && s->tgid == tgid && s->exec_id == exec_id ? s : NULL;
}

static __always_inline struct step *new_step(u64 task, u32 tgid, u32 exec_id)
{
	struct step *s;

	if (!put_in(&steps, TABLE_STEPS, tgid, exec_id, &task, &no_step)) {
		lose(LOSS_REQUESTS_FULL);
		return NULL;
	}
	s = bpf_map_lookup_elem(&steps, &task);
	if (s) {
		s->tgid = tgid;
		s->exec_id = exec_id;
		s->tid = bpf_get_current_pid_tgid();
	}
	return s;
}

/* Where what the calling thread has just done is added: to its step, where its program is an engine. NULL where it is none, and
 * for what no step has begun. Of programs that get requests on plain channels alone, threads that have read them have steps. */
static __always_inline struct gpu_totals *totals_of_step(const struct owning *o, u32 family, u32 kind)
{
	int begins = family == FAMILY_LAUNCH || family == FAMILY_GRAPH_LAUNCH ||
		     (family == FAMILY_COPY && kind == COPY_HOST_TO_DEVICE);
	struct program_key program = { o->tgid, o->exec_id };
	struct engine *engine = bpf_map_lookup_elem(&engines, &program);
	struct step *s;

	if (engine && begins)
		engine->worked_ns = bpf_ktime_get_ns();
	if (!engine || !engine->is_delivered || (o->reason != NO_OWNER_BATCH && !engine->is_sent_messages))
		return NULL;
	s = step_of_thread(o->task, o->tgid, o->exec_id);
	if (!begins)
		return s && s->state ? &s->totals : NULL;
	if (!s)
		s = new_step(o->task, o->tgid, o->exec_id);
	if (!s)
		return NULL;
	if (step_changes(s, STEP_SEEN, STEP_TAKEN))
		tell_step(s, s->seen_ns);
	if (o->is_unclear || engine->strangers != engine->left)
		s->is_unclear = 1;
	s->last_ns = bpf_ktime_get_ns();
	if (s->state == STEP_NONE) {
		s->began_ns = s->last_ns;
		s->state = STEP_GOES_ON;
	}
	return &s->totals;
}

/* The calling thread has seen the device done. */
RARE int step_seen(u64 program)
{
	struct step *s = step_of_thread(bpf_get_current_task(), program >> 32, program);

	if (!s || !s->state)
		return 0;
	s->seen_ns = bpf_ktime_get_ns();
	step_changes(s, STEP_GOES_ON, STEP_SEEN);
	return 0;
}

#endif
