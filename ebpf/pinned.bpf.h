/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Is this host pointer page-locked? Ranges in a trie, cut into aligned blocks of powers of two. */
#ifndef OTEL_GPU_PINNED_BPF_H
#define OTEL_GPU_PINNED_BPF_H

#include "rows.bpf.h"
#include <bpf/bpf_endian.h>

struct pinned_key {
	u32 bits;    /* significant bits of what follows */
	u32 tgid;    /* any byte order does: it is always compared whole */
	u64 address; /* big-endian */
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1048576);
	__type(key, struct pinned_key);
	__type(value, u8);
} pinned SEC(".maps");

#define TGID_BITS 32
#define ADDRESS_BITS 64

#define MAX_BLOCKS 96 /* of one range: twice the bits that a size and its alignment can differ by, and some */

/* floor(log2(value)), by way of bucket(). */
static __always_inline u32 log2_of(u64 value)
{
	return bucket(value + 1) - 2;
}

/* Puts in, or takes out, a range: the largest aligned block at its start, again and again. A plain loop, since
 * page-locked memory is told apart on kernels without bpf_loop too. */
static __always_inline void pin(const struct caller *who, u64 address, u64 size, int remove)
{
	struct pinned_key key = { .tgid = who->tgid };
	u64 end = address + size;
	u8 yes = 1;

	for (int i = 0; i < MAX_BLOCKS; i++) {
		u64 left = end - address;
		u32 shift, alignment;

		if (!left || !address)
			return;
		shift = log2_of(left);
		alignment = log2_of(address & -address);
		if (shift > alignment)
			shift = alignment;
		shift &= ADDRESS_BITS - 1;
		key.bits = TGID_BITS + ADDRESS_BITS - shift;
		key.address = bpf_cpu_to_be64(address);
		if (remove)
			bpf_map_delete_elem(&pinned, &key);
		else if (bpf_map_update_elem(&pinned, &key, &yes, BPF_ANY))
			lose(LOSS_LIVE_FULL);
		address += 1ULL << shift;
	}
}

static __always_inline u8 host_memory(const struct caller *who, u64 pointer)
{
	struct pinned_key key = { TGID_BITS + ADDRESS_BITS, who->tgid, bpf_cpu_to_be64(pointer) };

	if (!pointer)
		return HOST_MEMORY_NONE;
	return bpf_map_lookup_elem(&pinned, &key) ? HOST_MEMORY_PINNED : HOST_MEMORY_PAGEABLE;
}

#endif
