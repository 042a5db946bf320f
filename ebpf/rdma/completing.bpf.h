/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which work request is over, and how long did it take? A window of time begins with a queue pair of which some work is under
 * way that nobody saw being completed: what a completion is of is known again only once its number can mean one work request
 * alone. */
#ifndef OTEL_GPU_RDMA_COMPLETING_BPF_H
#define OTEL_GPU_RDMA_COMPLETING_BPF_H

#include "lib/buckets.bpf.h"
#include "rdma/calls.bpf.h"

#define ESTABLISHED 16 /* so often was a number not given again before its work was over */

struct match {
	struct work_ring *ring;
	u64 wr_id;
	u64 from;
	u64 end;
	u64 first;
	u64 last;
	u32 found;
	u32 any; /* failed work has a completion in any case */
};

ROUND(look_at_posted)(u32 i, struct match *m)
{
	u64 at = m->from + i;
	struct posted *slot;

	if (at >= m->end)
		return 1;
	slot = &m->ring->posted[at & (RING - 1)];
	if (slot->wr_id != m->wr_id || !(m->any || slot->when & POSTED_SIGNALED))
		return 0;
	if (!m->found++)
		m->first = at;
	m->last = at;
	return 0;
}

/* Finds the work request that a completion is of, and says by which sight: 0 where that is not known. */
static __always_inline u32 find_posted(struct queue_pair *pair, struct match *m, u64 *at, u32 *why)
{
	u64 depth = pair->depth ? pair->depth : RING;
	u64 known = m->end - pair->base < RING ? m->end - pair->base : RING;

	m->from = m->end - known;
	if (pair->is_followed) {
		if (pair->tail >= m->from) {
			m->from = pair->tail;
		} else {
			pair->is_followed = 0; /* it went round */
			*why = RDMA_UNMATCHED_DEEP;
		}
	}
	if (!pair->is_followed && known > depth)
		m->from = m->end - depth;
	REPEAT(RING, look_at_posted, m);
	*at = m->first;
	if (pair->is_followed) {
		if (m->found > 1)
			pair->reuses = 1;
		return m->found > 0;
	}
	if (!m->found)
		return 0;
	/* What was under way before may have the same number, as long as less was posted since than there may be. */
	if (!pair->from_start && known < RING)
		return 0;
	if (m->found == 1 && (depth <= RING || m->end < RING)) {
		pair->is_followed = 1;
		return 1;
	}
	*at = m->last;
	if (pair->reuses || pair->matches < ESTABLISHED) {
		*why = RDMA_UNMATCHED_AMBIGUOUS;
		return 0;
	}
	pair->is_followed = 1;
	return 1;
}

struct poll {
	struct caller who;
	u64 context;
	u64 queue;
	u64 wc;
	u64 now;
	u32 found;
	u32 window;
	u32 unread;
};

/* The ring has the time without its lowest bits. */
static __always_inline u64 since(u64 now, u64 then)
{
	return now > then ? now - then : 0;
}

static __noinline int complete(struct poll *p, struct queue_pair *pair, const struct verbs_wc *wc)
{
	struct match m = { .ring = ring_of(pair), .wr_id = wc->wr_id, .end = pair->posted, .any = wc->status != 0 };
	u32 why = RDMA_UNMATCHED_BEFORE;
	u64 at = 0, when, began;
	struct posted *slot;

	if (!m.ring) {
		ADD_ROW(&p->who, pair->id, RDMA_ROW_UNMATCHED, 0, RDMA_UNMATCHED_DEEP, 0);
		return 0;
	}
	if (pair->window != p->window || pair->unread != p->unread) {
		pair->window = p->window;
		pair->unread = p->unread;
		pair->is_followed = 0;
		pair->last_done_ns = 0;
	}
	if (!find_posted(pair, &m, &at, &why)) {
		ADD_ROW(&p->who, pair->id, RDMA_ROW_UNMATCHED, 0, why, 0);
		return 0;
	}
	slot = &m.ring->posted[at & (RING - 1)];
	when = slot->when & ~POSTED_BITS;
	pair->tail = at + 1;
	pair->matches++;
	if (!wc->status) {
		u8 operation = slot->when & (RDMA_OPERATIONS - 1);
		u64 latency = since(p->now, when);

		ADD_ROW(&p->who, pair->id, RDMA_ROW_LATENCY, operation, duration_bucket(latency), latency);
		began = when > pair->last_done_ns ? when : pair->last_done_ns;
		latency = since(p->now, began);
		ADD_ROW(&p->who, pair->id, RDMA_ROW_SERVICE, operation, duration_bucket(latency), latency);
	}
	pair->last_done_ns = p->now;
	return 0;
}

enum side {
	SIDE_SEND,
	SIDE_RECEIVE,
	SIDE_UNKNOWN, /* the program did not read it */
};

/* A completion whose queue pair is known. Of one that failed its opcode says nothing. */
static __noinline int take_completion(struct poll *p, struct queue_pair *pair, const struct verbs_wc *wc, u32 side)
{
	if (wc->status) {
		ADD_ROW(&p->who, pair->id, RDMA_ROW_ERROR, 0, wc->status < 255 ? wc->status : 255, 0);
		pair->state = QP_ERROR;
		/* Which side failed its opcode does not say. */
		if (p->queue == pair->receive_queue && p->queue != pair->send_queue)
			return 0;
	} else if (side == SIDE_RECEIVE) {
		ADD_ROW(&p->who, pair->id, RDMA_ROW_RECEIVED, wc->opcode & 1, 0, wc->byte_len);
		return 0;
	}
	return complete(p, pair, wc);
}

/* May the program be looked at asking for completions once more? Its window, or NULL. */
static __noinline struct poll_window *may_look(const struct caller *who)
{
	struct poll_window *window = window_of(who);
	struct verbs_program *program;
	struct verbs_event *event;
	u64 now;

	if (!window || !window->is_open)
		return NULL;
	program = verbs_of(who);
	if (!program)
		return NULL;
	now = bpf_ktime_get_ns();
	if (now - program->second_ns >= 1000000000) {
		program->second_ns = now;
		program->in_second = 0;
	}
	__sync_fetch_and_add(&program->polls, 1);
	if (++program->in_second <= window->most)
		return window;
	if (program->window == window->number)
		return NULL;
	program->window = window->number;
	event = event_of(who, program, VERBS_POLLED);
	if (event) {
		program->told--;
		bpf_ringbuf_submit(event, BPF_RB_FORCE_WAKEUP);
	}
	window->is_open = 0;
	return NULL;
}

static __always_inline u32 unread_of(const struct caller *who)
{
	struct verbs_program *program = verbs_of(who);

	return program ? program->unread : 0;
}

#endif
