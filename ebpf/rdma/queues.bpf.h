/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Of which queue pair is all that completes in a completion queue? Known of those that were seen being made and had one alone. */
#ifndef OTEL_GPU_RDMA_QUEUES_BPF_H
#define OTEL_GPU_RDMA_QUEUES_BPF_H

#include "rdma/queue_pairs.bpf.h"

struct completion_queue_key {
	u32 tgid;
	u32 exec_id;
	u64 queue;
};

struct completion_queue {
	u32 pairs; /* that it ever had: 0, 1, or 2 for more */
	u32 qpn;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct completion_queue_key);
	__type(value, struct completion_queue);
} completion_queues SEC(".maps");

static __noinline int note_queue(const struct caller *who, u64 queue, u32 qpn)
{
	struct completion_queue_key key = { who->tgid, who->exec_id, queue };
	struct completion_queue *found = bpf_map_lookup_elem(&completion_queues, &key);

	if (!found)
		return 0;
	if (!found->pairs) {
		found->qpn = qpn;
		found->pairs = 1;
	} else if (found->qpn != qpn) {
		found->pairs = 2;
	}
	return 0;
}

/* The queue pair of all that completes in a queue; NULL where that is not known. */
static __noinline struct queue_pair *only_pair(const struct caller *who, u64 context, u64 queue)
{
	struct completion_queue_key key = { who->tgid, who->exec_id, queue };
	struct completion_queue *found = bpf_map_lookup_elem(&completion_queues, &key);

	return found && found->pairs == 1 ? find_pair(who, context, found->qpn) : NULL;
}

#endif
