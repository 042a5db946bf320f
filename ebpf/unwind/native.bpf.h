/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How is a native frame left for its caller? By a row of the tables, by frame pointers, or over a signal. */
#ifndef OTEL_GPU_UNWIND_NATIVE_BPF_H
#define OTEL_GPU_UNWIND_NATIVE_BPF_H

#include "abi/stacks.h"
#include "abi/unwinding.h"
#include "unwind/code.bpf.h"
#include "unwind/returns.bpf.h"
#include "unwind/tables.bpf.h"
#include "unwind/walk.bpf.h"

#define MAX_FRAME_BYTES (1 << 20) /* a frame pointer further away is none */

/* Leaves a frame for its caller by frame pointers; 0 when they are none. The caller may have its frame on another stack,
 * as Go's has below C: only within the file given, for nothing else then tells it from chance. */
static __always_inline int step_by_frame_pointer(struct unwind *u, u32 file)
{
	u64 words[2], pc = u->at->pc;
	u32 was_return = u->at->is_return;
	int is_elsewhere = u->at->fp - u->at->sp > MAX_FRAME_BYTES; /* also where it lies below */
	struct unwind_mapping *m;

	if (u->at->fp & 7 || (is_elsewhere && (!file || u->at->sp - u->at->fp <= MAX_FRAME_BYTES)))
		return 0;
	if (READ_WALKED(u, words, sizeof(words), (void *)u->at->fp))
		return 0;
	go_on_at(u, words[1], u->at->fp + 8);
	m = find_mapping(u);
	if ((m ? is_elsewhere && m->file != file : is_elsewhere || code_at(u, u->at->pc - 1) != CODE_MADE) ||
	    !follows_call(u, u->at->pc)) {
		u->at->pc = pc;
		u->at->is_return = was_return;
		return 0;
	}
	u->at->sp = u->at->fp + 16;
	u->at->fp = words[0];
	return 1;
}

#define ADD_8_TO_SP_AND_RETURN 0xc308c48348 /* add $8, %rsp; ret */
#define POP_FP_AND_RETURN 0xc35d	    /* pop %rbp; ret */

/* Leaves code that only returns after the call it is in, for its caller: its instructions say where that is. So do the
 * trampolines that CPython makes for perf, from 3.12 on: up to 3.13 they keep no frame pointer. 0 for other code. */
static __always_inline int step_by_epilogue(struct unwind *u)
{
	u64 code = 0, words[2]; /* what is dropped, or popped; return address */
	int pops;

	if (!u->at->is_return || READ_WALKED(u, &code, 5, (void *)u->at->pc))
		return 0;
	pops = (code & 0xffff) == POP_FP_AND_RETURN;
	if ((!pops && code != ADD_8_TO_SP_AND_RETURN) || READ_WALKED(u, words, sizeof(words), (void *)u->at->sp))
		return 0;
	if (pops)
		u->at->fp = words[0];
	go_on_at(u, words[1], u->at->sp + 8);
	u->at->sp += 16;
	return 1;
}

/* The registers that a signal interrupted: struct ucontext at sp, its mcontext at 40. */
#define SIGNAL_FP (40 + 10 * 8)
#define SIGNAL_SP (40 + 15 * 8)

static __always_inline int step_over_signal(struct unwind *u)
{
	u64 fp, words[2]; /* rsp, rip */

	if (READ_WALKED(u, &fp, sizeof(fp), (void *)(u->at->sp + SIGNAL_FP)) ||
	    READ_WALKED(u, words, sizeof(words), (void *)(u->at->sp + SIGNAL_SP)))
		return stop(u, STOP_UNREADABLE);
	u->at->fp = fp;
	u->at->sp = words[0];
	u->at->pc = words[1];
	u->at->is_return = 0;
	return 0;
}

static __always_inline int step_by_row(struct unwind *u, const struct unwind_row *row)
{
	s64 offset = row->cfa_offset;
	u64 cfa, ra, base;

	switch (row->kind) {
	case ROW_SP:
		cfa = u->at->sp + offset;
		break;
	case ROW_FP:
		cfa = u->at->fp + offset;
		break;
	case ROW_PLT:
		cfa = u->at->sp + 8 + ((u->at->pc & 15) >= (u64)offset ? 8 : 0);
		break;
	case ROW_DEREF_SP:
	case ROW_DEREF_FP:
		base = (row->kind == ROW_DEREF_SP ? u->at->sp : u->at->fp) + (offset >> 4) * 8;
		if (READ_WALKED(u, &cfa, sizeof(cfa), (void *)base))
			return stop(u, STOP_UNREADABLE);
		cfa += (offset & 15) * 8;
		break;
	case ROW_SIGNAL:
		return step_over_signal(u);
	case ROW_OUTERMOST:
		return stop(u, STOP_OUTERMOST);
	case ROW_SP_LARGE:
		cfa = u->at->sp + (u64)(u16)offset * 8;
		break;
	case ROW_UNSUPPORTED:
		return stop(u, STOP_UNSUPPORTED);
	default:
		return stop(u, STOP_NO_ROW);
	}
	if (cfa <= u->at->sp)
		return stop(u, STOP_STUCK);
	if (READ_WALKED(u, &ra, sizeof(ra), (void *)(cfa - 8)))
		return stop(u, STOP_UNREADABLE);
	if (row->fp_offset == 1)
		base = u->at->fp;
	else
		base = cfa + row->fp_offset * 8L;
	if (row->fp_offset && READ_WALKED(u, &u->at->fp, sizeof(u->at->fp), (void *)base))
		return stop(u, STOP_UNREADABLE);
	if (!ra)
		return stop(u, STOP_OUTERMOST);
	u->at->sp = cfa;
	go_on_at(u, ra, cfa - 8);
	return 0;
}

/* Leaves code of a file that says nothing of its frames, for the reason given. */
static __always_inline int step_without_rules(struct unwind *u, const struct unwind_mapping *m, enum stop why)
{
	u64 outer = 0;

	if (!(m->flags & MAPPING_FRAME_POINTERS))
		return stop(u, why);
	/* The ABI marks the outermost frame so. */
	if (!u->at->fp)
		return stop(u, STOP_OUTERMOST);
	if (step_by_frame_pointer(u, m->file))
		return 0;
	/* Or what lies below it: Go has the return address there that ends a goroutine, and which no call left. */
	if (!READ_WALKED(u, &outer, sizeof(outer), (void *)u->at->fp) && !outer)
		return stop(u, STOP_OUTERMOST);
	return stop(u, STOP_FRAME_POINTER);
}

#endif
