// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Programs of ends: nothing is kept of threads that are no more. */
#include "profile/off_cpu_waits.bpf.h"
#include "profile/samplers.bpf.h"

static __always_inline int end_sampling(struct task_struct *task)
{
	struct caller who;

	if (!identify(&who))
		return 0;
	end_sampled_thread(&who);
	end_off_cpu_wait(task);
	return 0;
}

/* Both before the programs of cuda/lifetimes.bpf.c, which say that a program has ended. */
SEC("tp_btf/sched_process_exit")
int profile_thread_ends(u64 *ctx)
{
	return end_sampling((void *)ctx[0]);
}

SEC("tp_btf/sched_process_exec")
int profile_program_begins(u64 *ctx)
{
	return end_sampling((void *)ctx[0]);
}
