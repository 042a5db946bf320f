/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which queue pairs are there, what is under way in them, and where is it counted? */
#ifndef OTEL_GPU_RDMA_QUEUE_PAIRS_BPF_H
#define OTEL_GPU_RDMA_QUEUE_PAIRS_BPF_H

#include "abi/rdma.h"
#include "lib/arguments.bpf.h"
#include "lib/shares.bpf.h"
#include "rdma/layouts.h"

/* How many work requests of a queue pair are remembered, the last ones: those under way are among them, or it is said
 * that they are not. A power of two. */
#define RING 256

/* A work request that was posted. */
struct posted {
	u64 wr_id;
	u64 when; /* nanoseconds, and in the lowest bits its operation and whether it has a completion */
};
#define POSTED_SIGNALED 8
#define POSTED_BITS 15ULL

struct work_ring {
	struct posted posted[RING];
};

struct work_ring_key {
	u32 tgid;
	u32 incarnation;
	u64 id;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct queue_pair_key);
	__type(value, struct queue_pair);
} queue_pairs SEC(".maps");

/* Those that were destroyed, until the agent has read what they did. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct work_ring_key);
	__type(value, struct queue_pair);
} gone_pairs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, struct work_ring_key);
	__type(value, struct work_ring);
} work_rings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 131072);
	__type(key, struct rdma_row_key);
	__type(value, struct rdma_row);
} rdma_rows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, struct program_key);
	__type(value, struct verbs_program);
} verbs_programs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, struct program_key);
	__type(value, struct poll_window);
} poll_windows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} verbs_events SEC(".maps");

/* How many queue pairs were numbered. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} last_id SEC(".maps");

/* Where what is too large for the stack is made. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct queue_pair);
} made_pair SEC(".maps");

static const struct work_ring no_ring = {};
static const struct verbs_program no_verbs = {};
static const struct rdma_row no_rdma_row = {};

#define MOST_EVENTS 4096 /* of a program: it opens no more devices than that */

static __always_inline struct verbs_program *verbs_of(const struct caller *who)
{
	struct program_key key = { who->tgid, who->incarnation };
	struct verbs_program *found = bpf_map_lookup_elem(&verbs_programs, &key);

	if (found)
		return found;
	meet();
	if (!KEEP_IN(verbs_programs, TABLE_VERBS_PROGRAMS, who, &key, &no_verbs)) {
		lose(LOSS_RDMA_FULL);
		return NULL;
	}
	return bpf_map_lookup_elem(&verbs_programs, &key);
}

static __always_inline struct verbs_event *event_of(const struct caller *who, struct verbs_program *program, u32 kind)
{
	struct verbs_event *event = NULL;

	if (program->told < MOST_EVENTS)
		event = bpf_ringbuf_reserve(&verbs_events, sizeof(*event), 0);
	if (!event) {
		lose(LOSS_EVENTS_FULL);
		return NULL;
	}
	program->told++;
	event->kind = kind;
	event->tgid = who->tgid;
	event->incarnation = who->incarnation;
	event->pad = 0;
	__builtin_memset(event->functions, 0, sizeof(event->functions));
	return event;
}

static __always_inline void add_row(const struct caller *who, u64 id, u8 kind, u8 operation, u8 bucket, u64 sum)
{
	struct rdma_row_key key = {
		.tgid = who->tgid,
		.incarnation = who->incarnation,
		.id = id,
		.kind = kind,
		.operation = operation,
		.bucket = bucket,
	};
	struct rdma_row *row = bpf_map_lookup_elem(&rdma_rows, &key);

	if (!row) {
		if (!KEEP_IN(rdma_rows, TABLE_RDMA_ROWS, who, &key, &no_rdma_row)) {
			lose(LOSS_RDMA_FULL);
			return;
		}
		row = bpf_map_lookup_elem(&rdma_rows, &key);
		if (!row)
			return;
	}
	__sync_fetch_and_add(&row->count, 1);
	__sync_fetch_and_add(&row->sum, sum);
}

static __always_inline struct poll_window *window_of(const struct caller *who)
{
	struct program_key key = { who->tgid, who->incarnation };

	return bpf_map_lookup_elem(&poll_windows, &key);
}

/* The entry of a queue pair, made where there is none: of one that finds no room, that of all such. */
static __noinline struct queue_pair *make_pair(const struct caller *who, u64 context, u32 qpn)
{
	struct queue_pair_key key = { who->tgid, who->incarnation, context, qpn, 0 };
	struct queue_pair *new, *found;
	struct work_ring_key ring;
	u32 zero = 0;
	u64 *last = bpf_map_lookup_elem(&last_id, &zero), device = 0;

	new = bpf_map_lookup_elem(&made_pair, &zero);
	if (!new || !last || !verbs_of(who))
		return NULL;
	__builtin_memset(new, 0, sizeof(*new));
	new->state = STATE_UNKNOWN;
	new->id = __sync_fetch_and_add(last, 1) + 1;
	if (qpn != QPN_NONE) {
		if (!bpf_probe_read_user(&device, sizeof(device), (void *)context))
			bpf_probe_read_user_str(new->device, sizeof(new->device), (void *)(device + DEVICE_NAME_AT));
	}
	new->key = key;
	if (!PUT_IN(queue_pairs, TABLE_QUEUE_PAIRS, who, &key, new)) {
		found = bpf_map_lookup_elem(&queue_pairs, &key);
		if (found)
			return found;
		lose(LOSS_RDMA_FULL);
		return NULL;
	}
	ring = (struct work_ring_key){ who->tgid, who->incarnation, new->id };
	found = bpf_map_lookup_elem(&queue_pairs, &key);
	if (found && qpn != QPN_NONE && !PUT_IN(work_rings, TABLE_WORK_RINGS, who, &ring, &no_ring)) {
		lose(LOSS_RDMA_FULL);
		found->is_lost = 1;
	}
	return found;
}

static __always_inline struct queue_pair *find_pair(const struct caller *who, u64 context, u32 qpn)
{
	struct queue_pair_key key = { who->tgid, who->incarnation, context, qpn, 0 };

	return bpf_map_lookup_elem(&queue_pairs, &key);
}

static __always_inline struct queue_pair *pair_of(const struct caller *who, u64 context, u32 qpn)
{
	struct queue_pair *found = find_pair(who, context, qpn);

	return found ? found : make_pair(who, context, qpn);
}

/* The same, where there may be no room: what is posted is counted at least. */
static __always_inline struct queue_pair *any_pair(const struct caller *who, u64 context, u32 qpn)
{
	struct queue_pair *found = pair_of(who, context, qpn);

	if (!found)
		found = pair_of(who, 0, QPN_NONE);
	return found;
}

static __always_inline struct work_ring *ring_of(const struct queue_pair *pair)
{
	struct work_ring_key key = { pair->key.tgid, pair->key.incarnation, pair->id };

	return pair->is_lost || pair->key.qpn == QPN_NONE ? NULL : bpf_map_lookup_elem(&work_rings, &key);
}

/* Nothing is under way in a queue pair that was just made, or set back. */
static __always_inline void begin_anew(const struct caller *who, struct queue_pair *pair)
{
	struct poll_window *window = window_of(who);

	pair->from_start = 1;
	pair->base = pair->tail = pair->posted;
	pair->is_followed = window && window->is_open;
	pair->window = window ? window->number : 0;
	pair->last_done_ns = 0;
}

static __always_inline u32 operation_of(u32 opcode)
{
	return opcode < RDMA_OTHER ? opcode : RDMA_OTHER;
}

static __always_inline void note_posted(struct queue_pair *pair, struct work_ring *ring, u64 now, u64 wr_id,
					u32 operation, u64 bytes, u32 is_signaled)
{
	u64 at = __sync_fetch_and_add(&pair->posted, 1);
	struct posted *slot;

	operation &= RDMA_OPERATIONS - 1;
	__sync_fetch_and_add(&pair->operations[operation], 1);
	__sync_fetch_and_add(&pair->bytes[operation], bytes);
	if (!ring)
		return;
	slot = &ring->posted[at & (RING - 1)];
	slot->wr_id = wr_id;
	slot->when = (now & ~POSTED_BITS) | operation | (is_signaled ? POSTED_SIGNALED : 0);
}

#endif
