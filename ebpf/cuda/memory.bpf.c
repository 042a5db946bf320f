// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Programs of the memory ledger: what is allocated now? */
#include "abi/cookies.h"
#include "abi/memory.h"
#include "abi/programs.h"
#include "abi/rows.h"
#include "cuda/calls.bpf.h"
#include "cuda/device.bpf.h"
#include "cuda/device_files.bpf.h"
#include "cuda/extents.bpf.h"
#include "cuda/live.bpf.h"
#include "cuda/ranges.bpf.h"

SEC("uprobe")
int alloc(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct caller who;
	struct call *call;

	if (!identify(&who))
		return 0;
	if (capturing_call(ctx, &who, cookie)) { /* a graph's node: nothing is allocated now */
		hide_memory();
		return 0;
	}
	call = enter(&who, cookie);
	if (!call)
		return 0;
	call->kind = COOKIE_KIND(cookie);
	call->size = argument(ctx, COOKIE_SIZE(cookie));
	call->address = argument(ctx, COOKIE_OUT(cookie));
	if (COOKIE_FLAGS(cookie) & FLAG_PITCHED)
		call->pitch_at = argument(ctx, COOKIE_SIZE2(cookie));
	else if (COOKIE_SIZE2(cookie) != ARGUMENT_NONE)
		call->device = place_memory(argument(ctx, COOKIE_SIZE2(cookie)) + PROPERTIES_LOCATION);
	return 0;
}

SEC("uprobe")
int alloc_extent(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct caller who;
	struct call *call;

	call = call_begun(&who, cookie);
	if (!call)
		return 0;
	call->kind = COOKIE_KIND(cookie);
	call->address = argument(ctx, 0);
	call->size = rows_of(ctx, &call->pitch_at);
	return 0;
}

SEC("uretprobe")
int alloc_done(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), pitch;
	struct returning back;
	struct live_key key;
	struct live now = {}, *before;
	int kept;

	if (!succeeded(ctx, cookie, &back))
		return 0;
	key = (struct live_key){ back.who.tgid, back.who.exec_id, back.call->address };
	if (!(COOKIE_FLAGS(cookie) & FLAG_DIRECT) && !read_user(&key.address, sizeof(key.address), back.call->address))
		key.address = 0;
	if (!key.address)
		hide_memory();
	now.size = back.call->size;
	if (COOKIE_FLAGS(cookie) & FLAG_PITCHED)
		now.size *= read_user(&pitch, sizeof(pitch), back.call->pitch_at) ? pitch : 0;
	now.size = plausible(now.size);
	now.type = back.call->kind;
	now.device = back.call->device != DEVICE_UNKNOWN ? back.call->device : device_of_thread(back.thread);
	now.context = context_of_memory(&back.who, context_of_thread(back.thread));
	now.refs = 1;
	now.since_ns = bpf_ktime_get_ns();
	before = bpf_map_lookup_elem(&live, &key);
	if (before) {
		struct live gone = *before;
		if (TAKE_OUT(live, TABLE_LIVE, &back.who, &key)) {
			count_memory(&back.who, FAMILY_FREE, &gone, FREE_IMPLICIT);
			forget_where(&back.who, key.address, &gone);
		}
	}
	kept = keep_live(&back.who, &key, &now);
	count_memory(&back.who, FAMILY_ALLOC, &now, kept ? ALLOCATION_LIVES : ALLOCATION_UNTRACKED);
	if (kept)
		learn_where(&back.who, key.address, &now);
	return 0;
}

/* The address is forgotten at the call, not at the return: once the driver has it back, another thread may be
 * given it before this one returns. A failed call puts it back. */
SEC("uprobe")
int release(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), address = argument(ctx, COOKIE_OUT(cookie));
	struct live_key key;
	struct live *found;
	struct caller who;
	struct call *call;

	/* cudaFree(0) is the idiom that makes a context. */
	if (!address || !identify(&who) || capturing_call(ctx, &who, cookie))
		return 0;
	call = enter(&who, cookie);
	if (!call)
		return 0;
	call->address = address;
	call->freed.type = MEMORY_UNKNOWN;
	key = (struct live_key){ who.tgid, who.exec_id, address };
	found = bpf_map_lookup_elem(&live, &key);
	if (found) {
		call->freed = *found;
		if (!TAKE_OUT(live, TABLE_LIVE, &who, &key))
			call->freed.type = MEMORY_UNKNOWN;
		else
			forget_where(&who, address, &call->freed);
	}
	return 0;
}

SEC("uretprobe")
int release_done(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct returning back;
	struct live_key key;
	struct live freed;

	if (!returned(ctx, cookie, &back))
		return 0;
	freed = back.call->freed;
	if ((freed.type & ~KIND_HIP) == MEMORY_UNKNOWN) {
		if (!RESULT(ctx))
			count_unknown_free(&back.who, cookie);
		return 0;
	}
	if (!RESULT(ctx)) {
		count_memory(&back.who, FAMILY_FREE, &freed, FREE_CALLED);
		return 0;
	}
	key = (struct live_key){ back.who.tgid, back.who.exec_id, back.call->address };
	if (keep_live(&back.who, &key, &freed))
		learn_where(&back.who, key.address, &freed);
	else
		count_memory(&back.who, FAMILY_FREE, &freed, FREE_CALLED);
	return 0;
}

/* The driver hands out memory whose size or end is not to be seen: of another process, of another API, of a graph. */
SEC("uprobe")
int memory_hidden(struct pt_regs *ctx)
{
	return hide_memory();
}

/* cuMemPoolCreate(pool *, properties), cuMemGetDefaultMemPool(pool *, location, type) and the like. */
SEC("uprobe")
int memory_placed(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);

	place_memory(argument(ctx, COOKIE_SIZE(cookie)) + COOKIE_SHIFT(cookie));
	return 0;
}

/* cuModuleGetGlobal(address *, bytes *, ...): either may be NULL. */
SEC("uretprobe")
int global_found(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), address, size;
	struct returning back;
	u8 device;

	if (!succeeded(ctx, cookie, &back) || !back.call->address)
		return 0;
	if (!read_user(&address, sizeof(address), back.call->address) || !back.call->size ||
	    !read_user(&size, sizeof(size), back.call->size))
		return hide_memory();
	device = COOKIE_KIND(cookie) == MEMORY_MANAGED ? DEVICE_UNKNOWN : device_of_thread(back.thread);
	learn_range(address, plausible(size), LIES_ON(device));
	return 0;
}

/* cuInit(flags): has the program done anything before? Nothing of it was seen, and it has no device open. */
SEC("uprobe")
int initialized(struct pt_regs *ctx)
{
	struct program *program = met_program();

	if (program && !program->used[TABLE_ROWS] && !program->used[TABLE_THREADS] && !program->used[TABLE_LIVE] &&
	    !has_device_open())
		program->seen_whole = 1;
	return 0;
}
