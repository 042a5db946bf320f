/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Where will a call return to? Not where its return address says when its return is probed. */
#ifndef OTEL_GPU_UNWIND_RETURNS_BPF_H
#define OTEL_GPU_UNWIND_RETURNS_BPF_H

#include "unwind/walk.bpf.h"

#define MAX_PROBED_RETURNS 64

/* Where the call whose return address lay at a place in the stack will return to; 0 when its return is not probed. A
 * function of its own for the verifier, which then looks at it once. */
__noinline u64 probed_return(u64 thread, u64 place)
{
	struct task_struct *task = (void *)thread;
	struct return_instance *call = BPF_CORE_READ(task, utask, return_instances);

	for (int i = 0; i < MAX_PROBED_RETURNS && call; i++) {
		if (BPF_CORE_READ(call, stack) == place)
			return BPF_CORE_READ(call, orig_ret_vaddr);
		call = BPF_CORE_READ(call, next);
	}
	return 0;
}

static __always_inline u64 find_trampoline(u64 thread)
{
	struct task_struct *task = (void *)thread;

	if (!BPF_CORE_READ(task, utask, return_instances))
		return 0;
	return BPF_CORE_READ(task, mm, uprobes_state.xol_area, vaddr);
}

/* Goes on at a return address that was read from a place in the stack. */
static __always_inline void go_on_at(struct unwind *u, u64 address, u64 place)
{
	u64 probed = 0;

	if (address == u->at->trampoline && address)
		probed = probed_return(ADDRESS_OF_WALKED(u), place);
	u->at->pc = probed ? probed : address;
	u->at->is_return = 1;
}

#endif
