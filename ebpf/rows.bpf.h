/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Where is a call counted? One table of rows for everything, and what happens when it is full. */
#ifndef OTEL_GPU_ROWS_BPF_H
#define OTEL_GPU_ROWS_BPF_H

#include "common.bpf.h"

/* The count table. Written here, per CPU; read by the agent, which removes the rows of ended processes.
 * Sized by receivers.cuda.map_entries. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct row_key);
	__type(value, struct row);
} rows SEC(".maps");

/* Where counts go when `rows` is full: the same rows without their subject, so that each process's totals
 * and histograms stay exact. Bounded by families, kinds and buckets, a few hundred a process at worst. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, struct row_key);
	__type(value, struct row);
} overflow SEC(".maps");

/* Where counts go when even that is full: totals by family. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FAMILY_COUNT);
	__type(key, u32);
	__type(value, struct row);
} totals SEC(".maps");

/* 1 for anything but 0, without a branch: the empty asm keeps clang from making one, and branches multiply what
 * the verifier has to walk. */
static __always_inline u64 is_set(u64 value)
{
	u64 sign = -value;

	asm volatile("" : "+r"(sign));
	sign = (sign | value) >> 63;
	asm volatile("" : "+r"(sign));
	return sign;
}

/* The bucket of a value, see struct row_key: how many bits value-1 has, plus 1; 0 for 0. */
static __always_inline u8 bucket(u64 value)
{
	u64 rest = value - 1, bits = 1, step;

#pragma unroll
	for (int half = 32, log = 5; half; half >>= 1, log--) {
		step = is_set(rest >> half) << log;
		rest >>= step;
		bits += step;
	}
	return (bits + rest) * is_set(value);
}

/* The bucket of a duration, in units of 2^-30 s, so that its edges are powers of two of a second: OTLP's bucket
 * is 30 lower. 2^22 * 2^30 / 10^9 = 4503599.6; longer than 36 minutes, precision gives way to range. */
static __always_inline u8 duration_bucket(u64 ns)
{
	return bucket(ns >> 41 ? (ns >> 22) * 4503600 : ns * 4503600 >> 22);
}

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

static const struct row no_row = {};

static __noinline int count_overflow(struct row_key *key, u64 a, u64 b)
{
	struct row *row;
	u32 family;

	if (!key)
		return 0;
	lose(LOSS_ROWS_FULL);
	key->subject = 0;
	if (key->family == FAMILY_LAUNCH)
		key->function = 0;
	bpf_map_update_elem(&overflow, key, &no_row, BPF_NOEXIST);
	row = bpf_map_lookup_elem(&overflow, key);
	if (!row) {
		lose(LOSS_OVERFLOW_FULL);
		family = key->family;
		row = bpf_map_lookup_elem(&totals, &family);
	}
	if (row)
		add(row, 1, a, b);
	return 0;
}

/* Counts one call; true when it made a new row. */
static __always_inline int count(struct row_key *key, u64 a, u64 b)
{
	struct row *row = bpf_map_lookup_elem(&rows, key);
	int made = 0;

	if (!row) {
		made = !bpf_map_update_elem(&rows, key, &no_row, BPF_NOEXIST);
		row = bpf_map_lookup_elem(&rows, key);
		if (!row) {
			count_overflow(key, a, b);
			return 0;
		}
	}
	add(row, 1, a, b);
	return made;
}

static __always_inline void start_key(struct row_key *key, const struct caller *who, u8 family, u64 cookie)
{
	*key = (struct row_key){
		.tgid = who->tgid,
		.incarnation = who->incarnation,
		.function = COOKIE_FUNCTION(cookie),
		.family = family,
		.kind = COOKIE_KIND(cookie) & KIND_HIP,
		.device = DEVICE_UNKNOWN,
		.bucket_a = BUCKET_NONE,
		.bucket_b = BUCKET_NONE,
	};
}

#endif
