/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Programs of virtual memory, a part of the ledger: when does a handle's memory go? */
#ifndef OTEL_GPU_VIRTUAL_MEMORY_BPF_H
#define OTEL_GPU_VIRTUAL_MEMORY_BPF_H

#include "memory.bpf.h"

/* Virtual memory: a handle's memory goes when it has neither references nor mappings. */

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
	key->tgid = who->tgid;
	key->incarnation = who->incarnation;
	key->address = handle;
	return bpf_map_lookup_elem(&live, key);
}

static __always_inline void free_handle(const struct caller *who, struct live_key *key, struct live *handle)
{
	struct live gone = *handle;

	if (gone.refs || gone.maps)
		return;
	if (!bpf_map_delete_elem(&live, key) && gone.size) /* what was imported is its maker's */
		count_memory(who, FAMILY_FREE, &gone, FREE_CALLED);
}

/* The calls about handles: what they do is done when they have succeeded. */
SEC("uprobe")
int handle_call(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct call call = {};
	struct caller who;

	if (!identify(&who))
		return 0;
	call.address = argument(ctx, COOKIE_OUT(cookie));
	if (COOKIE_SIZE(cookie) != ARGUMENT_NONE)
		call.size = argument(ctx, COOKIE_SIZE(cookie));
	if (COOKIE_SIZE2(cookie) != ARGUMENT_NONE)
		call.stream = argument(ctx, COOKIE_SIZE2(cookie));
	enter(ctx, &who, cookie, &call);
	return 0;
}

/* cuMemRelease(handle) */
SEC("uretprobe")
int handle_released(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct live_key key = {};
	struct live *handle;
	struct caller who;
	struct call call;

	if (!succeeded(ctx, cookie, &who, &call))
		return 0;
	handle = find_handle(&who, call.address, &key);
	if (handle) {
		if (handle->refs)
			handle->refs--;
		free_handle(&who, &key, handle);
	} else {
		struct live unknown = { .type = MEMORY_UNKNOWN | (COOKIE_KIND(cookie) & KIND_HIP),
					.device = DEVICE_UNKNOWN };
		count_memory(&who, FAMILY_FREE, &unknown, FREE_CALLED);
	}
	return 0;
}

/* cuMemRetainAllocationHandle(handle *, address) */
SEC("uretprobe")
int handle_retained(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), which;
	struct live_key key = {};
	struct live *handle;
	struct caller who;
	struct call call;

	if (!succeeded(ctx, cookie, &who, &call) || !read_user(&which, sizeof(which), call.address))
		return 0;
	handle = find_handle(&who, which, &key);
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
	struct live_key key = {};
	struct caller who;
	struct call call;

	if (!succeeded(ctx, cookie, &who, &call) || !read_user(&key.address, sizeof(key.address), call.address))
		return 0;
	key.tgid = who.tgid;
	key.incarnation = who.incarnation;
	imported.since_ns = bpf_ktime_get_ns();
	keep_live(&key, &imported);
	return 0;
}

/* cuMemMap(address, size, offset, handle, flags) */
SEC("uretprobe")
int handle_mapped(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct live_key key = {};
	struct mapping mapping;
	struct live *handle;
	struct caller who;
	struct call call;

	if (!succeeded(ctx, cookie, &who, &call))
		return 0;
	handle = find_handle(&who, call.size, &key);
	if (!handle)
		return 0;
	/* Not counted where it would never be seen to end. */
	key.address = call.address;
	mapping = (struct mapping){ .handle = call.size, .size = call.stream };
	if (bpf_map_update_elem(&mapped, &key, &mapping, BPF_ANY))
		lose(LOSS_LIVE_FULL);
	else
		handle->maps++;
	return 0;
}

#define MAX_UNMAPPED 32 /* mappings of one call, side by side; more are reported as unreadable */

/* cuMemUnmap(address, size): of one mapping, or of several that lie side by side. */
SEC("uretprobe")
int handle_unmapped(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), end;
	struct live_key key = {}, of_handle = {};
	struct mapping *found, mapping;
	struct live *handle;
	struct caller who;
	struct call call;

	if (!succeeded(ctx, cookie, &who, &call))
		return 0;
	key.tgid = who.tgid;
	key.incarnation = who.incarnation;
	key.address = call.address;
	end = call.address + call.size;
	for (int i = 0; i < MAX_UNMAPPED; i++) {
		found = bpf_map_lookup_elem(&mapped, &key);
		if (!found)
			return 0;
		mapping = *found;
		bpf_map_delete_elem(&mapped, &key);
		handle = find_handle(&who, mapping.handle, &of_handle);
		if (handle) {
			if (handle->maps)
				handle->maps--;
			free_handle(&who, &of_handle, handle);
		}
		key.address += mapping.size;
		if (!mapping.size || key.address >= end)
			return 0;
	}
	lose(LOSS_READ_FAILED);
	return 0;
}

#endif
