/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What does it say of a device that a call waited for it, or asked about it? */
#ifndef OTEL_GPU_CUDA_AWAITED_BPF_H
#define OTEL_GPU_CUDA_AWAITED_BPF_H

#include "abi/busy.h"
#include "abi/cookies.h"
#include "cuda/busy.bpf.h"
#include "cuda/recorded_events.bpf.h"

/* From the end of the awaited work to the return of a call, apart from the time that its thread waited for a CPU:
 * the way out of the driver with what interrupts it; and, of a thread that slept, the device's interrupt, a CPU's way
 * out of idleness and the wake-up. Virtual machines were seen to take 250 us. */
#define RETURN_NS 50000
#define WAKE_NS 300000

/* Busy without a break from `from` to `until`. */
static __noinline int known_busy(struct busy_key *key, u64 from, u64 until)
{
	struct busy *b;

	if (!key || until <= from || !claim(key))
		return 0;
	b = bpf_map_lookup_elem(&busy, key);
	if (b && b->open && b->clean_ns != HELD) {
		if (from < b->clean_ns)
			from = b->clean_ns;
		if (from < b->opened_ns)
			from = b->opened_ns;
		if (from < b->covered_ns)
			from = b->covered_ns;
		if (until > from) {
			b->lower_ns += until - from;
			b->covered_ns = until;
		}
	}
	unclaim(key);
	return 0;
}

/* Is all work done? `submissions` is their number before anything else was looked at. */
static __always_inline void try_idle(struct busy_key *key, struct busy *b, u64 submissions, u64 now)
{
	if (b->untracked_ns)
		return;
#pragma unroll
	for (u32 i = 0; i < BUSY_STREAMS; i++)
		if (b->streams[i].done != b->streams[i].last)
			return;
	if (!claim(key))
		return;
	/* A submission since then makes the numbers differ, and the gap void. */
	if (!b->idle_since_ns || b->idle_submissions != submissions) {
		b->idle_submissions = submissions;
		b->idle_since_ns = now;
		b->clean_ns = now;
	}
	b->open = 0;
	unclaim(key);
}

/* What a call waited for, or asked about. */
struct awaited {
	struct busy_key key;
	u64 stream;   /* WAIT_STREAM */
	u64 event;    /* WAIT_EVENT */
	u64 began_ns; /* the call's entry */
	u32 what;     /* enum wait_kind */
	u32 tid;
};

/* The work was unfinished at `until`. Since when was it there? A wait proves nothing of the time before it began: what
 * looked like waiting for the device may have been something else, and a small error would become a large one. */
static __noinline int seen_busy(struct awaited *a, u64 until, int was_asked)
{
	u64 from, submissions;
	struct recorded *r;
	struct busy *b;
	u32 place;

	if (!a)
		return 0;
	from = a->began_ns;
	if (a->what == WAIT_EVENT) {
		r = find_recorded(&a->key, a->event);
		if (!r || r->at_ns >= from)
			return 0;
		a->key.device = r->device;
		if (was_asked)
			from = r->at_ns;
	}
	b = bpf_map_lookup_elem(&busy, &a->key);
	if (!b || !b->open)
		return 0;
	if (a->what == WAIT_STREAM && a->stream != LEGACY_STREAM) {
		place = place_of(b, a->stream);
		if (place == BUSY_STREAMS || at_place(b, place)->done == at_place(b, place)->last)
			return 0; /* whatever it was, it was not work that we know of */
	}
	submissions = *(volatile u64 *)&b->submissions;
	if (b->seen_submissions != submissions) {
		/* In this order: with the number goes a time that is no older. */
		*(volatile u64 *)&b->seen_ns = bpf_ktime_get_ns();
		*(volatile u64 *)&b->seen_submissions = submissions;
	} else if (was_asked && b->seen_ns < from) {
		from = b->seen_ns; /* nothing was submitted since then */
	}
	known_busy(&a->key, from, until);
	return 0;
}

/* The work is done, as a call that returns now has told. */
static __noinline int seen_done(struct awaited *a, u64 now)
{
	u64 submissions;
	struct recorded *r;
	struct busy *b;
	u64 last = 0, stream;
	u32 place;

	if (!a)
		return 0;
	stream = a->stream;
	if (a->what == WAIT_EVENT) {
		r = find_recorded(&a->key, a->event);
		if (!r || !r->last || r->at_ns >= a->began_ns ||
		    (r->tid != a->tid && r->at_ns + RETURNED_NS >= a->began_ns))
			return 0;
		last = r->last;
		stream = r->stream;
		a->key.device = r->device;
		a->began_ns = r->at_ns;
	}
	b = bpf_map_lookup_elem(&busy, &a->key);
	if (!b)
		return 0;
	if (b->tid && b->tid != a->tid)
		share(b);
	submissions = *(volatile u64 *)&b->submissions;
	if (a->what == WAIT_CONTEXT) {
		if (b->mixed)
			return 0;
		for (place = 0; place < BUSY_STREAMS; place++) {
			last = settled(at_place(b, place), a->tid, a->began_ns);
			if (last)
				finish(b, place, last, a->began_ns);
		}
		if (b->untracked_ns + RETURNED_NS < a->began_ns)
			b->untracked_ns = 0;
	} else {
		place = place_of(b, stream);
		if (place == BUSY_STREAMS)
			return 0;
		if (a->what == WAIT_STREAM)
			last = settled(at_place(b, place), a->tid, a->began_ns);
		else if (at_place(b, place)->last != last)
			last = 0;
		if (last)
			finish(b, place, last, a->began_ns);
	}
	try_idle(&a->key, b, submissions, now);
	return 0;
}

static __always_inline void read_thread_state(struct thread_state *state)
{
	struct task_struct *task = (void *)bpf_get_current_task();

	if (bpf_core_field_exists(task->sched_info.run_delay)) {
		state->delay_ns = BPF_CORE_READ(task, sched_info.run_delay);
		state->arrivals = BPF_CORE_READ(task, sched_info.pcount);
	}
	state->sleeps = BPF_CORE_READ(task, nvcsw);
	state->faults = BPF_CORE_READ(task, min_flt) + BPF_CORE_READ(task, maj_flt);
}

/* A call that began at a->began_ns returns now: how much of that did it wait for the device? */
static __always_inline void waited(struct awaited *a, const struct thread_state *before, u64 now)
{
	struct thread_state after = {};
	u64 late;

	read_thread_state(&after);
	/* A thread that may have waited for memory, or for a CPU on a kernel that does not tell, proves nothing. */
	if (!after.arrivals || after.faults != before->faults)
		return;
	late = after.delay_ns - before->delay_ns + (after.sleeps == before->sleeps ? RETURN_NS : WAKE_NS);
	if (now - a->began_ns > late)
		seen_busy(a, now - late, 0);
}

#endif
