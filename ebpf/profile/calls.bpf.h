/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* In which calls is a thread that have not returned? */
#ifndef OTEL_GPU_PROFILE_CALLS_BPF_H
#define OTEL_GPU_PROFILE_CALLS_BPF_H

#include "abi/cookies.h"
#include "abi/programs.h"
#include "abi/samples.h"
#include "lib/arguments.bpf.h"
#include "profile/sampled_threads.bpf.h"

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

/* Where the call will return to, for who looks while it goes on. */
static __always_inline void note_place(struct pt_regs *ctx, struct entered *e)
{
	e->address = STACK_POINTER(ctx);
	e->pitch_at = FRAME_POINTER(ctx);
	e->waits = 1;
}

#endif
