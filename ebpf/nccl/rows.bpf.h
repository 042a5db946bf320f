/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Where is a call of NCCL counted, and what happens when its program has its share of the table? */
#ifndef OTEL_GPU_NCCL_ROWS_BPF_H
#define OTEL_GPU_NCCL_ROWS_BPF_H

#include "abi/nccl.h"
#include "abi/programs.h"
#include "abi/rows.h"
#include "lib/arguments.bpf.h"
#include "lib/buckets.bpf.h"
#include "lib/shares.bpf.h"

/* The count table. Written here, per CPU; read by the agent, which removes the rows of programs that have ended. A
 * communicator has some ten rows: a kind of collective, by how long its calls took. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct nccl_row_key);
	__type(value, struct row);
} nccl_rows SEC(".maps");

/* Where counts go when a program has its share of `nccl_rows`: the same rows without the communicator. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, struct nccl_row_key);
	__type(value, struct row);
} nccl_overflow SEC(".maps");

static const struct row no_nccl_row = {};

/* Per-CPU rows still need atomic additions, as a program may be preempted by another task's probe on the same CPU. */
static __always_inline void add_nccl(struct row *row, u64 bytes, u64 ns)
{
	__sync_fetch_and_add(&row->count, 1);
	if (bytes)
		__sync_fetch_and_add(&row->sum_a, bytes);
	if (ns)
		__sync_fetch_and_add(&row->sum_b, ns);
}

union nccl_row_words {
	struct nccl_row_key key;
	u64 word[4];
};

RARE int make_nccl_row(u64 first, u64 second, u64 third, u64 fourth)
{
	union nccl_row_words words = { .word = { first, second, third, fourth } };

	meet();
	return PUT_IN(nccl_rows, TABLE_NCCL_ROWS, &words.key, &words.key, &no_nccl_row);
}

RARE int count_nccl_overflow(u64 first, u64 fourth, u64 bytes, u64 ns)
{
	union nccl_row_words words = { .word = { first, 0, 0, fourth } };
	struct nccl_row_key *key = &words.key;
	struct program *program;
	struct row *row;

	key->rank = NCCL_UNKNOWN_RANK;
	row = bpf_map_lookup_elem(&nccl_overflow, key);
	if (!row) {
		PUT_IN(nccl_overflow, TABLE_NCCL_OVERFLOW, key, key, &no_nccl_row);
		row = bpf_map_lookup_elem(&nccl_overflow, key);
	}
	program = program_numbered(key->tgid, key->exec_id);
	lose_of(program, row ? LOSS_NCCL_ROWS_FULL : LOSS_NCCL_OVERFLOW_FULL);
	if (row)
		add_nccl(row, bytes, ns);
	return 0;
}

static __always_inline void count_nccl(const struct nccl_row_key *key, u64 bytes, u64 ns)
{
	struct row *row = bpf_map_lookup_elem(&nccl_rows, key);
	u64 word[4];

	if (!row) {
		__builtin_memcpy(word, key, sizeof(word));
		make_nccl_row(word[0], word[1], word[2], word[3]);
		row = bpf_map_lookup_elem(&nccl_rows, key);
		if (!row) {
			count_nccl_overflow(word[0], word[3], bytes, ns);
			return;
		}
	}
	add_nccl(row, bytes, ns);
}

#endif
