/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is in a profile's total and in no stack of it? */
#ifndef OTEL_GPU_PROFILE_REMAINDERS_BPF_H
#define OTEL_GPU_PROFILE_REMAINDERS_BPF_H

#include "abi/programs.h"
#include "abi/samples.h"
#include "lib/shares.bpf.h"

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

static const struct remainder no_remainder = {};

static __always_inline u32 recording_now(void)
{
	u32 zero = 0, *now = bpf_map_lookup_elem(&recordings, &zero);

	return now ? *now : 0;
}

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
	remain((u64)(owner)->tgid << 32 | (owner)->exec_id, (u64)(type) << 32 | (device), value, calls)

#endif
