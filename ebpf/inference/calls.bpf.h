/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which call does gRPC's core hand to Python? Its own threads read sockets, the thread of grpc.server takes calls from a
 * queue in the core and puts each into an executor, once. Whose it is, is known where exactly one has arrived since all
 * before were put, and nothing came that is not followed; else nobody can tell. */
#ifndef OTEL_GPU_INFERENCE_CALLS_BPF_H
#define OTEL_GPU_INFERENCE_CALLS_BPF_H

#include "inference/tables.bpf.h"

#define CALLS_BLIND_NS 60000000000ULL /* so long may what came unseen wait to be put */

struct arrived_calls {
	u64 counts; /* arrived << 32 | put */
	u64 sum;    /* of the requests that arrived: of one alone, it is that one, */
	u64 latest; /* and the latest is it too */
	u64 latest_ns;
	u64 blind_ns; /* when something was last read that is not followed */
};
#define CALL_ARRIVED (1ULL << 32)
#define CALL_PUT 1ULL

/* Programs with gRPC's core. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, struct program_key);
	__type(value, struct arrived_calls);
} arrived_calls SEC(".maps");

static const struct arrived_calls no_calls = {};

static __always_inline struct arrived_calls *calls_of(u32 tgid, u32 exec_id)
{
	struct program_key key = { tgid, exec_id };
	struct arrived_calls *a = bpf_map_lookup_elem(&arrived_calls, &key);

	if (a)
		return a;
	bpf_map_update_elem(&arrived_calls, &key, &no_calls, BPF_NOEXIST);
	return bpf_map_lookup_elem(&arrived_calls, &key);
}

/* One of the core's threads, or the one that waits in it, has read a call: 0 for what is not followed. */
static __always_inline void call_arrives(u32 tgid, u32 exec_id, u64 request)
{
	struct arrived_calls *a = calls_of(tgid, exec_id);
	u64 now = bpf_ktime_get_ns();

	if (!a)
		return;
	if (!request) {
		a->blind_ns = now;
		return;
	}
	/* What came so long ago, and was never put, was refused or cancelled. */
	if (a->counts && now - a->latest_ns > CALLS_BLIND_NS) {
		a->sum = 0;
		a->counts = 0;
	}
	a->latest_ns = now;
	a->latest = request;
	__sync_fetch_and_add(&a->sum, request);
	__sync_fetch_and_add(&a->counts, CALL_ARRIVED);
}

/* A call is put: which one, or 0 where nobody can tell. */
static __always_inline u64 call_is_put(u32 tgid, u32 exec_id)
{
	struct arrived_calls *a = calls_of(tgid, exec_id);
	u64 counts, sum, now = bpf_ktime_get_ns();

	if (!a)
		return 0;
	sum = a->sum;
	counts = a->counts;
	if (counts == CALL_ARRIVED && sum == a->latest && (!a->blind_ns || now - a->blind_ns > CALLS_BLIND_NS)) {
		if (__sync_val_compare_and_swap(&a->counts, counts, 0) == counts) {
			__sync_fetch_and_add(&a->sum, -sum);
			return sum;
		}
		counts = a->counts;
	}
	if ((u32)counts + 1 < counts >> 32) {
		__sync_fetch_and_add(&a->counts, CALL_PUT);
	} else if (counts && __sync_val_compare_and_swap(&a->counts, counts, 0) == counts) {
		__sync_fetch_and_add(&a->sum, -sum);
	} else {
		/* More were put than were seen to arrive. */
		a->blind_ns = now;
	}
	return 0;
}

#endif
