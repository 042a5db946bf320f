/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Is it this call whose stack is taken, and what does that stand for? */
#ifndef OTEL_GPU_PROFILE_SAMPLERS_BPF_H
#define OTEL_GPU_PROFILE_SAMPLERS_BPF_H

#include "abi/programs.h"
#include "abi/samples.h"
#include "profile/remainders.bpf.h"
#include "profile/sampled_threads.bpf.h"

/* Set before loading. */
const volatile u32 stacks_per_second = 400; /* of one thread and sample type */

/* Moves what a sampler has to what remains. */
#define DRAIN(owner, sampler, type, recorded)                                                                          \
	({                                                                                                             \
		if ((sampler)->recording == (recorded) && (sampler)->value)                                            \
			REMAIN(owner, type, (sampler)->device, (sampler)->value, (sampler)->calls);                    \
		(sampler)->value = (sampler)->calls = 0;                                                               \
	})

/* Which of a thread's samplers is a type's. Those of the CPU have none: what finds no room remains at once. */
static __always_inline struct sampler *sampler_at(struct sampled_thread *t, u32 type)
{
	switch (type) {
	case SAMPLE_LAUNCH:
		return &t->samplers[0];
	case SAMPLE_WAIT:
		return &t->samplers[1];
	case SAMPLE_COPY:
		return &t->samplers[2];
	case SAMPLE_ALLOC:
		return &t->samplers[3];
	case SAMPLE_OFF_CPU:
		return &t->samplers[4];
	default:
		return &t->samplers[5];
	}
}

static __always_inline void ready(struct sampler *s)
{
	u32 now = recording_now();

	if (!s->period) {
		s->window_start_ns = bpf_ktime_get_ns();
		s->period = s->countdown = 1;
	}
	if (s->recording != now) {
		s->value = s->calls = 0;
		s->recording = now;
	}
}

static __always_inline struct sampler *sampler_of(const struct caller *who, u32 type)
{
	struct sampled_thread *t = meet_sampled_thread(who, type != SAMPLE_OFF_CPU);
	struct sampler *s;

	if (!t)
		return NULL;
	s = sampler_at(t, type);
	ready(s);
	return s;
}

/* Of submissions there is one for each device; devices beyond those that a thread uses in turn take each other's. */
static __always_inline struct sampler *submission_sampler_of(const struct caller *who, u32 device)
{
	struct sampled_thread *t = meet_sampled_thread(who, 1);
	struct sampler *s;

	if (!t)
		return NULL;
	s = &t->submissions[device & (SAMPLED_DEVICES - 1)];
	if (s->device != device) {
		DRAIN(t, s, SAMPLE_SUBMISSION, recording_now());
		s->device = device;
	}
	ready(s);
	return s;
}

/* A thread ends, or becomes another program's. */
static __always_inline void end_sampled_thread(const struct caller *who)
{
	struct sampled_thread *t = bpf_map_lookup_elem(&sampled_threads, &who->task);
	u32 now = recording_now();

	if (!t)
		return;
	DRAIN(t, sampler_at(t, SAMPLE_LAUNCH), SAMPLE_LAUNCH, now);
	DRAIN(t, sampler_at(t, SAMPLE_WAIT), SAMPLE_WAIT, now);
	DRAIN(t, sampler_at(t, SAMPLE_COPY), SAMPLE_COPY, now);
	DRAIN(t, sampler_at(t, SAMPLE_ALLOC), SAMPLE_ALLOC, now);
	DRAIN(t, sampler_at(t, SAMPLE_OFF_CPU), SAMPLE_OFF_CPU, now);
	DRAIN(t, sampler_at(t, SAMPLE_TENSOR), SAMPLE_TENSOR, now);
	for (u32 i = 0; i < SAMPLED_DEVICES; i++)
		DRAIN(t, &t->submissions[i], SAMPLE_SUBMISSION, now);
	take_out(&sampled_threads, TABLE_SAMPLED_THREADS, t->tgid, t->exec_id, &who->task);
}

#define WINDOW_NS 250000000ULL
#define WINDOWS_PER_SECOND 4

/* Every how many calls, so that the rate of the latest windows would have kept the budget, and a burst in this one does. */
static __always_inline void adapt(struct sampler *s, u64 now, u32 budget)
{
	u64 windows = (now - s->window_start_ns) / WINDOW_NS;
	u32 period = s->in_window / (windows ?: 1) / (budget ?: 1) ?: 1;

	if (windows) {
		s->period = period;
		s->window_start_ns = now;
		s->in_window = 0;
		if (s->countdown > 2 * period)
			s->countdown = 2 * period;
	} else if (period > s->period) {
		s->period = period;
	}
}

/* True while it is none's turn yet. */
static __always_inline int passes(struct sampler *s)
{
	if (s->countdown <= 1)
		return 0;
	s->countdown--;
	return 1;
}

/* How many come before the next: random around the period, lest it beats with a loop in the program. */
static __always_inline void draw(struct sampler *s)
{
	s->countdown = s->period > 1 ? 1 + bpf_get_prandom_u32() % (2 * s->period - 1) : 1;
}

/* Counts a call of the thread; true when its stack is to be taken. */
static __always_inline int count_down(struct sampler *s, u32 budget)
{
	s->in_window++;
	if (passes(s))
		return 0;
	adapt(s, bpf_ktime_get_ns(), budget);
	draw(s);
	return 1;
}

#define BUDGET (stacks_per_second / WINDOWS_PER_SECOND)

/* What a stack stands for. */
struct weight {
	u64 value;
	u64 calls;
	u64 latest; /* of the value, what the call does whose stack is taken */
};

/* What a call does. */
static __always_inline struct weight weight_of(u64 value)
{
	return (struct weight){ value, 1, value };
}

/* True when this call's stack is to be taken; then `w` is what it stands for. */
static __always_inline int is_due_within(struct sampler *s, struct weight *w, u32 budget)
{
	if (!s)
		return 1;
	s->value += w->value;
	s->calls += w->calls;
	if (!count_down(s, budget))
		return 0;
	w->value = s->value;
	w->calls = s->calls;
	s->value = 0;
	s->calls = 0;
	return 1;
}

static __always_inline int is_due(const struct caller *who, u32 type, struct weight *w)
{
	return is_due_within(sampler_of(who, type), w, BUDGET);
}

/* Keeps what a stack that found no room was to stand for: the thread's next one stands for it, or the total alone. */
static __always_inline void keep(struct sampler *s, u64 value, u64 calls)
{
	if (!s)
		return;
	s->value += value;
	s->calls += calls;
}

#endif
