/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Where do stacks go, and may a program send one more? */
#ifndef OTEL_GPU_PROFILE_SAMPLES_BPF_H
#define OTEL_GPU_PROFILE_SAMPLES_BPF_H

#include "abi/cookies.h"
#include "abi/programs.h"
#include "abi/stacks.h"
#include "lib/shares.bpf.h"
#include "profile/heads.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 << 20);
} samples SEC(".maps");

/* Waking the agent for each stack would cost more than the stack: the first one that it has not seen wakes it, and those
 * that come while it waits for more do not. What a stack names may be gone soon. */
#define WAKE_AT (2 << 20)

static __always_inline void submit_sample(struct stack_sample *s)
{
	u64 waiting = bpf_ringbuf_query(&samples, BPF_RB_AVAIL_DATA);

	/* A record counts as soon as it is reserved. */
	bpf_ringbuf_submit(s, waiting < 2 * sizeof(*s) || waiting > WAKE_AT ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
}

/* Whether the calling program may have so much of the ring; counted where it may not. */
RARE int may_sample(u32 bytes)
{
	struct program *program;
	struct caller who;

	if (!identify(&who))
		return 0;
	meet();
	program = program_of(&who);
	if (program && may_send(&samples, &program->samples, bytes))
		return 1;
	lose_of(program, LOSS_EVENTS_FULL);
	return 0;
}

static __always_inline struct stack_sample *start_sample(const struct caller *who, u32 type, u64 cookie)
{
	struct stack_sample *s;

	if (!may_sample(sizeof(*s)))
		return 0;
	s = bpf_ringbuf_reserve(&samples, sizeof(*s), 0);
	if (!s) {
		lose(LOSS_EVENTS_FULL);
		return 0;
	}
	fill_head(s, who, type, COOKIE_FUNCTION(cookie), bpf_ktime_get_ns(), 0);
	return s;
}

/* What has no stack of its own, such as a free, which is charged to the stack that allocated. */
static __always_inline void submit_head(const struct caller *who, u32 type, u64 cookie, u64 time_ns, u64 subject)
{
	struct stack_sample *s;

	if (!may_sample(SAMPLE_HEAD))
		return;
	s = bpf_ringbuf_reserve(&samples, SAMPLE_HEAD, 0);
	if (!s) {
		lose(LOSS_EVENTS_FULL);
		return;
	}
	fill_head(s, who, type, COOKIE_FUNCTION(cookie), time_ns, subject);
	submit_sample(s);
}

#endif
