/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is the stack where a probe sits, or returns to? */
#ifndef OTEL_GPU_PROFILE_STACKS_BPF_H
#define OTEL_GPU_PROFILE_STACKS_BPF_H

#include "abi/stacks.h"
#include "abi/unwinding.h"
#include "lib/arguments.bpf.h"
#include "profile/owners.bpf.h"
#include "profile/samplers.bpf.h"
#include "profile/samples.bpf.h"
#include "unwind/unwind.bpf.h"

static __always_inline struct unwind_process *unwindable(const struct caller *who)
{
	return bpf_map_lookup_elem(&unwind_processes, &who->tgid);
}

/* Takes the stack at a probe on a function's entry, or on the instruction that returns from it; 0 when there is no room
 * for it. */
static __always_inline int take_at_entry(struct pt_regs *ctx, const struct caller *who, u32 type, u64 cookie,
					 const struct weight *w, u64 subject)
{
	struct unwind_process *process = unwindable(who);
	struct stack_sample *s = start_sample(who, type, cookie);
	u64 caller;

	if (!s)
		return 0;
	s->value = w->value;
	s->count = w->calls;
	s->subject = subject;
	note_owner(s, w->latest);
	s->frame[0].a = INSTRUCTION(ctx);
	s->frame[0].b = (u64)FRAME_EXACT << FRAME_KIND_SHIFT;
	s->frames = 1;
	/* The return address is on top, whatever the library's tables say. */
	if (!process)
		s->stop = STOP_UNKNOWN_PROCESS;
	else if (bpf_probe_read_user(&caller, sizeof(caller), (void *)STACK_POINTER(ctx)))
		s->stop = STOP_UNREADABLE;
	else
		unwind(s, process, caller, STACK_POINTER(ctx) + 8, FRAME_POINTER(ctx), 1);
	submit_sample(s);
	return 1;
}

/* Takes the stack at a return probe: the function is gone, its caller is at the return address. Without room for it the
 * thread's next stack stands for its call as well. */
static __always_inline void take_at_return(struct pt_regs *ctx, const struct caller *who, u32 type, u64 cookie,
					   const struct weight *w, u64 subject)
{
	struct unwind_process *process = unwindable(who);
	struct stack_sample *s = start_sample(who, type, cookie);

	if (!s) {
		keep(sampler_of(who, type), w->value, w->calls);
		return;
	}
	s->value = w->value;
	s->count = w->calls;
	s->subject = subject;
	note_owner(s, w->latest);
	if (!process)
		s->stop = STOP_UNKNOWN_PROCESS;
	else
		unwind(s, process, INSTRUCTION(ctx), STACK_POINTER(ctx), FRAME_POINTER(ctx), 1);
	submit_sample(s);
}

#endif
