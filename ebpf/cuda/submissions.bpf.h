/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Work is given to a device, or made to wait for something else: what does that say of its busy time? */
#ifndef OTEL_GPU_CUDA_SUBMISSIONS_BPF_H
#define OTEL_GPU_CUDA_SUBMISSIONS_BPF_H

#include "abi/busy.h"
#include "abi/cookies.h"
#include "abi/programs.h"
#include "cuda/busy.bpf.h"
#include "cuda/busy_periods.bpf.h"

/* Work is about to be given to a stream. */
static __always_inline void submit(const struct caller *who, const struct thread *t, u64 stream, u64 cookie)
{
	u32 tid = who->pid_tgid, place;
	u64 now = 0, context;
	struct busy_stream *s;
	struct busy_key key;
	struct busy *b;

	if (!is_followed(cookie))
		return;
	context = context_of_thread(t);
	busy_key_of(&key, who, device_of_thread(t));
	stream = normal_stream(who, stream, COOKIE_FLAGS(cookie));
	b = bpf_map_lookup_elem(&busy, &key);
	if (!b) {
		if (!first_submission(key.device, context))
			return;
		b = bpf_map_lookup_elem(&busy, &key);
		if (!b)
			return;
	}
	if (b->context != context)
		b->mixed = 1;
	if (b->tid != tid)
		now = share(b);
	place = place_of(b, stream);
	if (place == BUSY_STREAMS)
		place = take_place(key.device, stream);
	if (place < BUSY_STREAMS) {
		s = at_place(b, place);
		if (s->tid != tid) {
			s->foreign_ns = s->last_ns;
			s->tid = tid;
		}
		if (now) {
			s->last_ns = now;
			__sync_fetch_and_add(&s->last, 1);
		} else {
			(*(volatile u64 *)&s->last)++;
		}
	} else {
		b->untracked_ns = bpf_ktime_get_ns();
	}
	/* After the number in its stream, which an observer of this one must find there. */
	if (now)
		__sync_fetch_and_add(&b->submissions, 1);
	else
		(*(volatile u64 *)&b->submissions)++;
	if (!b->open)
		begin_work(key.device);
}

/* Work will wait for something that is none of the device's: until it is idle, nothing tells that it is busy. */
static __always_inline void hold(const struct caller *who, const struct thread *t)
{
	struct busy_key key;
	struct busy *b;

	meet();
	busy_key_of(&key, who, device_of_thread(t));
	first_submission(key.device, context_of_thread(t));
	b = bpf_map_lookup_elem(&busy, &key);
	if (b)
		b->clean_ns = HELD;
}

/* Some graph of the process does so whenever it is launched. */
static __always_inline void hold_graphs(const struct caller *who)
{
	struct program *program;

	meet();
	program = program_of(who);
	if (program)
		program->holds_graphs = 1;
}

static __always_inline void submit_graph(const struct caller *who, const struct thread *t, u64 stream, u64 cookie)
{
	struct program *program;

	submit(who, t, stream, cookie);
	if (!is_followed(cookie))
		return;
	program = program_of(who);
	if (program && program->holds_graphs)
		hold(who, t);
}

#endif
