/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Is a queue pair one of NCCL's, and of which communicator? It is where NCCL's own code makes it while one call is in progress. */
#ifndef OTEL_GPU_RDMA_NCCL_PAIRS_BPF_H
#define OTEL_GPU_RDMA_NCCL_PAIRS_BPF_H

#include "lib/arguments.bpf.h"

static long note_file(struct task_struct *task, struct vm_area_struct *area, u64 *file)
{
	*file = (u64)area->vm_file;
	return 0;
}

static __always_inline u64 file_at(u64 address)
{
	u64 file = 0;

	bpf_find_vma((void *)bpf_get_current_task_btf(), address, note_file, &file, 0);
	return file;
}

static __always_inline int is_nccls(const struct program *program, struct pt_regs *ctx)
{
	u64 caller = 0, file;

#if defined(__TARGET_ARCH_x86)
	if (!read_user(&caller, sizeof(caller), STACK_POINTER(ctx)))
		return 0;
#else
	caller = REGISTER(ctx, regs[30]);
#endif
	file = file_at(program->nccl_code);
	return file && file == file_at(caller);
}

/* The communicator of which a queue pair is that the function makes at whose entry this is; 0 where that is not known. */
static __noinline u64 comm_of_maker(struct pt_regs *ctx)
{
	const volatile struct program *seen;
	struct program *program;
	struct caller who;
	u64 comm;

	if (!identify(&who))
		return 0;
	program = program_of(&who);
	if (!program || program->connecting != 1 || !is_nccls(program, ctx))
		return 0;
	seen = program;
	if (seen->connecting != 1)
		return 0;
	comm = seen->connecting_comm;
	return seen->connecting == 1 ? comm : 0;
}

#endif
