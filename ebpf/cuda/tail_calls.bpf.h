/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Who looks at work that was just given to a device? The programs of profile/submissions.bpf.c, if they are
 * loaded. They go on where these end, and not by probes of their own: only so is it certain that the work they see is
 * counted, and which busy period it belongs to. */
#ifndef OTEL_GPU_CUDA_TAIL_CALLS_BPF_H
#define OTEL_GPU_CUDA_TAIL_CALLS_BPF_H

#include "abi/samples.h"
#include "cuda/busy.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, SUBMITTED_COUNT);
	__type(key, u32);
	__type(value, u32);
} submitted SEC(".maps");

/* The last that a program does; an empty place costs a jump. Stacks are walked on x86-64 only, and other machines
 * take no such calls out of programs with functions before 6.0. */
static __always_inline void tail_call_profile(struct pt_regs *ctx, u64 cookie, u32 what)
{
#if defined(__TARGET_ARCH_x86)
	if (is_followed(cookie))
		bpf_tail_call(ctx, &submitted, what);
#endif
}

#endif
