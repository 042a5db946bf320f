// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Programs of PyTorch: which code makes tensors that live, and where does a backward pass begin?
 *
 * Its functions may throw. A return probe would put an address on the stack that no exception gets past, and the
 * program would end: these probes sit on the functions' own return instructions. */
#include "abi/cookies.h"
#include "abi/memory.h"
#include "abi/programs.h"
#include "abi/samples.h"
#include "profile/calls.bpf.h"
#include "profile/stacks.bpf.h"

SEC("uprobe")
int profile_backward(struct pt_regs *ctx)
{
	struct weight w = weight_of(0);
	struct caller who;

	if (identify(&who) && unwindable(&who))
		take_at_entry(ctx, &who, SAMPLE_BACKWARD, attach_cookie(ctx), &w, 0);
	return 0;
}

SEC("uprobe")
int profile_backward_done(struct pt_regs *ctx)
{
	struct caller who;

	if (identify(&who) && unwindable(&who))
		submit_head(&who, SAMPLE_BACKWARD_DONE, attach_cookie(ctx), bpf_ktime_get_ns(), 0);
	return 0;
}

struct tensor {
	u64 size;
	u64 group;
};

/* The tensors that live. Those beyond the map are in no profile of memory in use, and counted as lost. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 20);
	__type(key, struct live_key);
	__type(value, struct tensor);
} tensors SEC(".maps");

/* By number. A group ends with its last tensor; the agent removes those of ended processes. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 18);
	__type(key, u64);
	__type(value, struct tensor_group);
} tensor_groups SEC(".maps");

u64 groups_made = 0;

static __always_inline void end_tensor(const struct live_key *key)
{
	struct tensor *tensor = bpf_map_lookup_elem(&tensors, key);
	struct tensor_group *group;
	u64 size, number;

	if (!tensor)
		return;
	size = tensor->size;
	number = tensor->group;
	if (!TAKE_OUT(tensors, TABLE_TENSORS, key, key))
		return;
	group = bpf_map_lookup_elem(&tensor_groups, &number);
	if (group && __sync_fetch_and_sub(&group->bytes, size) == size && group->closed)
		TAKE_OUT(tensor_groups, TABLE_TENSOR_GROUPS, key, &number);
}

/* Adds a tensor to its thread's group; returns the group's number, 0 when there is no room. */
static __always_inline u64 join_group(const struct caller *who, const struct live_key *key, u64 size)
{
	struct sampler *s = sampler_of(who, SAMPLE_TENSOR);
	struct tensor_group *group, fresh = { .tgid = who->tgid, .exec_id = who->exec_id };
	struct tensor tensor = { .size = size };

	if (!s)
		return 0;
	if (!s->group) {
		s->group = __sync_fetch_and_add(&groups_made, 1) + 1;
		tensor.group = s->group;
		PUT_IN(tensor_groups, TABLE_TENSOR_GROUPS, who, &tensor.group, &fresh);
	}
	tensor.group = s->group;
	group = bpf_map_lookup_elem(&tensor_groups, &tensor.group);
	/* The address comes again only when a free went unseen. */
	end_tensor(key);
	if (!group || !PUT_IN(tensors, TABLE_TENSORS, who, key, &tensor)) {
		lose(LOSS_LIVE_FULL);
		return tensor.group;
	}
	__sync_fetch_and_add(&group->bytes, size);
	return tensor.group;
}

static __always_inline void close_group(const struct caller *who, u64 number)
{
	struct tensor_group *group = bpf_map_lookup_elem(&tensor_groups, &number);
	struct sampler *s = sampler_of(who, SAMPLE_TENSOR);

	if (s)
		s->group = 0;
	if (!group)
		return;
	group->closed = 1;
	if (!group->bytes)
		TAKE_OUT(tensor_groups, TABLE_TENSOR_GROUPS, who, &number);
}

SEC("uprobe")
int profile_tensor(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct caller who;
	struct entered *e;

	if (!identify(&who) || !unwindable(&who))
		return 0;
	e = enter(&who, cookie);
	if (!e)
		return 0;
	e->size = argument(ctx, COOKIE_SIZE(cookie));
	e->address = argument(ctx, COOKIE_OUT(cookie));
	return 0;
}

SEC("uprobe")
int profile_tensor_made(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx), group;
	struct live_key key = {};
	struct caller who;
	struct entered e;
	struct weight w;

	if (!identify(&who) || !leave(&who, cookie, &e))
		return 0;
	key.tgid = who.tgid;
	key.exec_id = who.exec_id;
	if (!read_user(&key.address, sizeof(key.address), e.address) || !key.address)
		return 0;
	group = join_group(&who, &key, e.size);
	w = weight_of(e.size);
	if (is_due(&who, SAMPLE_TENSOR, &w)) {
		if (take_at_entry(ctx, &who, SAMPLE_TENSOR, cookie, &w, group))
			close_group(&who, group);
		else
			keep(sampler_of(&who, SAMPLE_TENSOR), w.value, w.calls);
	}
	return 0;
}

SEC("uprobe")
int profile_tensor_free(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	struct live_key key = {};
	struct caller who;

	if (!identify(&who))
		return 0;
	key.tgid = who.tgid;
	key.exec_id = who.exec_id;
	key.address = argument(ctx, COOKIE_OUT(cookie));
	if (key.address)
		end_tensor(&key);
	return 0;
}
