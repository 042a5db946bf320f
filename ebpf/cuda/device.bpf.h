/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which device does a thread work on? Contexts know their device; threads have a stack of contexts. */
#ifndef OTEL_GPU_CUDA_DEVICE_BPF_H
#define OTEL_GPU_CUDA_DEVICE_BPF_H

#include "abi/cookies.h"
#include "abi/programs.h"
#include "abi/rows.h"
#include "cuda/threads.bpf.h"

#define OF_PRIMARY 64 /* with a context's device: its memory is the primary context's, as that of green contexts is */
_Static_assert(ORDINALS <= OF_PRIMARY, "a context's device has room for OF_PRIMARY");

/* Contexts, and green ones -> device ordinal, with OF_PRIMARY. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct context_key);
	__type(value, u8);
} contexts SEC(".maps");

struct device_key {
	u32 tgid;
	u32 exec_id;
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

/* When the probes of each library were placed, by CLOCK_BOOTTIME: the agent saw everything that a program begun since then
 * did there. Written by the agent, which writes ~0 while it places some. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LIBRARIES);
	__type(key, u32);
	__type(value, u64);
} placed SEC(".maps");

static __always_inline u8 ordinal(u64 device)
{
	return device < ORDINALS ? device : DEVICE_UNKNOWN;
}

static __always_inline u32 top_of(const struct thread *t)
{
	u32 top = (t->depth - 1) & (CONTEXT_STACK - 1);

	asm volatile("" : "+r"(top)); /* the verifier must see the mask */
	return top & (CONTEXT_STACK - 1);
}

static __always_inline u8 device_of_thread(const struct thread *t)
{
	return t && t->depth ? t->devices[top_of(t)] : DEVICE_UNKNOWN;
}

static __always_inline u8 device_of(const struct caller *who)
{
	return device_of_thread(thread_of(who));
}

static __always_inline u64 context_of_thread(const struct thread *t)
{
	return t && t->depth ? t->contexts[top_of(t)] : 0;
}

static __always_inline u8 device_of_context(const struct caller *who, u64 context)
{
	struct context_key key = { who->tgid, who->exec_id, context };
	u8 *device = bpf_map_lookup_elem(&contexts, &key);

	return device && *device != DEVICE_UNKNOWN ? *device & ~OF_PRIMARY : DEVICE_UNKNOWN;
}

RARE int learn_context(u64 context, u32 device)
{
	struct context_key key;
	struct caller who;
	u8 value = device, *known;

	if (!identify(&who))
		return 0;
	key = (struct context_key){ who.tgid, who.exec_id, context };
	known = bpf_map_lookup_elem(&contexts, &key);
	if (known)
		*known = value;
	else if (!KEEP_IN(contexts, TABLE_CONTEXTS, &who, &key, &value))
		lose(LOSS_CONTEXTS_FULL);
	return 0;
}

/* A context is no more: its address may become another's. */
static __always_inline void forget_context(const struct caller *who, u64 context)
{
	struct context_key key = { who->tgid, who->exec_id, context };

	TAKE_OUT(contexts, TABLE_CONTEXTS, who, &key);
}

static __always_inline struct primary *primary_of(const struct caller *who, u32 device)
{
	struct device_key key = { who->tgid, who->exec_id, device };

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

/* The context that memory belongs to which is allocated in this one. */
static __always_inline u64 context_of_memory(const struct caller *who, u64 context)
{
	struct context_key key = { who->tgid, who->exec_id, context };
	u8 *device = bpf_map_lookup_elem(&contexts, &key);
	u64 primary = 0;

	if (device && *device != DEVICE_UNKNOWN && *device & OF_PRIMARY)
		primary = primary_context(who, *device & ~OF_PRIMARY);
	return primary ? primary : context;
}

/* A reference counts from the call that takes it to the return of the call that gives it back: never too low, whatever
 * other threads do meanwhile. */
RARE int retain_primary(u32 device, u32 library)
{
	struct primary *p, fresh = {};
	struct device_key key;
	struct caller who;
	u64 *placed_ns;

	if (device >= ORDINALS || !identify(&who))
		return 0;
	key = (struct device_key){ who.tgid, who.exec_id, device };
	p = bpf_map_lookup_elem(&primaries, &key);
	if (!p) {
		placed_ns = bpf_map_lookup_elem(&placed, &library);
		fresh.references = placed_ns && *placed_ns < process_start((void *)bpf_get_current_task()) ? 0 : UNSEEN;
		PUT_IN(primaries, TABLE_PRIMARIES, &who, &key, &fresh);
		p = bpf_map_lookup_elem(&primaries, &key);
	}
	if (p)
		__sync_fetch_and_add(&p->references, 1);
	else
		lose(LOSS_CONTEXTS_FULL);
	return 0;
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
	struct thread *t = meet_thread(who);

	if (!t) {
		lose(LOSS_CONTEXTS_FULL);
		return;
	}
	if (push || !t->depth)
		t->depth++;
	t->contexts[top_of(t)] = context;
	t->devices[top_of(t)] = device;
}

/* The device of the thread's current context has become known: CUDA's runtime makes a primary context current before it
 * retains it. */
static __always_inline void find_device(struct thread *t, u64 context, u8 device)
{
	if (context_of_thread(t) == context)
		t->devices[top_of(t)] = device;
}

static __always_inline void pop_context(const struct caller *who)
{
	struct thread *t = thread_of(who);

	if (t && t->depth)
		t->depth--;
}

#endif
