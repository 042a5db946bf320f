/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Programs of the memory ledger: what is allocated now? */
#ifndef OTEL_GPU_MEMORY_BPF_H
#define OTEL_GPU_MEMORY_BPF_H

#include "calls.bpf.h"
#include "device.bpf.h"
#include "pinned.bpf.h"

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

/* What lives and what was allocated less what was freed are the same at all times: an allocation that finds no place
 * is counted in neither, but as a loss. */
static __always_inline int keep_live(const struct live_key *key, const struct live *what)
{
	/* Elements come from a cache of the CPU's, which is filled from an interrupt as it runs low. Having found it
	 * empty, we come back when that interrupt has been. */
	if (!bpf_map_update_elem(&live, key, what, BPF_NOEXIST) || !bpf_map_update_elem(&live, key, what, BPF_NOEXIST))
		return 1;
	lose(LOSS_LIVE_FULL);
	return 0;
}

SEC("uprobe")
int alloc(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	u32 out = COOKIE_OUT(cookie);
	struct call call = {};
	struct caller who;

	if (!identify(&who))
		return 0;
	call.kind = COOKIE_KIND(cookie);
	call.size = argument(ctx, COOKIE_SIZE(cookie));
	call.address = argument(ctx, out);
	if (COOKIE_FLAGS(cookie) & FLAG_PITCHED)
		call.pitch_at = argument(ctx, COOKIE_SIZE2(cookie));
	if (capturing_call(ctx, &who, cookie))
		return 0; /* a graph's node: nothing is allocated now */
	enter(ctx, &who, cookie, &call);
	return 0;
}

SEC("uprobe")
int alloc_extent(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct call call = { .kind = COOKIE_KIND(cookie), .address = argument(ctx, 0) };
	struct caller who;

	if (!identify(&who))
		return 0;
	call.size = rows_of(ctx, &call.pitch_at);
	enter(ctx, &who, cookie, &call);
	return 0;
}

SEC("uretprobe")
int alloc_done(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), pitch;
	struct live_key key = {};
	struct live now = {}, *before;
	struct caller who;
	struct call call;

	if (!succeeded(ctx, cookie, &who, &call))
		return 0;
	key.tgid = who.tgid;
	key.incarnation = who.incarnation;
	key.address = call.address;
	if (!(COOKIE_FLAGS(cookie) & FLAG_DIRECT) && !read_user(&key.address, sizeof(key.address), call.address))
		key.address = 0;
	now.size = call.size;
	if (COOKIE_FLAGS(cookie) & FLAG_PITCHED)
		now.size = read_user(&pitch, sizeof(pitch), call.pitch_at) ? call.size * pitch : 0;
	now.type = call.kind;
	now.device = device_of(&who);
	now.context = context_of(&who);
	now.refs = 1;
	now.since_ns = bpf_ktime_get_ns();
	before = bpf_map_lookup_elem(&live, &key);
	if (before) {
		struct live gone = *before;
		bpf_map_delete_elem(&live, &key);
		count_memory(&who, FAMILY_FREE, &gone, FREE_IMPLICIT);
	}
	if (keep_live(&key, &now))
		count_memory(&who, FAMILY_ALLOC, &now, 0);
	if (COOKIE_FLAGS(cookie) & FLAG_PINS)
		pin(&who, key.address, now.size, 0);
	return 0;
}

/* The address is forgotten at the call, not at the return: once the driver has it back, another thread may be
 * given it before this one returns. A failed call puts it back. */
SEC("uprobe")
int release(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct live_key key = {};
	struct call call = {};
	struct live *found;
	struct caller who;

	if (!identify(&who))
		return 0;
	call.address = argument(ctx, COOKIE_OUT(cookie));
	if (!call.address) /* cudaFree(0), the idiom that makes a context */
		return 0;
	if (capturing_call(ctx, &who, cookie))
		return 0;
	key.tgid = who.tgid;
	key.incarnation = who.incarnation;
	key.address = call.address;
	found = bpf_map_lookup_elem(&live, &key);
	if (found) {
		call.freed = *found;
		bpf_map_delete_elem(&live, &key);
		if (COOKIE_FLAGS(cookie) & FLAG_PINS)
			pin(&who, key.address, call.freed.size, 1);
	} else {
		call.freed.type = MEMORY_UNKNOWN | (COOKIE_KIND(cookie) & KIND_HIP);
		call.freed.device = DEVICE_UNKNOWN;
	}
	enter(ctx, &who, cookie, &call);
	return 0;
}

SEC("uretprobe")
int release_done(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct live_key key = {};
	struct caller who;
	struct call call;

	if (!returned(ctx, cookie, &who, &call))
		return 0;
	if (!RESULT(ctx)) {
		count_memory(&who, FAMILY_FREE, &call.freed, FREE_CALLED);
		return 0;
	}
	if ((call.freed.type & ~KIND_HIP) == MEMORY_UNKNOWN)
		return 0;
	key.tgid = who.tgid;
	key.incarnation = who.incarnation;
	key.address = call.address;
	if (!keep_live(&key, &call.freed))
		count_memory(&who, FAMILY_FREE, &call.freed, FREE_CALLED);
	if (COOKIE_FLAGS(cookie) & FLAG_PINS)
		pin(&who, key.address, call.freed.size, 0);
	return 0;
}

#endif
