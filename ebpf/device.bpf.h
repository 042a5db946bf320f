/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which device does a thread work on? Contexts know their device; threads have a stack of contexts. */
#ifndef OTEL_GPU_DEVICE_BPF_H
#define OTEL_GPU_DEVICE_BPF_H

#include "common.bpf.h"

struct context_key {
	u32 tgid;
	u32 incarnation;
	u64 context;
};

/* Contexts -> device ordinal. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct context_key);
	__type(value, u8);
} contexts SEC(".maps");

struct device_key {
	u32 tgid;
	u32 incarnation;
	u64 device;
};

/* A device's primary context: made when the first of a program's modules retains it, gone when the last releases it. */
struct primary {
	u64 context;
	u64 references; /* no fewer than there are; UNSEEN and more when there may be others, from before the probes */
};

#define UNSEEN (1ULL << 32)

/* A program's devices, by ordinal -> their primary contexts. Never forgotten while the program runs, lest the count
 * begin anew: the agent removes those of ended ones. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct device_key);
	__type(value, struct primary);
} primaries SEC(".maps");

/* When the latest probes were placed, by CLOCK_BOOTTIME: nothing that programs begun since then did went unseen. Written
 * by the agent; ~0 while it places some. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} placed SEC(".maps");

#define CONTEXT_STACK 16 /* a power of two; contexts pushed deeper overwrite the bottom */

struct thread {
	u64 born_ns; /* of the thread that this is about, and its program: whoever has its number now may be another */
	u32 incarnation;
	u32 depth;
	u64 contexts[CONTEXT_STACK]; /* bottom first; the current one is at depth - 1 */
	u8 devices[CONTEXT_STACK];
};

static __always_inline u32 top_of(const struct thread *t)
{
	u32 top = (t->depth - 1) & (CONTEXT_STACK - 1);

	asm volatile("" : "+r"(top)); /* the verifier must see the mask */
	return top & (CONTEXT_STACK - 1);
}

/* Threads by number -> their contexts' devices. Least recently used ones are forgotten: those that have ended. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, u64);
	__type(value, struct thread);
} threads SEC(".maps");

/* What is known of the calling thread; NULL for nothing. */
static __always_inline struct thread *thread_of(const struct caller *who)
{
	struct thread *t = bpf_map_lookup_elem(&threads, &who->pid_tgid);

	return t && t->born_ns == who->born_ns && t->incarnation == who->incarnation ? t : NULL;
}

static __always_inline u8 device_of_thread(const struct thread *t)
{
	return t && t->depth ? t->devices[top_of(t)] : DEVICE_UNKNOWN;
}

static __always_inline u8 device_of(const struct caller *who)
{
	return device_of_thread(thread_of(who));
}

static __always_inline u64 context_of(const struct caller *who)
{
	struct thread *t = thread_of(who);

	return t && t->depth ? t->contexts[top_of(t)] : 0;
}

static __always_inline u8 device_of_context(const struct caller *who, u64 context)
{
	struct context_key key = { who->tgid, who->incarnation, context };
	u8 *device = bpf_map_lookup_elem(&contexts, &key);

	return device ? *device : DEVICE_UNKNOWN;
}

static __always_inline void learn_context(const struct caller *who, u64 context, u8 device)
{
	struct context_key key = { who->tgid, who->incarnation, context };

	bpf_map_update_elem(&contexts, &key, &device, BPF_ANY);
}

static __always_inline struct primary *primary_of(const struct caller *who, u32 device)
{
	struct device_key key = { who->tgid, who->incarnation, device };

	return bpf_map_lookup_elem(&primaries, &key);
}

static __always_inline void learn_primary(const struct caller *who, u64 context, u32 device)
{
	struct primary *p = primary_of(who, device);

	if (p)
		p->context = context;
}

/* 0 when nobody saw it being retained. */
static __always_inline u64 primary_context(const struct caller *who, u32 device)
{
	struct primary *p = primary_of(who, device);

	return p ? p->context : 0;
}

/* A reference counts from the call that takes it to the return of the call that gives it back: never too low, whatever
 * other threads do meanwhile. */
static __always_inline void retain_primary(const struct caller *who, u32 device)
{
	struct device_key key = { who->tgid, who->incarnation, device };
	struct primary *p = bpf_map_lookup_elem(&primaries, &key), fresh = {};
	u64 *placed_ns;
	u32 zero = 0;

	if (!p) {
		placed_ns = bpf_map_lookup_elem(&placed, &zero);
		fresh.references = placed_ns && *placed_ns < program_start() ? 0 : UNSEEN;
		bpf_map_update_elem(&primaries, &key, &fresh, BPF_NOEXIST);
		p = bpf_map_lookup_elem(&primaries, &key);
	}
	if (p)
		__sync_fetch_and_add(&p->references, 1);
}

/* The context, if that was the last reference; else 0. */
static __always_inline u64 release_primary(const struct caller *who, u32 device)
{
	struct primary *p = primary_of(who, device);

	if (!p || !p->references)
		return 0;
	__sync_fetch_and_add(&p->references, -1);
	return p->references ? 0 : p->context;
}

/* The thread's top context becomes this one, of `device`; DEVICE_UNKNOWN for contexts made before we looked. */
static __always_inline void set_context(const struct caller *who, u64 context, u8 device, int push)
{
	struct thread *t = thread_of(who);

	if (!t) {
		struct thread fresh = {
			.born_ns = who->born_ns,
			.incarnation = who->incarnation,
			.depth = 1,
			.contexts = { context },
			.devices = { device },
		};
		bpf_map_update_elem(&threads, &who->pid_tgid, &fresh, BPF_ANY);
		return;
	}
	if (push || !t->depth)
		t->depth++;
	t->contexts[top_of(t)] = context;
	t->devices[top_of(t)] = device;
}

static __always_inline void pop_context(const struct caller *who)
{
	struct thread *t = thread_of(who);

	if (t && t->depth)
		t->depth--;
}

#endif
