/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* In which bucket of a histogram does a value stand? OTLP's exponential ones at scale 0, plus 2, see abi/rows.h. */
#ifndef OTEL_GPU_LIB_BUCKETS_BPF_H
#define OTEL_GPU_LIB_BUCKETS_BPF_H

#include "lib/kernel.h"
#include <bpf/bpf_helpers.h>

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

#define LOOKED_UP_BITS 10
#define LOOKED_UP (1 << LOOKED_UP_BITS)

static const u8 bucket_up_to[LOOKED_UP + 1] = {
	[0] = 0,	 [1] = 1,	  [2] = 2,	    [3 ... 4] = 3,     [5 ... 8] = 4,	   [9 ... 16] = 5,
	[17 ... 32] = 6, [33 ... 64] = 7, [65 ... 128] = 8, [129 ... 256] = 9, [257 ... 512] = 10, [513 ... 1024] = 11,
};

static __noinline u32 bucket_of_large(u64 value)
{
	return bucket(value);
}

/* The same of a value that is seldom above 2^20: looked up, in a tenth of the time, for two branches. */
static __always_inline u8 bucket_of_count(u64 value)
{
	u64 rest = (value - 1) >> LOOKED_UP_BITS;

	if (value <= LOOKED_UP)
		return bucket_up_to[value];
	return rest < LOOKED_UP ? bucket_up_to[rest + 1] + LOOKED_UP_BITS : bucket_of_large(value);
}

/* The bucket of a duration, in units of 2^-30 s, so that its edges are powers of two of a second: OTLP's bucket
 * is 30 lower. 2^22 * 2^30 / 10^9 = 4503599.6; longer than 36 minutes, precision gives way to range. */
static __always_inline u8 duration_bucket(u64 ns)
{
	return bucket(ns >> 41 ? (ns >> 22) * 4503600 : ns * 4503600 >> 22);
}

#endif
