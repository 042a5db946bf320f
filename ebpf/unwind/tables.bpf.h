/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which file does an address lie in, and how is its frame left? By tables that the agent fills. */
#ifndef OTEL_GPU_UNWIND_TABLES_BPF_H
#define OTEL_GPU_UNWIND_TABLES_BPF_H

#include "abi/unwinding.h"
#include "unwind/walk.bpf.h"

/* Unwinding tables of all files, one behind the other; filled by the agent through shared memory. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 8 << 20);
	__type(key, u32);
	__type(value, struct unwind_row);
} unwind_rows SEC(".maps");

/* Mappings of all processes, a run for each. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1 << 17);
	__type(key, u32);
	__type(value, struct unwind_mapping);
} unwind_mappings SEC(".maps");

/* tgid -> where its mappings are, and its Python. Replaced as a whole. The CPU's timer comes here too, which kernels before
 * 6.1 let into no table that allocates. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, struct unwind_process);
} unwind_processes SEC(".maps");

/* Always 0, which the verifier does not know: Linux 7.2 would look at a bisection once for every way in which its ends
 * can be related. */
volatile u32 nothing = 0;
#define UNKNOWN(value) ((value) | nothing)

static __always_inline struct unwind_mapping *mapping_at(u32 index)
{
	return bpf_map_lookup_elem(&unwind_mappings, &index);
}

/* The mapping that holds pc, by bisection. A call that never returns may be the last instruction of a mapping. */
static __always_inline struct unwind_mapping *find_mapping(struct unwind *u)
{
	struct unwind_mapping *m = mapping_at(u->at->mapping);
	u64 pc = u->at->pc - u->at->is_return;
	u32 low, high;

	if (m && m->start <= pc && pc < m->end)
		return m;
	low = u->process->first_mapping;
	high = low + u->process->mappings;
	for (int i = 0; i < 17 && low < high; i++) {
		u32 middle = (low + high) / 2;
		m = mapping_at(middle);
		if (!m)
			return 0;
		if (m->end <= pc)
			low = UNKNOWN(middle + 1);
		else if (m->start > pc)
			high = UNKNOWN(middle);
		else {
			u->at->mapping = middle;
			return m;
		}
	}
	return 0;
}

/* The last row whose pc is not above. */
static __always_inline struct unwind_row *find_row(const struct unwind_mapping *m, u32 pc)
{
	u32 low = m->first_row, high = m->first_row + m->rows;
	struct unwind_row *row;

	for (int i = 0; i < 24 && low < high; i++) {
		u32 middle = (low + high) / 2;
		row = bpf_map_lookup_elem(&unwind_rows, &middle);
		if (!row)
			return 0;
		if (row->pc <= pc)
			low = UNKNOWN(middle + 1);
		else
			high = UNKNOWN(middle);
	}
	if (low == m->first_row)
		return 0;
	low--;
	return bpf_map_lookup_elem(&unwind_rows, &low);
}

#endif
