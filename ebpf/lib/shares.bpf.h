/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* May a program put one more entry into a table, one more record into a ring? Tables are shared by all programs, and each
 * has its share: as many entries as there are free ones. One that takes all it can get has half of the table, and n of
 * them leave one part in n+1 to the others, who take what they need of it. So switches share their buffers (Choudhury and
 * Hahne, Dynamic Queue Length Thresholds, 1998). Only what is put in is held against this: looking up costs nothing more. */
#ifndef OTEL_GPU_LIB_SHARES_BPF_H
#define OTEL_GPU_LIB_SHARES_BPF_H

#include "abi/programs.h"
#include "lib/programs.bpf.h"

/* enum table -> its entries, of all programs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TABLE_COUNT);
	__type(key, u32);
	__type(value, u32);
} used_by_all SEC(".maps");

struct bpf_map {
	u32 max_entries;
} CO_RE;

#define EXISTS (-17) /* EEXIST */

/* Takes one place of a table for a program, if that has a share left. */
static __always_inline int take_quota(struct program *program, u32 table, u32 room)
{
	u32 *all = bpf_map_lookup_elem(&used_by_all, &table), used, its;

	if (!program || !all || table >= TABLE_COUNT)
		return 0;
	used = *all;
	its = program->used[table];
	if (used >= room || its >= room - used)
		return 0;
	__sync_fetch_and_add(&program->used[table], 1);
	__sync_fetch_and_add(all, 1);
	return 1;
}

static __always_inline void release_quota(struct program *program, u32 table, u32 entries)
{
	u32 *all = bpf_map_lookup_elem(&used_by_all, &table);

	if (table >= TABLE_COUNT)
		return;
	if (program)
		__sync_fetch_and_add(&program->used[table], -entries);
	if (all)
		__sync_fetch_and_add(all, -entries);
}

static __always_inline int put_in(void *map, u32 table, u32 tgid, u32 exec_id, const void *key, const void *value)
{
	struct program *program = program_numbered(tgid, exec_id);
	long failed;

	if (!take_quota(program, table, ((struct bpf_map *)map)->max_entries))
		return 0;
	failed = bpf_map_update_elem(map, key, value, BPF_NOEXIST);
	/* As in meet(). */
	if (failed && failed != EXISTS)
		failed = bpf_map_update_elem(map, key, value, BPF_NOEXIST);
	if (failed)
		release_quota(program, table, 1);
	return !failed;
}

static __always_inline int take_out(void *map, u32 table, u32 tgid, u32 exec_id, const void *key)
{
	if (bpf_map_delete_elem(map, key))
		return 0;
	release_quota(program_numbered(tgid, exec_id), table, 1);
	return 1;
}

/* Puts an entry of a program in that is not there; false when it is, or when there is no room for it. */
#define PUT_IN(map, table, who, key, value) put_in(&(map), table, (who)->tgid, (who)->exec_id, key, value)

/* The same, and all is well when it is there: another thread may have put it in meanwhile. */
#define KEEP_IN(map, table, who, key, value) (PUT_IN(map, table, who, key, value) || bpf_map_lookup_elem(&(map), key))

/* Takes a program's entry out; false when it was not there. */
#define TAKE_OUT(map, table, who, key) take_out(&(map), table, (who)->tgid, (who)->exec_id, key)

/* The same for a ring, which is emptied all the time: a program may fill four times as much of it as is free, and n of them
 * leave one part in 4n+1. What it sent and the agent has not read is at most what
 * it sent since the present stretch and the one before began: a new one begins when the agent has read up to where the
 * present one began. Threads that are here at once may get this a little wrong. */
#define RING_SHARES 4

static __always_inline int may_send(void *ring, struct ring_use *use, u64 bytes)
{
	u64 written = bpf_ringbuf_query(ring, BPF_RB_PROD_POS), read = bpf_ringbuf_query(ring, BPF_RB_CONS_POS);
	u64 room = bpf_ringbuf_query(ring, BPF_RB_RING_SIZE);

	if (read >= use->began) {
		use->before = use->sent;
		use->sent = 0;
		use->began = written;
	}
	if (use->before + use->sent + bytes > RING_SHARES * (room - (written - read)))
		return 0;
	__sync_fetch_and_add(&use->sent, bytes);
	return 1;
}

#endif
