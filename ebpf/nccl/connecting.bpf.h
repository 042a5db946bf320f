/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which communicator may be making connections now? NCCL makes them within calls, by other threads of its own, and waits for them:
 * where one call is in progress in a program, they are its communicator's. Calls of a group go on until it has ended, and those
 * that come back with their work in progress for good. Read where queue pairs are made (rdma/nccl_pairs.bpf.h). */
#ifndef OTEL_GPU_NCCL_CONNECTING_BPF_H
#define OTEL_GPU_NCCL_CONNECTING_BPF_H

#include "nccl/threads.bpf.h"

static __always_inline void add_connecting(struct program *program, u64 comm, u32 calls)
{
	/* Whoever reads the sum sees before and behind it that there is one call: it is the one's. */
	if ((s32)calls > 0)
		__sync_fetch_and_add(&program->connecting, calls);
	__sync_fetch_and_add(&program->connecting_comm, comm);
	if ((s32)calls < 0)
		__sync_fetch_and_add(&program->connecting, calls);
}

/* A call begins. */
static __always_inline void connect_begins(struct pt_regs *ctx, const struct caller *who, struct nccl_call *call)
{
	struct program *program = program_of(who);
	struct nccl_thread *t = nccl_thread_of(who);

	if (!program || !t)
		return;
	program->nccl_code = INSTRUCTION(ctx);
	/* A group's calls of one communicator are one. */
	if (t->groups && t->connecting && t->connecting_first == call->comm)
		return;
	add_connecting(program, call->comm, 1);
	call->connects = 1;
}

/* It returns: is what it connects connected? */
static __always_inline void connect_ends(const struct caller *who, struct nccl_thread *t, struct nccl_call *call,
					 s32 code)
{
	struct program *program = program_of(who);

	if (!call->connects || !program)
		return;
	call->connects = 0;
	if (code == NCCL_IN_PROGRESS)
		return;
	if (!t->groups) {
		add_connecting(program, -call->comm, -1);
		return;
	}
	if (!t->connecting++)
		t->connecting_first = call->comm;
	t->connecting_comm += call->comm;
}

/* A thread's group has ended. */
static __always_inline void connect_group_ends(const struct caller *who, struct nccl_thread *t, s32 code)
{
	struct program *program = program_of(who);

	if (t->connecting && program && code != NCCL_IN_PROGRESS)
		add_connecting(program, -t->connecting_comm, -t->connecting);
	t->connecting = 0;
	t->connecting_comm = 0;
}

#endif
