/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Where does memory lie that a copy reads or writes? */
#ifndef OTEL_GPU_CUDA_RANGES_BPF_H
#define OTEL_GPU_CUDA_RANGES_BPF_H

#include "abi/memory.h"
#include "abi/programs.h"
#include "abi/rows.h"
#include "cuda/device.bpf.h"
#include "cuda/pinned.bpf.h"
#include "cuda/rows.bpf.h"
#include "cuda/where.bpf.h"
#include "lib/loops.bpf.h"

struct range {
	u64 address;
	u64 end;
	u32 where;
	u32 pad;
};

/* Memory of devices: there may be as much as there are allocations. What the host has page-locked is in `pinned`. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 2097152);
	__type(key, struct range_key);
	__type(value, struct range);
} ranges SEC(".maps");

static const struct range no_range = {};

static __always_inline void range_key_of(struct range_key *key, const struct caller *who, u64 address, u64 size)
{
	u32 level = (size > 1 ? log2_of(size - 1) + 1 : 0) & (ADDRESS_BITS - 1);

	*key = (struct range_key){
		.tgid = who->tgid,
		.exec_id = who->exec_id,
		.block = address >> level,
		.level = level,
		.ends_beyond = (address + size - 1) >> level != address >> level,
	};
}

#define LEVEL_USED (~0ull) /* the block of an entry that says that a level is */

/* From now on ranges of this level are looked for. A bit is added by the one that puts the entry in. */
static __always_inline void use_level(const struct caller *who, struct program *program, u32 level)
{
	struct range_key key = { .tgid = who->tgid, .exec_id = who->exec_id, .block = LEVEL_USED, .level = level };

	if (program->range_levels >> level & 1)
		return;
	if (PUT_IN(ranges, TABLE_RANGES, who, &key, &no_range))
		__sync_fetch_and_add(&program->range_levels, 1ull << level);
	else if (!bpf_map_lookup_elem(&ranges, &key))
		lose(LOSS_RANGES_FULL);
}

RARE int learn_range(u64 address, u64 size, u32 where)
{
	struct range range = { .address = address, .end = address + size, .where = where }, *known;
	struct program *program;
	struct range_key key;
	struct caller who;

	if (!size || !identify(&who))
		return 0;
	program = program_of(&who);
	range_key_of(&key, &who, address, size);
	if (program)
		use_level(&who, program, key.level);
	known = bpf_map_lookup_elem(&ranges, &key);
	if (known) /* the same one, or one whose end was not seen */
		*known = range;
	else if (!PUT_IN(ranges, TABLE_RANGES, &who, &key, &range))
		lose(LOSS_RANGES_FULL);
	return 0;
}

RARE int forget_range(u64 address, u64 size)
{
	struct range_key key;
	struct caller who;

	if (!size || !identify(&who))
		return 0;
	range_key_of(&key, &who, address, size);
	return TAKE_OUT(ranges, TABLE_RANGES, &who, &key);
}

struct search {
	struct range_key key;
	u64 address;
	u64 levels; /* still to be looked at */
	u32 where;
};

static __always_inline int holds(struct search *s)
{
	struct range *range = bpf_map_lookup_elem(&ranges, &s->key);

	if (!range || s->address < range->address || s->address >= range->end)
		return 0;
	s->where = range->where;
	return 1;
}

ROUND(look_at_level_of)(u32 i, struct search *s)
{
	u64 lowest = s->levels & -s->levels;

	if (!lowest)
		return 1;
	s->levels ^= lowest;
	s->key.level = log2_of(lowest) & (ADDRESS_BITS - 1);
	s->key.block = s->address >> s->key.level;
	s->key.ends_beyond = 0;
	if (holds(s))
		return 1;
	s->key.ends_beyond = 1;
	if (holds(s))
		return 1;
	s->key.block--;
	return holds(s);
}

/* Where an allocation lies. Virtual memory lies where it is mapped. */
static __always_inline u32 where_allocated(const struct caller *who, const struct live *what)
{
	struct program *program;

	switch (what->type & ~KIND_HIP) {
	case MEMORY_HOST:
	case MEMORY_REGISTERED:
		return LIES_PINNED;
	case MEMORY_DEVICE:
	case MEMORY_MANAGED:
		return LIES_ON(what->device);
	case MEMORY_ASYNC:
		program = program_of(who);
		return program && program->places_memory ? LIES_UNKNOWN : LIES_ON(what->device);
	}
	return LIES_NOWHERE;
}

static __always_inline void learn_where(const struct caller *who, u64 address, const struct live *what)
{
	u32 where = where_allocated(who, what);

	if (where == LIES_PINNED)
		pin(address, what->size, 0);
	else if (where != LIES_NOWHERE)
		learn_range(address, what->size, where);
}

static __always_inline void forget_where(const struct caller *who, u64 address, const struct live *what)
{
	u32 where = where_allocated(who, what);

	if (where == LIES_PINNED)
		pin(address, what->size, 1);
	else if (where != LIES_NOWHERE)
		forget_range(address, what->size);
}

/* The program that runs, which is observed from now on; NULL when it is not to be observed. */
static __always_inline struct program *met_program(void)
{
	struct caller who;

	meet();
	return identify(&who) ? program_of(&who) : NULL;
}

/* The program has memory of which the agent does not know where it lies. */
RARE int hide_memory(void)
{
	struct program *program = met_program();

	if (program)
		program->hides_memory = 1;
	return 0;
}

/* CUmemLocation. */
struct location {
	u32 type;
	u32 id;
};
#define MEMORY_ON_DEVICE 1
#define PROPERTIES_LOCATION 8 /* where CUmemAllocationProp and CUmemPoolProps have their CUmemLocation */

/* The program says where memory shall lie, by the CUmemLocation at this address: on a device, whose ordinal this is, or else
 * anywhere. */
RARE int place_memory(u64 at)
{
	struct location location;
	struct program *program;

	if (read_user(&location, sizeof(location), at) && location.type == MEMORY_ON_DEVICE)
		return ordinal(location.id);
	program = met_program();
	if (program)
		program->places_memory = 1;
	return DEVICE_UNKNOWN;
}

/* Did the agent see all memory that the calling program has of this library? */
static __always_inline int sees_all_memory(const struct program *program, u32 library)
{
	u64 *placed_ns = bpf_map_lookup_elem(&placed, &library);

	if (program->hides_memory || program->lost[LOSS_RANGES_FULL] || program->lost[LOSS_PINNED_FULL] ||
	    program->lost[LOSS_LIVE_FULL] || program->lost[LOSS_CALLS_FULL])
		return 0;
	return program->seen_whole || (placed_ns && *placed_ns < program->start_ns);
}

/* Where this address lies; LIES_PAGEABLE for what is in no range of a program whose memory is all known. The program has been
 * met: there is no room for that on the stack here. */
RARE int lies_at(u64 address, u32 library)
{
	struct search search = { .address = address, .where = LIES_NOWHERE };
	struct program *program;
	struct caller who;

	if (!identify(&who))
		return LIES_UNKNOWN;
	if (host_memory(&who, address) == HOST_MEMORY_PINNED)
		return LIES_PINNED;
	program = program_of(&who);
	if (!program)
		return LIES_UNKNOWN;
	search.key.tgid = who.tgid;
	search.key.exec_id = who.exec_id;
	search.levels = program->range_levels;
	REPEAT(ADDRESS_BITS, look_at_level_of, &search);
	if (search.where != LIES_NOWHERE)
		return search.where;
	return sees_all_memory(program, library) ? LIES_PAGEABLE : LIES_UNKNOWN;
}

#endif
