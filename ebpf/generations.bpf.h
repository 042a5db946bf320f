/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which kernel is a handle? Another one, perhaps, after its module was unloaded and the driver gave the handle out again.
 * Launches count under the handle and its generation, which is a new one each time the handle gets another name. */
#ifndef OTEL_GPU_GENERATIONS_BPF_H
#define OTEL_GPU_GENERATIONS_BPF_H

#include "device.bpf.h"

/* By a hash of the handle: those that share one change together, which costs them a row and does no harm. A plain array,
 * for every launch looks here. */
#define GENERATIONS 65536
u32 generations[GENERATIONS];

/* Programs -> how often they unloaded something, whose handles may be other kernels' since. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct context_key); /* no context */
	__type(value, u64);
} unloads SEC(".maps");

/* Handles that were named or launched -> what tells their names apart; where none was told, how often something had been
 * unloaded then. */
#define UNNAMED (1ULL << 63)
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct context_key);
	__type(value, u64);
} named_kernels SEC(".maps");

static __always_inline u32 *generation_at(u64 handle)
{
	u32 at = (u32)(handle >> 4 ^ handle >> 20) & (GENERATIONS - 1);

	asm volatile("" : "+r"(at)); /* the verifier must see the mask */
	return &generations[at & (GENERATIONS - 1)];
}

static __always_inline u16 generation_of(u64 handle)
{
	return *(volatile u32 *)generation_at(handle);
}

static __always_inline u64 unloads_of(const struct caller *who)
{
	struct context_key key = { who->tgid, who->incarnation, 0 };
	u64 *n = bpf_map_lookup_elem(&unloads, &key);

	return n ? *n : 0;
}

static __always_inline void note_unload(const struct caller *who)
{
	struct context_key key = { who->tgid, who->incarnation, 0 };
	u64 n = unloads_of(who) + 1;

	bpf_map_update_elem(&unloads, &key, &n, BPF_ANY);
}

/* A kernel was launched, perhaps one that nobody saw being named. */
static __always_inline void kernel_seen(const struct caller *who, u64 handle)
{
	struct context_key key = { who->tgid, who->incarnation, handle };
	u64 mark = UNNAMED | unloads_of(who);

	bpf_map_update_elem(&named_kernels, &key, &mark, BPF_NOEXIST);
}

/* The kernel of a handle has a name, of which `mark` is a hash. Returns KERNEL_NOW. */
static __always_inline u64 kernel_is(const struct caller *who, u64 handle, u64 mark)
{
	struct context_key key = { who->tgid, who->incarnation, handle };
	u64 *before = bpf_map_lookup_elem(&named_kernels, &key);
	int is_other = 0;

	mark &= ~UNNAMED;
	if (before)
		is_other = *before & UNNAMED ? *before != (UNNAMED | unloads_of(who)) : *before != mark;
	if (is_other)
		__sync_fetch_and_add(generation_at(handle), 1);
	if (!before || *before != mark)
		bpf_map_update_elem(&named_kernels, &key, &mark, BPF_ANY);
	return KERNEL_NOW(generation_of(handle), is_other);
}

/* What tells the name of a kernel apart that may have been named before we looked. */
static __always_inline u64 mark_of(const struct caller *who, u64 handle)
{
	struct context_key key = { who->tgid, who->incarnation, handle };
	u64 *mark = bpf_map_lookup_elem(&named_kernels, &key);

	return mark && !(*mark & UNNAMED) ? *mark : handle;
}

#endif
