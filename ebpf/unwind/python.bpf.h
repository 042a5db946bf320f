/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which Python frames does an activation of CPython's eval loop run? */
#ifndef OTEL_GPU_UNWIND_PYTHON_BPF_H
#define OTEL_GPU_UNWIND_PYTHON_BPF_H

#include "abi/stacks.h"
#include "abi/unwinding.h"
#include "unwind/interpreters.bpf.h"
#include "unwind/returns.bpf.h"
#include "unwind/walk.bpf.h"

/* Finds the innermost Python frame of the calling thread, if it has one. */
static __always_inline void find_python_frame(struct unwind *u)
{
	const struct unwind_process *p = u->process;
	const struct py_layout *py = &p->py;
	u64 base = WALKED(u)->thread.fsbase, state = 0;

	if (p->thread_state == THREAD_STATE_SLOT) {
		READ_WALKED(u, &state, sizeof(state), (void *)(base + p->thread_offset));
	} else if (p->thread_state == THREAD_STATE_DTV) {
		u64 dtv = 0, block = 0;
		READ_WALKED(u, &dtv, sizeof(dtv), (void *)(base + 8));
		READ_WALKED(u, &block, sizeof(block), (void *)(dtv + 16 * p->thread_module));
		if (block && block != ~0ULL)
			READ_WALKED(u, &state, sizeof(state), (void *)(block + p->thread_offset));
	}
	if (state)
		read_cursor(u, state, &u->at->here);
	if (py->entry_rule == PY_EACH && py->tstate_cframe == PY_ABSENT)
		has_subinterpreters(u);
}

static __always_inline int in_eval(const struct unwind_process *p, u64 pc)
{
#pragma unroll
	for (int i = 0; i < EVAL_RANGES; i++)
		if (p->eval[i].start <= pc && pc < p->eval[i].end)
			return 1;
	return 0;
}

/* Tells a code object from another that gets its address later; otel_gpu/stacks/cpython/layout.py: code_checksum. */
static __always_inline u32 code_checksum(const struct unwind *u, u64 code)
{
	const struct py_layout *py = &u->process->py;
	/* The four ints lie within 32 bytes in every version. */
	u16 base = py->code_argcount & ~15;
	u32 head[8] = {}, sum;

	if (READ_WALKED(u, head, sizeof(head), (void *)(code + base)))
		return 0;
	sum = head[((py->code_argcount - base) >> 2) & 7];
	sum = sum * 31 + head[((py->code_kwonly - base) >> 2) & 7];
	sum = sum * 31 + head[((py->code_flags - base) >> 2) & 7];
	return sum * 31 + head[((py->code_first_line - base) >> 2) & 7];
}

/* Leaves an eval activation, and whatever it called that has no tables, for the activation's caller: its shim lies at
 * a fixed distance from its CFA. */
static __always_inline int leap_over(struct unwind *u, u64 shim)
{
	u64 words[2], cfa = shim + u->process->py.marker_to_cfa; /* rbp, return address */

	if (cfa <= u->at->sp)
		return stop(u, STOP_STUCK);
	if (READ_WALKED(u, words, sizeof(words), (void *)(cfa - 16)))
		return stop(u, STOP_UNREADABLE);
	u->at->fp = words[0];
	u->at->sp = cfa;
	go_on_at(u, words[1], cfa - 8);
	u->at->phase = PHASE_NATIVE;
	return 0;
}

/* Takes one Python frame; ends the group after an entry frame, or at a shim. */
static __always_inline int python_frame(struct unwind *u)
{
	const struct py_layout *py = &u->process->py;
	u64 *words = u->sample->words.word;
	u32 size = py->frame_instr_size == 4 ? 112 : 80, checksum;
	u64 code, previous, instr, owner = 0, here = u->at->here.frame;

	if (READ_WALKED(u, words, size, (void *)here)) {
		u->at->here.frame = 0;
		return stop(u, STOP_UNREADABLE);
	}
	code = words[(py->frame_code >> 3) & 15] & ~(u64)py->tag_mask;
	previous = words[(py->frame_previous >> 3) & 15];
	instr = words[(py->frame_instr >> 3) & 15];
	if (py->frame_instr_size == 4)
		instr = py->frame_instr & 4 ? instr >> 32 : instr;
	else
		instr -= code + py->code_bytecode;
	if (py->frame_owner != PY_ABSENT)
		owner = words[(py->frame_owner >> 3) & 15] >> (py->frame_owner & 7) * 8 & 0xff;
	u->at->here.frame = previous;
	if (py->entry_rule == PY_SHIM && py->shim_owners >> (owner & 15) & 1) {
		if (u->at->phase == PHASE_LEAP)
			return leap_over(u, here);
		u->at->phase = u->at->is_left ? PHASE_CHECK : PHASE_TAKEN;
		u->at->marker = here;
		return 0;
	}
	checksum = code_checksum(u, code);
	if (!put_frame(u, (code & (1ULL << FRAME_CHECKSUM_A) - 1) | (u64)(checksum >> 16) << FRAME_CHECKSUM_A,
		       (u64)FRAME_PYTHON << FRAME_KIND_SHIFT | (owner & 15) << FRAME_OWNER_SHIFT |
			       (u64)(checksum & 0xffff) << FRAME_CHECKSUM_B | (u32)instr))
		return 1;
	if (!previous && u->at->phase == PHASE_LEAP)
		return stop(u, STOP_CHAIN_ENDED);
	if (py->entry_rule == PY_EACH ||
	    (py->entry_rule == PY_IS_ENTRY &&
	     (words[(py->frame_is_entry >> 3) & 15] >> (py->frame_is_entry & 7) * 8 & 0xff)) ||
	    !previous) {
		u->at->phase = u->at->is_left ? PHASE_CHECK : PHASE_TAKEN;
		u->at->marker = py->entry_rule == PY_SHIM ? 0 : u->at->here.cframe;
	}
	return 0;
}

/* Whether the frames just taken are those of the activation that was left. */
static __always_inline int is_own_group(struct unwind *u)
{
	const struct py_layout *py = &u->process->py;

	if (!u->at->group_frame)
		return 0;
	/* Only the innermost activation may be about to link its frame, or to end; for the others look no further. */
	if (py->entry_rule == PY_EACH && py->marker_to_cfa && u->at->activations == 1)
		return keeps_locals_of(u, u->at->group_frame);
	if (py->entry_rule == PY_EACH && py->tstate_cframe == PY_ABSENT)
		return u->at->interpreters != SEVERAL_INTERPRETERS || is_frame_of_activation(u, u->at->group_frame);
	return !u->at->marker || is_in_activation(u, u->at->marker);
}

/* An activation that has only begun, or is about to end, has no Python frame of its own, and one of another interpreter
 * has others: then those just taken belong to one further out. */
static __always_inline int check_group(struct unwind *u)
{
	const struct py_layout *py = &u->process->py;
	int own;

	u->at->phase = PHASE_NATIVE;
	own = is_own_group(u);
	if (py->entry_rule != PY_SHIM && is_in_activation(u, u->at->here.cframe) &&
	    READ_WALKED(u, &u->at->here.cframe, sizeof(u->at->here.cframe),
			(void *)(u->at->here.cframe + py->cframe_previous)))
		u->at->here.cframe = 0;
	if (own)
		return 0;
	/* 3.15: a chain ends in a shim of no activation. */
	if (!u->at->here.frame && u->sample->frames == u->at->group_at)
		u->at->group_frame = 0;
	u->sample->frames = u->at->group_at;
	u->at->here.frame = u->at->group_frame;
	if (u->at->is_left)
		return try_next(u);
	if (has_subinterpreters(u))
		return start_search(u);
	return u->at->here.frame ? 0 : stop(u, STOP_CHAIN_ENDED);
}

#endif
