/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Where is a call counted? One table of rows for everything, and what happens when a program has its share of it. */
#ifndef OTEL_GPU_CUDA_ROWS_BPF_H
#define OTEL_GPU_CUDA_ROWS_BPF_H

#include "abi/cookies.h"
#include "abi/programs.h"
#include "abi/rows.h"
#include "inference/charges.bpf.h"
#include "lib/arguments.bpf.h"
#include "lib/atomics.bpf.h"
#include "lib/buckets.bpf.h"
#include "lib/shares.bpf.h"

/* The count table. Written here, per CPU; read by the agent, which removes the rows of ended processes.
 * Sized by receivers.cuda.map_entries. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct row_key);
	__type(value, struct counted_row);
} rows SEC(".maps");

/* Where counts go when a program has its share of `rows`: the same rows without their subject, so that its totals and
 * histograms stay exact. Programs that tell the truth need a few hundred of these at worst. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, struct row_key);
	__type(value, struct counted_row);
} overflow SEC(".maps");

/* Adds to a row. Per-CPU rows still need atomic additions: a program may be preempted by another task's
 * probe on the same CPU. */
static __always_inline void add(struct row *row, u64 count, u64 a, u64 b)
{
	__sync_fetch_and_add(&row->count, count);
	if (a)
		__sync_fetch_and_add(&row->sum_a, a);
	if (b)
		__sync_fetch_and_add(&row->sum_b, b);
}

/* The same of a row of the count table. */
static __always_inline void add_call(struct counted_row *row, u64 a, u64 b)
{
	u64 values = VALUES(a, b);

	if (values && !row->usual)
		CHANGES(&row->usual, 0, values);
	if (values && row->usual == values)
		__sync_fetch_and_add(&row->alike, 1);
	else
		add(&row->others, 1, a, b);
}

static const struct counted_row no_row = {};

#define PLAIN(family, total) [family] = { total, total + 1 }
#define BY_KIND(family, total, kinds) [family] = { total, total + (kinds) }

/* Where a family's totals are: from, to. */
static const struct {
	u8 first, end;
} totals_of[FAMILY_COUNT] = {
	PLAIN(FAMILY_LAUNCH, TOTAL_LAUNCH),
	PLAIN(FAMILY_GRAPH_LAUNCH, TOTAL_GRAPH_LAUNCH),
	BY_KIND(FAMILY_COPY, TOTAL_COPY, COPY_KINDS),
	PLAIN(FAMILY_MEMSET, TOTAL_MEMSET),
	BY_KIND(FAMILY_ALLOC, TOTAL_ALLOC, MEMORY_TYPES),
	BY_KIND(FAMILY_FREE, TOTAL_FREE, MEMORY_TYPES),
	PLAIN(FAMILY_WAIT, TOTAL_WAIT),
	PLAIN(FAMILY_ERROR, TOTAL_ERROR),
	PLAIN(FAMILY_IDLE, TOTAL_IDLE),
	PLAIN(FAMILY_ELAPSED, TOTAL_ELAPSED),
};

/* A row's key in three numbers. */
union row_words {
	struct row_key key;
	u64 word[3];
};

/* A program's totals have room for all that it does. */
static __always_inline void count_total(const struct row_key *key, u64 a, u64 b)
{
	struct program *program = program_numbered(key->tgid, key->exec_id);
	u32 family = key->family, total;

	lose_of(program, program ? LOSS_OVERFLOW_FULL : LOSS_PROGRAMS_FULL);
	if (!program || family >= FAMILY_COUNT)
		return;
	total = totals_of[family].first + (key->kind & ~KIND_HIP);
	if (total >= totals_of[family].end)
		total = totals_of[family].first;
	if (key->kind & KIND_HIP)
		total += TOTALS_OF_API;
	if (total < TOTAL_COUNT)
		add(&program->totals[total], 1, a, b);
}

RARE int count_overflow(u64 first, u64 second, u64 third, u64 a, u64 b)
{
	union row_words words = { .word = { first, second, third } };
	struct row_key *key = &words.key;
	struct counted_row *row;

	key->subject = 0;
	if (key->family == FAMILY_LAUNCH)
		key->function = 0;
	row = bpf_map_lookup_elem(&overflow, key);
	if (!row) {
		PUT_IN(overflow, TABLE_OVERFLOW, key, key, &no_row);
		row = bpf_map_lookup_elem(&overflow, key);
	}
	if (row) {
		lose_of(program_numbered(key->tgid, key->exec_id), LOSS_ROWS_FULL);
		add_call(row, a, b);
	} else {
		count_total(key, a, b);
	}
	return 0;
}

RARE int make_row(u64 first, u64 second, u64 third)
{
	union row_words words = { .word = { first, second, third } };

	return PUT_IN(rows, TABLE_ROWS, &words.key, &words.key, &no_row);
}

RARE int meet_and_make_row(u64 first, u64 second, u64 third)
{
	meet();
	return make_row(first, second, third);
}

/* Counts one call of a program; true when it made a new row. */
static __always_inline int count_of(const struct row_key *key, u64 a, u64 b, int is_met)
{
	struct counted_row *row = bpf_map_lookup_elem(&rows, key);
	int made = 0;
	u64 word[3];

	if (!row) {
		__builtin_memcpy(word, key, sizeof(word));
		made = is_met ? make_row(word[0], word[1], word[2]) : meet_and_make_row(word[0], word[1], word[2]);
		row = bpf_map_lookup_elem(&rows, key);
		if (!row) {
			count_overflow(word[0], word[1], word[2], a, b);
			return 0;
		}
	}
	add_call(row, a, b);
	return made;
}

static __always_inline int count(const struct row_key *key, u64 a, u64 b)
{
	return count_of(key, a, b, 0);
}

/* The same, where something else of the program was kept before: stacks are small. */
static __always_inline int count_more(const struct row_key *key, u64 a, u64 b)
{
	return count_of(key, a, b, 1);
}

/* The same, of what may be done for a request. */
static __always_inline int count_owned(const struct row_key *key, u64 a, u64 b)
{
	int made = count(key, a, b);

	if (follows_requests && !(key->kind & KIND_HIP))
		charge_work((u64)key->tgid << 32 | key->exec_id,
			    key->family | key->kind << 8 | (u64)key->function << 16, a);
	return made;
}

#define LARGEST (1ULL << 46) /* no host has 64 TiB, and no sum of what is smaller overflows soon */

/* The calling thread has seen the device done with what it asked for. */
static __always_inline void done_seen(const struct caller *who)
{
	if (follows_requests)
		step_seen((u64)who->tgid << 32 | who->exec_id);
}

/* A size that may be true. */
static __always_inline u64 plausible(u64 size)
{
	if (size <= LARGEST)
		return size;
	lose(LOSS_IMPLAUSIBLE);
	return 0;
}

/* The same with all that a launch has. Each word is written at once: to read in one piece what was just written in several
 * has the processor wait for it. */
static __always_inline void launch_key(union row_words *words, const struct caller *who, u64 subject, u64 kind,
				       u64 generation, u64 device, u64 bucket_a, u64 bucket_b)
{
	words->word[0] = (u64)who->exec_id << 32 | who->tgid;
	words->word[1] = subject;
	words->word[2] = generation | FAMILY_LAUNCH << 16 | device << 24 | kind << 32 | bucket_a << 48 | bucket_b << 56;
}

static __always_inline void start_key(struct row_key *key, const struct caller *who, u8 family, u64 cookie)
{
	*key = (struct row_key){
		.tgid = who->tgid,
		.exec_id = who->exec_id,
		.function = COOKIE_FUNCTION(cookie),
		.family = family,
		.kind = COOKIE_KIND(cookie) & KIND_HIP,
		.device = DEVICE_UNKNOWN,
		.bucket_a = BUCKET_NONE,
		.bucket_b = BUCKET_NONE,
	};
}

#endif
