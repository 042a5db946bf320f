/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which programs have entries in our tables, and what went wrong for each? */
#ifndef OTEL_GPU_LIB_PROGRAMS_BPF_H
#define OTEL_GPU_LIB_PROGRAMS_BPF_H

#include "abi/programs.h"
#include "lib/announce.bpf.h"

/* Made here with a program's first entry in any table; removed by the agent, behind its other entries, when it has ended
 * and its last counts are read. Sized beyond the processes that a host runs at a time. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct program_key);
	__type(value, struct program);
} programs SEC(".maps");

/* enum loss -> how often, of all programs. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LOSS_COUNT);
	__type(key, u32);
	__type(value, u64);
} losses SEC(".maps");

/* Which of a program's losses this object counts. */
#ifndef ITS_LOSSES
#define ITS_LOSSES lost
#endif

/* Not on the stack: kernels below 6.13 have 512 bytes for all functions that are active. */
static const struct program no_program = {};

static __always_inline struct program *program_numbered(u32 tgid, u32 exec_id)
{
	struct program_key key = { tgid, exec_id };

	return bpf_map_lookup_elem(&programs, &key);
}

static __always_inline struct program *program_of(const struct caller *who)
{
	return program_numbered(who->tgid, who->exec_id);
}

/* Numbers that a call looks at first, by program: those that share a place cost each other a look-up and no more. */
#define PLACES 1024

static __always_inline volatile u32 *place_of_program(volatile u32 places[PLACES], u32 exec_id)
{
	u32 at = exec_id & (PLACES - 1);

	asm volatile("" : "+r"(at)); /* the verifier must see the mask */
	return &places[at & (PLACES - 1)];
}

/* Gives the calling program an entry, if it has none. Called by what may be the first that is kept of a program; whatever
 * follows finds it by program_of(), or there was no room. */
RARE int meet(void)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct program_key key;
	struct program *program;
	struct caller who;

	if (!identify(&who))
		return 0;
	key = (struct program_key){ who.tgid, who.exec_id };
	program = bpf_map_lookup_elem(&programs, &key);
	if (program && program->is_announced)
		return 0;
	if (!program) {
		/* Elements come from a cache of the CPU's, which is filled from an interrupt as it runs low. Having found
		 * it empty, we come back when that interrupt has been. */
		if (bpf_map_update_elem(&programs, &key, &no_program, BPF_NOEXIST))
			bpf_map_update_elem(&programs, &key, &no_program, BPF_NOEXIST);
		program = bpf_map_lookup_elem(&programs, &key);
	}
	if (!program)
		return 0;
	program->start_ns = process_start(task);
	program->executions = BPF_CORE_READ(task, self_exec_id);
	bpf_get_current_comm(program->comm, sizeof(program->comm));
	program->parent = number_of(BPF_CORE_READ(task, real_parent));
	program->is_announced = announce(who.tgid, who.exec_id, who.pid_tgid, program->parent);
	return 0;
}

/* Counts what went wrong for a program; NULL where it is not known which. */
static __always_inline void lose_of(struct program *program, u32 what)
{
	u64 *n = bpf_map_lookup_elem(&losses, &what);

	if (n)
		__sync_fetch_and_add(n, 1);
	if (program && what < LOSS_COUNT)
		__sync_fetch_and_add(&program->ITS_LOSSES[what], 1);
}

/* Counts what went wrong for the calling program. */
RARE int lose(u32 what)
{
	struct caller who;

	lose_of(identify(&who) ? program_of(&who) : NULL, what);
	return 0;
}

#endif
