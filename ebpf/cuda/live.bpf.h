/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which allocations are live? */
#ifndef OTEL_GPU_CUDA_LIVE_BPF_H
#define OTEL_GPU_CUDA_LIVE_BPF_H

#include "abi/cookies.h"
#include "abi/memory.h"
#include "abi/programs.h"
#include "abi/rows.h"
#include "cuda/rows.bpf.h"

/* Live allocations; written here, emptied by the agent for contexts and processes that are gone. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 2097152);
	__type(key, struct live_key);
	__type(value, struct live);
} live SEC(".maps");

static __always_inline void count_memory(const struct caller *who, u8 family, const struct live *what, u8 cause)
{
	struct row_key key;

	start_key(&key, who, family, 0);
	key.kind = what->type;
	key.device = what->device;
	key.detail = cause;
	count(&key, what->size, 0);
}

/* What is in use is what is remembered here. An allocation that finds no place is counted, but not as one that is in use,
 * and so is what it was when it is freed: nobody knows its size any more. */
static __always_inline int keep_live(const struct caller *who, const struct live_key *key, const struct live *what)
{
	if (PUT_IN(live, TABLE_LIVE, who, key, what))
		return 1;
	lose(LOSS_LIVE_FULL);
	return 0;
}

/* Of an allocation that nobody remembers, for there was no room to, or from before the probes were there. */
static __always_inline void count_unknown_free(const struct caller *who, u64 cookie)
{
	struct live unknown = { .type = MEMORY_UNKNOWN | (COOKIE_KIND(cookie) & KIND_HIP), .device = DEVICE_UNKNOWN };
	struct program *program = program_of(who);

	count_memory(who, FAMILY_FREE, &unknown,
		     program && program->lost[LOSS_LIVE_FULL] ? FREE_UNTRACKED : FREE_CALLED);
}

#endif
