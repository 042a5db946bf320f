/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is kept of memory: live allocations, and where they lie. */
#ifndef OTEL_GPU_ABI_MEMORY_H
#define OTEL_GPU_ABI_MEMORY_H

#include "abi/types.h"

/* A live allocation. */
struct live_key {
	u32 tgid;
	u32 exec_id;
	u64 address; /* device or host pointer, or VMM handle */
};
_Static_assert(sizeof(struct live_key) == 16, "live_key crosses the border");

struct live {
	u64 size;
	u64 since_ns; /* CLOCK_MONOTONIC */
	u64 context;  /* with which it ends; 0 when it was made before we looked */
	u8 type;
	u8 device;
	u16 refs; /* of a VMM handle */
	u32 maps; /* how often it is mapped; its memory goes with the last reference and mapping */
};
_Static_assert(sizeof(struct live) == 32, "live crosses the border");

/* A range has one entry, by where it begins: its size is of one power of two, 2^(level-1) < size <= 2^level, and of all ranges
 * of a level at most one lies inside an aligned block of that power, and at most one begins in it and ends beyond. An address
 * is looked for at each level that the program has used: in its block, and in the one before for what ends beyond that. */
struct range_key {
	u32 tgid;
	u32 exec_id;
	u64 block; /* address >> level */
	u32 level;
	u32 ends_beyond;
};
_Static_assert(sizeof(struct range_key) == 24, "range_key crosses the border");

/* An aligned block of page-locked memory, in a trie. */
struct pinned_key {
	u32 bits; /* significant bits of what follows */
	u32 tgid; /* any byte order does for these two: they are always compared whole */
	u32 exec_id;
	be32 address[2]; /* its high half first */
};
_Static_assert(sizeof(struct pinned_key) == 20, "without padding");

#endif
