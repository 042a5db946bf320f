/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What was done between two gaps in which a device was idle, and how long did that take? */
#ifndef OTEL_GPU_CUDA_BUSY_PERIODS_BPF_H
#define OTEL_GPU_CUDA_BUSY_PERIODS_BPF_H

#include "abi/busy.h"
#include "abi/events.h"
#include "abi/programs.h"
#include "abi/rows.h"
#include "cuda/busy.bpf.h"
#include "cuda/rows.bpf.h"
#include "lib/events.bpf.h"

/* What busy periods came to, by what was done in them: of those whose every submission is in busy.kind. Read by the agent,
 * which removes those of ended processes. What finds no room is time of which less is known. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, struct period_kind);
	__type(value, struct period_sum);
} period_kinds SEC(".maps");

/* When the agent read last: busy periods that were opened before are not added up. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} periods_since SEC(".maps");

static const struct period_sum no_periods = {};

static __always_inline void sum_period(const struct busy *b, u64 ended)
{
	const struct busy_key *key = &b->kind.key;
	struct period_sum *sum;
	u64 *since;
	u32 zero = 0;

	since = bpf_map_lookup_elem(&periods_since, &zero);
	if (!since || b->period_opened_ns < *since)
		return;
	sum = bpf_map_lookup_elem(&period_kinds, &b->kind);
	if (!sum) {
		PUT_IN(period_kinds, TABLE_PERIOD_KINDS, key, &b->kind, &no_periods);
		sum = bpf_map_lookup_elem(&period_kinds, &b->kind);
	}
	if (!sum) {
		lose(LOSS_BUSY_FULL);
		return;
	}
	/* Nobody else is here: the device's entry is claimed. */
	sum->periods++;
	sum->upper_ns += ended - b->period_opened_ns;
	sum->lower_ns += b->lower_ns - b->period_lower_ns;
}

/* Says what a busy period came to, when somebody has looked who made it, and begins the next one. */
static __always_inline void next_period(const struct busy_key *key, struct busy *b, u64 ended, u64 now)
{
	struct event *e;

	if (b->sampled > b->period_first && b->sampled <= b->idle_submissions) {
		e = RESERVE_EVENT(struct event);
		if (e) {
			*e = (struct event){
				.type = EVENT_BUSY_PERIOD,
				.tgid = key->tgid,
				.exec_id = key->exec_id,
				.tid = key->device,
				.time_ns = ended,
				.a = b->period_first,
				.b = b->idle_submissions,
				.c = b->period_opened_ns,
				.d = b->lower_ns - b->period_lower_ns,
			};
			bpf_ringbuf_submit(e, 0);
		}
	}
	if (b->noted) {
		if (b->noted == b->idle_submissions - b->period_first)
			sum_period(b, ended);
		b->noted = 0;
		for (u32 i = 0; i < PERIOD_PARTS; i++)
			b->kind.parts[i] = (struct period_part){};
	}
	b->period_first = b->idle_submissions;
	b->period_opened_ns = now;
	b->period_lower_ns = b->lower_ns;
}

/* Work comes after a time in which the device was known to be idle. */
RARE int begin_work(u32 device)
{
	struct row_key row = { .family = FAMILY_IDLE, .bucket_b = BUCKET_NONE };
	u64 now = bpf_ktime_get_ns(), since;
	struct busy_key key;
	struct caller who;
	struct busy *b;

	if (!identify(&who))
		return 0;
	busy_key_of(&key, &who, device);
	/* When the entry is taken the next submission will try: the gap, with two submissions behind it, is void. */
	if (!claim(&key))
		return 0;
	b = bpf_map_lookup_elem(&busy, &key);
	if (b && !b->open) {
		since = b->idle_since_ns;
		b->idle_since_ns = 0;
		b->opened_ns = now;
		if (since && since < now && b->submissions == b->idle_submissions + 1) {
			b->idle_ns += now - since;
			next_period(&key, b, since, now);
			row.tgid = key.tgid;
			row.exec_id = key.exec_id;
			row.device = device;
			row.bucket_a = duration_bucket(now - since);
			count_more(&row, now - since, 0);
		}
		b->open = 1;
	}
	unclaim(&key);
	return 0;
}

#endif
