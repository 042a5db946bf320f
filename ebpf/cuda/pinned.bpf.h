/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Is this host pointer page-locked? Ranges in a trie, cut into aligned blocks of powers of two. */
#ifndef OTEL_GPU_CUDA_PINNED_BPF_H
#define OTEL_GPU_CUDA_PINNED_BPF_H

#include "abi/memory.h"
#include "abi/programs.h"
#include "abi/rows.h"
#include "cuda/rows.bpf.h"
#include <bpf/bpf_endian.h>

/* Page-locked blocks -> the bits of their key. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 131072);
	__type(key, struct pinned_key);
	__type(value, u8);
} pinned SEC(".maps");

#define PROGRAM_BITS 64
#define ADDRESS_BITS 64

static __always_inline void pinned_key_of(struct pinned_key *key, const struct caller *who, u64 address, u32 shift)
{
	*key = (struct pinned_key){
		.bits = PROGRAM_BITS + ADDRESS_BITS - shift,
		.tgid = who->tgid,
		.exec_id = who->exec_id,
		.address = { bpf_htonl((u32)(address >> 32)), bpf_htonl((u32)address) },
	};
}

#define MAX_BLOCKS 96 /* of one range: twice the bits that a size and its alignment can differ by, and some */

/* floor(log2(value)), by way of bucket(). */
static __always_inline u32 log2_of(u64 value)
{
	return bucket(value + 1) - 2;
}

RARE int pin_block(u64 address, u32 shift, int remove)
{
	struct pinned_key key;
	struct caller who;
	u8 *known, bits;

	if (!identify(&who))
		return 0;
	pinned_key_of(&key, &who, address, shift);
	bits = key.bits;
	if (remove)
		return TAKE_OUT(pinned, TABLE_PINNED, &who, &key);
	/* What is found is the smallest block that holds this one. A trie does not refuse what is there already. */
	known = bpf_map_lookup_elem(&pinned, &key);
	if (!(known && *known == bits) && !PUT_IN(pinned, TABLE_PINNED, &who, &key, &bits))
		lose(LOSS_PINNED_FULL);
	return 0;
}

struct pinning {
	u64 address, end;
	int remove;
};

ROUND(pin_first_block)(u32 i, struct pinning *p)
{
	u64 left = p->end - p->address;
	u32 shift, alignment;

	if (!left || !p->address)
		return 1;
	shift = log2_of(left);
	alignment = log2_of(p->address & -p->address);
	if (shift > alignment)
		shift = alignment;
	shift &= ADDRESS_BITS - 1;
	pin_block(p->address, shift, p->remove);
	p->address += 1ULL << shift;
	return 0;
}

/* Puts in, or takes out, a range: the largest aligned block at its start, again and again. */
RARE int pin(u64 address, u64 size, int remove)
{
	struct pinning pinning = { address, address + size, remove };

	REPEAT(MAX_BLOCKS, pin_first_block, &pinning);
	return 0;
}

static __always_inline u8 host_memory(const struct caller *who, u64 pointer)
{
	struct pinned_key key;

	if (!pointer)
		return HOST_MEMORY_NONE;
	pinned_key_of(&key, who, pointer, 0);
	return bpf_map_lookup_elem(&pinned, &key) ? HOST_MEMORY_PINNED : HOST_MEMORY_PAGEABLE;
}

#endif
