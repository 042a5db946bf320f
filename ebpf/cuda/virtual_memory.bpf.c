// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Programs of virtual memory: when does a handle's memory go? When it has neither references nor mappings. */
#include "abi/cookies.h"
#include "abi/memory.h"
#include "abi/programs.h"
#include "abi/rows.h"
#include "cuda/calls.bpf.h"
#include "cuda/live.bpf.h"
#include "cuda/ranges.bpf.h"
#include "lib/loops.bpf.h"

struct mapping {
	u64 handle;
	u64 size;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1048576);
	__type(key, struct live_key); /* address of the mapping */
	__type(value, struct mapping);
} mapped SEC(".maps");

static __always_inline struct live *find_handle(const struct caller *who, u64 handle, struct live_key *key)
{
	*key = (struct live_key){ who->tgid, who->exec_id, handle };
	return bpf_map_lookup_elem(&live, key);
}

/* Counts a handle as freed that nothing holds any more. */
static __always_inline int end_handle(const struct caller *who, struct live *handle, const struct live_key *key)
{
	struct live gone;

	if (!handle || handle->refs || handle->maps)
		return 0;
	gone = *handle;
	if (TAKE_OUT(live, TABLE_LIVE, who, key) && gone.size) /* what was imported is its maker's */
		count_memory(who, FAMILY_FREE, &gone, FREE_CALLED);
	return 0;
}

RARE int free_handle(u64 which)
{
	struct live_key key;
	struct caller who;

	if (!identify(&who))
		return 0;
	return end_handle(&who, find_handle(&who, which, &key), &key);
}

/* The calls about handles: what they do is done when they have succeeded. */
SEC("uprobe")
int handle_call(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct caller who;
	struct call *call;

	call = call_begun(&who, cookie);
	if (!call)
		return 0;
	call->address = argument(ctx, COOKIE_OUT(cookie));
	if (COOKIE_SIZE(cookie) != ARGUMENT_NONE)
		call->size = argument(ctx, COOKIE_SIZE(cookie));
	if (COOKIE_SIZE2(cookie) != ARGUMENT_NONE)
		call->stream = argument(ctx, COOKIE_SIZE2(cookie));
	return 0;
}

/* cuMemRelease(handle) */
SEC("uretprobe")
int handle_released(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct returning back;
	struct live_key key;
	struct live *handle;

	if (!succeeded(ctx, cookie, &back))
		return 0;
	handle = find_handle(&back.who, back.call->address, &key);
	if (!handle) {
		count_unknown_free(&back.who, cookie);
		return 0;
	}
	if (handle->refs)
		handle->refs--;
	return free_handle(back.call->address);
}

/* cuMemRetainAllocationHandle(handle *, address) */
SEC("uretprobe")
int handle_retained(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), which;
	struct returning back;
	struct live_key key;
	struct live *handle;

	if (!succeeded(ctx, cookie, &back) || !read_user(&which, sizeof(which), back.call->address))
		return 0;
	handle = find_handle(&back.who, which, &key);
	if (handle)
		handle->refs++;
	return 0;
}

/* cuMemImportFromShareableHandle(handle *, shareable, type): the memory is counted where it was made, but what is done
 * with the handle is no mistake. */
SEC("uretprobe")
int handle_imported(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct live imported = { .type = MEMORY_VIRTUAL, .device = DEVICE_UNKNOWN, .refs = 1 };
	struct returning back;
	struct live_key key;

	if (!succeeded(ctx, cookie, &back))
		return 0;
	key = (struct live_key){ back.who.tgid, back.who.exec_id, 0 };
	if (!read_user(&key.address, sizeof(key.address), back.call->address))
		return 0;
	imported.since_ns = bpf_ktime_get_ns();
	if (!bpf_map_lookup_elem(&live, &key))
		keep_live(&back.who, &key, &imported);
	return 0;
}

/* cuMemMap(address, size, offset, handle, flags) */
SEC("uretprobe")
int handle_mapped(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct returning back;
	struct mapping mapping, *known;
	struct program *program;
	struct live_key key;
	struct live *handle;

	if (!succeeded(ctx, cookie, &back))
		return 0;
	mapping = (struct mapping){ .handle = back.call->size, .size = back.call->stream };
	handle = find_handle(&back.who, mapping.handle, &key);
	program = program_of(&back.who);
	key = (struct live_key){ back.who.tgid, back.who.exec_id, back.call->address };
	known = bpf_map_lookup_elem(&mapped, &key);
	/* Not counted where it would never be seen to end. */
	if (known) {
		forget_range(key.address, known->size);
		*known = mapping;
	} else if (!PUT_IN(mapped, TABLE_MAPPED, &back.who, &key, &mapping))
		return lose(LOSS_LIVE_FULL);
	learn_range(key.address, mapping.size,
		    program && program->places_memory ? LIES_UNKNOWN
						      : LIES_ON(handle ? handle->device : DEVICE_UNKNOWN));
	if (handle)
		handle->maps++;
	return 0;
}

#define GRANULE (2ull << 20) /* the least that CUDA maps: where a mapping of unknown size may end */
#define SIDE_BY_SIDE 1024    /* mappings; as often in one call, as many as `mapped` has room for */

/* Takes one mapping away. Returns its size; 0 for a mapping that is not known, as one that is older than the probes. */
static __always_inline u64 unmap(const struct caller *who, u64 address)
{
	struct live_key key = { who->tgid, who->exec_id, address };
	struct mapping *found = bpf_map_lookup_elem(&mapped, &key), mapping;
	struct live *handle;

	if (!found)
		return 0;
	mapping = *found;
	if (!TAKE_OUT(mapped, TABLE_MAPPED, who, &key))
		return mapping.size;
	forget_range(address, mapping.size);
	/* From here on the key is the handle's. There is no room on the stack for two, nor for a function of its own. */
	handle = find_handle(who, mapping.handle, &key);
	if (handle) {
		if (handle->maps)
			handle->maps--;
		end_handle(who, handle, &key);
	}
	return mapping.size;
}

/* Takes the mapping at an address away. Returns where the next one begins; 0 for the end. */
RARE u64 unmap_next(u64 at, u64 end)
{
	struct caller who;
	u64 size;

	if (at >= end || !identify(&who))
		return 0;
	size = unmap(&who, at) ?: GRANULE;
	return size < end - at ? at + size : 0;
}

RARE u64 unmap_side_by_side(u64 at, u64 end)
{
	REPEAT_WHILE(SIDE_BY_SIDE, (at = unmap_next(at, end)));
	return at;
}

/* cuMemUnmap(address, size): of one mapping, or of several that lie side by side. The loops lie in each other, as functions
 * that the verifier looks at by themselves: kernels below 5.17 have no loop that is long enough. */
SEC("uretprobe")
int handle_unmapped(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), at, end;
	struct returning back;

	if (!succeeded(ctx, cookie, &back))
		return 0;
	at = back.call->address;
	end = at + back.call->size;
	REPEAT_WHILE(SIDE_BY_SIDE, (at = unmap_side_by_side(at, end)));
	if (at)
		lose(LOSS_READ_FAILED);
	return 0;
}
