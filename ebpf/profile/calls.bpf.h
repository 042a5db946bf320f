/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* In which calls is a thread that have not returned? */
#ifndef OTEL_GPU_PROFILE_CALLS_BPF_H
#define OTEL_GPU_PROFILE_CALLS_BPF_H

#include "abi/cookies.h"
#include "abi/programs.h"
#include "abi/samples.h"
#include "lib/arguments.bpf.h"
#include "lib/calls.bpf.h"
#include "profile/sampled_threads.bpf.h"

/* Remembers a call until it returns, in the place of one of the same function, else in a free one; NULL where there is
 * none. */
static __always_inline struct entered *enter(const struct caller *who, u64 cookie)
{
	struct sampled_thread *t = meet_sampled_thread(who, 1);
	u32 number = CALL_NUMBER(cookie), place = SAMPLED_CALLS;
	struct entered *e;

	if (t) {
		place = PLACE_OF_CALL(t->entered, number);
		if (place == SAMPLED_CALLS)
			place = PLACE_OF_CALL(t->entered, 0);
	}
	if (!t || place == SAMPLED_CALLS) {
		lose(LOSS_CALLS_FULL);
		return NULL;
	}
	e = CALL_AT(t->entered, place);
	e->start_ns = bpf_ktime_get_ns();
	e->size = e->address = e->pitch_at = 0;
	e->waits = 0;
	/* Last, for whoever looks at calls that wait. */
	e->function = number;
	return e;
}

static __always_inline struct entered *find_entered(const struct caller *who, u64 cookie)
{
	struct sampled_thread *t = sampled_thread_of(who);

	return t ? FIND_CALL(t->entered, cookie) : NULL;
}

/* A call returns: what its entry remembered; false when that was not seen. */
static __always_inline int leave(const struct caller *who, u64 cookie, struct entered *e)
{
	struct entered *found = find_entered(who, cookie);

	if (!found)
		return 0;
	*e = *found;
	found->function = 0;
	return 1;
}

/* Is this a call that another one of the same number makes, which is on its way? */
static __always_inline int is_inner(const struct caller *who, u64 cookie)
{
	return COOKIE_FLAGS(cookie) & FLAG_INNER && find_entered(who, cookie) != NULL;
}

/* Where the call will return to, for who looks while it goes on. */
static __always_inline void note_place(struct pt_regs *ctx, struct entered *e)
{
	e->address = STACK_POINTER(ctx);
	e->pitch_at = FRAME_POINTER(ctx);
	e->waits = 1;
}

#endif
