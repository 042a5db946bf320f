// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Programs of submissions: whose work kept a device busy?
 *
 * Where these programs run the submission is counted, and its call has not returned: its work cannot be known to be
 * done yet, so the busy period it is in is the one that holds the latest number. */
#include "abi/busy.h"
#include "abi/cookies.h"
#include "abi/programs.h"
#include "abi/samples.h"
#include "cuda/busy_map.bpf.h"
#include "cuda/device.bpf.h"
#include "profile/stacks.bpf.h"

/* Of a busy period whose every stack is known, it is known whose work it was. So some busy periods are taken whole, and the
 * stacks of all others as those of launches are; each may have half the budget. */
#define PERIOD_BUDGET (BUDGET / 2)
#define PERIOD_STACKS 1024 /* the most that are taken of one busy period, at a stretch */

struct period_sampler {
	u64 first;  /* the present busy period's busy.period_first */
	u32 stacks; /* of the present busy period; ~0 when it is not to be taken whole */
	u32 pad;
	struct sampler sampler; /* of busy periods, by their submissions */
};

/* Written here, removed by the agent with their program. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 8192);
	__type(key, struct busy_key);
	__type(value, struct period_sampler);
} period_samplers SEC(".maps");

static __always_inline int is_period_due(struct sampler *s, u64 now)
{
	adapt(s, now, PERIOD_BUDGET);
	if (passes(s))
		return 0;
	draw(s);
	return 1;
}

/* True when this submission is part of a busy period that is taken whole. Threads that are here at once may get the budget
 * wrong, and nothing else: user space counts the stacks. */
static __always_inline int is_of_whole_period(const struct busy_key *key, const struct busy *b)
{
	struct period_sampler *s = bpf_map_lookup_elem(&period_samplers, key);

	if (!s) {
		struct period_sampler fresh = { .first = ~0ULL };
		fresh.sampler.window_start_ns = b->period_opened_ns;
		fresh.sampler.period = 1;
		PUT_IN(period_samplers, TABLE_PERIOD_SAMPLERS, key, key, &fresh);
		s = bpf_map_lookup_elem(&period_samplers, key);
		if (!s)
			return 0;
	}
	s->sampler.in_window++;
	if (s->first != b->period_first) {
		s->first = b->period_first;
		s->stacks = is_period_due(&s->sampler, b->period_opened_ns) ? 0 : ~0U;
	}
	if (s->stacks >= PERIOD_STACKS)
		return 0;
	s->stacks++;
	return 1;
}

/* Notes what a submission does. One that comes while another thread is here is left out: of its busy period it is then not
 * known what was done. The same of one that finds no part. */
static __always_inline void note_part(struct busy *b, u64 subject)
{
	if (__sync_val_compare_and_swap(&b->noting, 0, 1))
		return;
#pragma unroll
	for (u32 i = 0; i < PERIOD_PARTS; i++) {
		struct period_part *part = &b->kind.parts[i];

		if (!part->calls)
			part->subject = subject;
		if (part->subject == subject) {
			part->calls++;
			b->noted++;
			break;
		}
	}
	*(volatile u64 *)&b->noting = 0;
}

static __always_inline int profile_submission(struct pt_regs *ctx, u64 subject)
{
	u64 cookie = attach_cookie(ctx), number;
	struct weight w = weight_of(1);
	struct sampler *sampler;
	struct busy_key key;
	struct caller who;
	struct busy *b;
	u32 device;

	if (!identify(&who))
		return 0;
	device = device_of(&who);
	busy_key_of(&key, &who, device);
	b = bpf_map_lookup_elem(&busy, &key);
	if (!b)
		return 0;
	note_part(b, PART_OF(subject, COOKIE_FUNCTION(cookie)));
	number = *(volatile u64 *)&b->submissions;
	sampler = submission_sampler_of(&who, device);
	if (!is_of_whole_period(&key, b) && !is_due_within(sampler, &w, PERIOD_BUDGET))
		return 0;
	if (number > b->sampled)
		b->sampled = number;
	w.value = WORK_AT(device, number);
	if (!take_at_entry(ctx, &who, SAMPLE_SUBMISSION, cookie, &w, subject))
		keep(submission_sampler_of(&who, device), w.calls, w.calls);
	return 0;
}

SEC("uprobe")
int profile_submitted_first(struct pt_regs *ctx)
{
	return profile_submission(ctx, argument(ctx, 0));
}

SEC("uprobe")
int profile_submitted_second(struct pt_regs *ctx)
{
	return profile_submission(ctx, argument(ctx, 1));
}

SEC("uprobe")
int profile_submitted_other(struct pt_regs *ctx)
{
	return profile_submission(ctx, 0);
}
