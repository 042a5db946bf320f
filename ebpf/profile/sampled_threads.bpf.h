/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is kept of a thread whose stacks are taken: the calls it is in, and what it did since its last stack. */
#ifndef OTEL_GPU_PROFILE_SAMPLED_THREADS_BPF_H
#define OTEL_GPU_PROFILE_SAMPLED_THREADS_BPF_H

#include "abi/cookies.h"
#include "abi/programs.h"
#include "abi/samples.h"
#include "lib/arguments.bpf.h"
#include "lib/shares.bpf.h"

/* Threads -> what is kept of them. Removed when they end, or their process calls exec. Not from a cache: the scheduler comes
 * here too, within which kernels before 6.1 must not allocate. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, u64); /* caller.task */
	__type(value, struct sampled_thread);
} sampled_threads SEC(".maps");

/* What is in a profile's total and in no stack of it. Read by the agent, which removes it. Not from a cache: the CPU's timer
 * comes here too, which kernels before 6.1 let into nothing else. A program has one of each type and device. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct remainder_key);
	__type(value, struct remainder);
} remainders SEC(".maps");

/* The number of the present recording, written by the agent: what was kept before it began is forgotten. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} recordings SEC(".maps");

static const struct sampled_thread no_sampled_thread = {};
static const struct remainder no_remainder = {};

static __always_inline u32 recording_now(void)
{
	u32 zero = 0, *now = bpf_map_lookup_elem(&recordings, &zero);

	return now ? *now : 0;
}

static __always_inline struct sampled_thread *sampled_thread_of(const struct caller *who)
{
	struct sampled_thread *t = bpf_map_lookup_elem(&sampled_threads, &who->task);

	return t && t->born_ns == who->born_ns && t->incarnation == who->incarnation ? t : NULL;
}

/* `may_meet` says that the program, if it has no entry, gets one: not in the scheduler. */
RARE int make_sampled_thread(u32 may_meet)
{
	struct sampled_thread *t;
	struct caller who;

	if (!identify(&who))
		return 0;
	t = bpf_map_lookup_elem(&sampled_threads, &who.task);
	if (t) /* its end went unseen */
		take_out(&sampled_threads, TABLE_SAMPLED_THREADS, t->tgid, t->incarnation, &who.task);
	if (may_meet)
		meet();
	PUT_IN(sampled_threads, TABLE_SAMPLED_THREADS, &who, &who.task, &no_sampled_thread);
	t = bpf_map_lookup_elem(&sampled_threads, &who.task);
	if (!t)
		return 0;
	t->tgid = who.tgid;
	t->incarnation = who.incarnation;
	t->tid = who.pid_tgid;
	t->born_ns = who.born_ns;
	return 0;
}

/* The same, from now on; NULL when there is no room for it. */
static __always_inline struct sampled_thread *meet_sampled_thread(const struct caller *who, u32 may_meet)
{
	struct sampled_thread *t = sampled_thread_of(who);

	if (!t) {
		make_sampled_thread(may_meet);
		t = sampled_thread_of(who);
	}
	return t;
}

/* ---- calls ---- */

/* Where a thread keeps its call of a function; SAMPLED_CALLS when it is in none. */
static __always_inline u32 place_of_entered(const struct sampled_thread *t, u32 function)
{
	u32 place = SAMPLED_CALLS;

#pragma unroll
	for (u32 i = 0; i < SAMPLED_CALLS; i++)
		if (t->entered[i].function == function)
			place = i;
	return place;
}

static __always_inline struct entered *entered_at(struct sampled_thread *t, u32 place)
{
	asm volatile("" : "+r"(place)); /* the verifier must see the mask */
	return &t->entered[place & (SAMPLED_CALLS - 1)];
}

/* The thread's call of the cookie's function; NULL when it is in none. */
static __always_inline struct entered *find_entered(struct sampled_thread *t, u64 cookie)
{
	u32 place = t ? place_of_entered(t, COOKIE_FUNCTION(cookie) + 1) : SAMPLED_CALLS;

	return place < SAMPLED_CALLS ? entered_at(t, place) : NULL;
}

/* Remembers a call until it returns, in the place of one of the same function, else in a free one. */
static __always_inline struct entered *enter(const struct caller *who, u64 cookie)
{
	struct sampled_thread *t = meet_sampled_thread(who, 1);
	u32 function = COOKIE_FUNCTION(cookie) + 1, place;
	struct entered *e;

	if (t) {
		place = place_of_entered(t, function);
		if (place == SAMPLED_CALLS)
			place = place_of_entered(t, 0);
	}
	if (!t || place == SAMPLED_CALLS) {
		lose(LOSS_CALLS_FULL);
		return NULL;
	}
	e = entered_at(t, place);
	e->start_ns = bpf_ktime_get_ns();
	e->size = e->address = e->pitch_at = 0;
	e->waits = 0;
	e->function = function;
	return e;
}

static __always_inline int leave(const struct caller *who, u64 cookie, struct entered *e)
{
	struct entered *found = find_entered(sampled_thread_of(who), cookie);

	if (!found)
		return 0;
	*e = *found;
	found->function = 0;
	return 1;
}

/* Is this a call that another one of the same number makes, which is on its way? */
static __always_inline int is_inner(const struct caller *who, u64 cookie)
{
	return COOKIE_FLAGS(cookie) & FLAG_INNER && find_entered(sampled_thread_of(who), cookie);
}

/* ---- samplers ---- */

/* Adds to what no stack of a program stands for. */
RARE int remain(u64 program, u64 type_device, u64 value, u64 calls)
{
	struct remainder_key key = { program >> 32, program, type_device >> 32, type_device };
	struct remainder *r = bpf_map_lookup_elem(&remainders, &key);
	u32 now = recording_now();

	if (!r) {
		bpf_map_update_elem(&remainders, &key, &no_remainder, BPF_NOEXIST);
		r = bpf_map_lookup_elem(&remainders, &key);
	}
	if (!r) {
		lose_of(NULL, LOSS_EVENTS_FULL);
		return 0;
	}
	if (r->recording != now) {
		r->value = r->calls = 0;
		r->recording = now;
	}
	__sync_fetch_and_add(&r->value, value);
	__sync_fetch_and_add(&r->calls, calls);
	return 0;
}

#define REMAIN(owner, type, device, value, calls)                                                                      \
	remain((u64)(owner)->tgid << 32 | (owner)->incarnation, (u64)(type) << 32 | (device), value, calls)

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
	take_out(&sampled_threads, TABLE_SAMPLED_THREADS, t->tgid, t->incarnation, &who->task);
}

#endif
