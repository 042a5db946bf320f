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

static const struct work_ring no_ring = {};
static const struct queue_pair no_pair = { .state = STATE_UNKNOWN };
static const struct verbs_program no_verbs = {};
static const struct rdma_row no_rdma_row = {};

#define MOST_EVENTS 4096 /* of a program: it opens no more devices than that */

/* Puts in an entry of a queue pair that has none, with a number of its own. */
static __noinline struct queue_pair *put_pair(const struct caller *who, const struct queue_pair_key *key)
{
	struct queue_pair *made;
	u32 zero = 0;
	u64 *last = bpf_map_lookup_elem(&last_id, &zero);

	if (!last || !PUT_IN(queue_pairs, TABLE_QUEUE_PAIRS, who, key, &no_pair))
		return NULL;
	made = bpf_map_lookup_elem(&queue_pairs, key);
	if (made) {
		made->id = __sync_fetch_and_add(last, 1) + 1;
		made->key = *key;
	}
	return made;
}

static __noinline int put_none(const struct caller *who)
{
	struct queue_pair_key none = { who->tgid, who->exec_id, 0, QPN_NONE, 0 };

	return put_pair(who, &none) != NULL;
}

/* What is known of a program that uses verbs, made where there is nothing yet: with it comes the entry of its queue pairs
 * that will find no room, as long as there is some. */
static __noinline struct verbs_program *verbs_of(const struct caller *who)
{
	struct program_key key = { who->tgid, who->exec_id };
	struct verbs_program *found = bpf_map_lookup_elem(&verbs_programs, &key);

	if (found)
		return found;
	meet();
	if (PUT_IN(verbs_programs, TABLE_VERBS_PROGRAMS, who, &key, &no_verbs))
		put_none(who);
	found = bpf_map_lookup_elem(&verbs_programs, &key);
	if (!found)
		lose(LOSS_RDMA_FULL);
	return found;
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
	event->exec_id = who->exec_id;
	event->pad = 0;
	__builtin_memset(event->functions, 0, sizeof(event->functions));
	return event;
}

#define ROW_OF(kind, operation, bucket) ((u32)(kind) | (u32)(u8)(operation) << 8 | (u32)(u8)(bucket) << 16)

static __noinline int add_to_row(const struct caller *who, u64 id, u32 what, u64 sum)
{
	struct rdma_row_key key = {
		.tgid = who->tgid,
		.exec_id = who->exec_id,
		.id = id,
		.kind = what,
		.operation = what >> 8,
		.bucket = what >> 16,
	};
	struct rdma_row *row = bpf_map_lookup_elem(&rdma_rows, &key);

	if (!row) {
		if (!KEEP_IN(rdma_rows, TABLE_RDMA_ROWS, who, &key, &no_rdma_row)) {
			lose(LOSS_RDMA_FULL);
			return 0;
		}
		row = bpf_map_lookup_elem(&rdma_rows, &key);
		if (!row)
			return 0;
	}
	__sync_fetch_and_add(&row->count, 1);
	__sync_fetch_and_add(&row->sum, sum);
	return 0;
}

#define ADD_ROW(who, id, kind, operation, bucket, sum) add_to_row(who, id, ROW_OF(kind, operation, bucket), sum)

static __always_inline struct poll_window *window_of(const struct caller *who)
{
	struct program_key key = { who->tgid, who->exec_id };

	return bpf_map_lookup_elem(&poll_windows, &key);
}

static __noinline int put_ring(const struct caller *who, struct queue_pair *pair)
{
	struct work_ring_key key = { who->tgid, who->exec_id, pair->id };

	if (!PUT_IN(work_rings, TABLE_WORK_RINGS, who, &key, &no_ring)) {
		lose(LOSS_RDMA_FULL);
		pair->is_lost = 1;
	}
	return 0;
}

/* The entry of a queue pair, made where there is none; NULL where there is no room. */
static __noinline struct queue_pair *make_pair(const struct caller *who, u64 context, u32 qpn)
{
	struct queue_pair_key key = { who->tgid, who->exec_id, context, qpn, 0 };
	struct queue_pair *made;
	u64 device = 0;

	if (!verbs_of(who))
		return NULL;
	made = put_pair(who, &key);
	if (!made) {
		made = bpf_map_lookup_elem(&queue_pairs, &key);
		if (!made)
			lose(LOSS_RDMA_FULL);
		return made;
	}
	if (!bpf_probe_read_user(&device, sizeof(device), (void *)context))
		bpf_probe_read_user_str(made->device, sizeof(made->device), (void *)(device + DEVICE_NAME_AT));
	put_ring(who, made);
	return made;
}

static __always_inline struct queue_pair *find_pair(const struct caller *who, u64 context, u32 qpn)
{
	struct queue_pair_key key = { who->tgid, who->exec_id, context, qpn, 0 };

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

	return found ? found : find_pair(who, 0, QPN_NONE);
}

static __always_inline struct work_ring *ring_of(const struct queue_pair *pair)
{
	struct work_ring_key key = { pair->key.tgid, pair->key.exec_id, pair->id };

	return pair->is_lost || pair->key.qpn == QPN_NONE ? NULL : bpf_map_lookup_elem(&work_rings, &key);
}

/* Nothing is under way in a queue pair that was just made, or set back. */
static __always_inline void begin_anew(const struct caller *who, struct queue_pair *pair)
{
	struct verbs_program *program = verbs_of(who);
	struct poll_window *window = window_of(who);

	pair->from_start = 1;
	pair->base = pair->tail = pair->posted;
	pair->is_followed = window && window->is_open;
	pair->window = window ? window->number : 0;
	pair->unread = program ? program->unread : 0;
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
