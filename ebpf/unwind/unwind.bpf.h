/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Who called? Native frames by the rows of .eh_frame, each activation of CPython's eval loop replaced by the
 * Python frames that it runs: one bpf_loop, a frame a round. Kernel 5.17. */
#ifndef OTEL_GPU_UNWIND_UNWIND_BPF_H
#define OTEL_GPU_UNWIND_UNWIND_BPF_H

#include "abi/stacks.h"
#include "abi/unwinding.h"
#include "unwind/code.bpf.h"
#include "unwind/interpreters.bpf.h"
#include "unwind/native.bpf.h"
#include "unwind/python.bpf.h"
#include "unwind/returns.bpf.h"
#include "unwind/tables.bpf.h"
#include "unwind/walk.bpf.h"

#define MAX_ROUNDS (4 * MAX_FRAMES) /* an eval activation takes four: into its group, its frame, out, and a check */

#define JIT_WITHOUT_FRAME_POINTERS 14 /* CPython 3.14's keeps none and has no tables; 3.15's does keep them */

/* CPython makes a trampoline for perf for each function, from 3.12 on, and calls the eval loop by it: it stands for the
 * Python frame that was just taken, which says the same. */
static __always_inline void leave_out_trampoline(struct stack_sample *s)
{
	u32 n = s->frames;

	if (n >= 2 && n <= MAX_FRAMES && s->frame[n - 2].b >> FRAME_KIND_SHIFT == FRAME_PYTHON)
		s->frames = n - 1;
}

/* Leaves code that was made at run time, which no table describes. */
static __always_inline int step_from_made_code(struct unwind *u)
{
	const struct py_layout *py = &u->process->py;
	int may_leap = u->at->here.frame && py->entry_rule == PY_SHIM && py->marker_to_cfa;

	if (step_by_epilogue(u)) {
		leave_out_trampoline(u->sample);
		return 0;
	}
	if (!(may_leap && py->minor == JIT_WITHOUT_FRAME_POINTERS) && step_by_frame_pointer(u, 0))
		return 0;
	if (!may_leap)
		return stop(u, STOP_FRAME_POINTER);
	u->at->phase = PHASE_LEAP;
	return 0;
}

/* One round: a Python frame, or a native frame and the way out of it. Returns 1 to end the walk. */
static long step(u64 round, struct unwind *u)
{
	struct unwind_mapping *m;
	struct unwind_row *row;
	int made;
	u64 kind;

	if (u->at->phase == PHASE_GROUP || u->at->phase == PHASE_LEAP)
		return python_frame(u);
	if (u->at->phase == PHASE_CHECK)
		return check_group(u);
	if (u->at->phase == PHASE_SEARCH)
		return search(u);
	m = find_mapping(u);
	made = m && m->flags & MAPPING_MADE;
	if (!m) {
		enum code code = code_at(u, u->at->pc - u->at->is_return);
		if (code == CODE_NONE)
			return stop(u, STOP_NO_CODE);
		made = code == CODE_MADE;
	}
	if (u->at->phase != PHASE_TAKEN) {
		if (m && u->process->eval_ranges && in_eval(u->process, u->at->pc - u->at->is_return)) {
			if (!u->at->here.frame && !has_subinterpreters(u))
				return stop(u, STOP_CHAIN_ENDED);
			u->at->phase = u->at->here.frame ? PHASE_GROUP : PHASE_TAKEN;
			u->at->group_frame = u->at->here.frame;
			u->at->group_at = u->sample->frames;
			u->at->is_left = 0;
			u->at->activations = u->at->activations + 1;
			return 0;
		}
		kind = made ? FRAME_MADE : u->at->is_return ? FRAME_NATIVE : FRAME_EXACT;
		if (!put_frame(u, u->at->pc, kind << FRAME_KIND_SHIFT | (made ? u->at->is_return : m ? m->file : 0)))
			return 1;
	}
	u->at->phase = u->at->phase == PHASE_TAKEN ? PHASE_CHECK : PHASE_NATIVE;
	u->at->low = u->at->sp;
	if (made)
		return step_from_made_code(u);
	if (!m)
		return stop(u, STOP_NO_MAPPING);
	if (!m->rows)
		return step_without_rules(u, m, m->flags & MAPPING_NO_TABLE ? STOP_FRAME_POINTER : STOP_NO_TABLE);
	row = find_row(m, (u32)(u->at->pc - u->at->is_return - m->bias));
	if (!row || row->kind == ROW_END)
		return step_without_rules(u, m, STOP_NO_ROW);
	if (row->kind == ROW_UNREAD)
		return stop(u, STOP_NO_TABLE);
	return step_by_row(u, row);
}

#ifndef WALKS_OTHERS
#define AHEAD_WORDS 1024 /* of the stack: what PyTorch has between a launch and its interpreter takes less */

/* One word of the stack above where its walk ended for want of a table: if it may be a return address into code of which
 * the agent has no table either, it is noted. So the agent has all of them read at once, where it would learn of each
 * caller only once the one before it could be left. */
static long look_ahead(u64 round, struct unwind *u)
{
	struct stack_sample *s = u->sample;
	u32 ahead = s->ahead, n = s->frames + ahead;
	struct unwind_mapping *m;
	struct unwind_row *row;

	if (ahead >= MAX_AHEAD || n >= MAX_FRAMES)
		return 1;
	if (READ_WALKED(u, &u->at->pc, sizeof(u->at->pc), (void *)(u->at->sp + round * 8)))
		return 1;
	m = find_mapping(u);
	if (!m || m->flags)
		return 0;
	row = m->rows ? find_row(m, (u32)(u->at->pc - 1 - m->bias)) : NULL;
	if (m->rows && (!row || row->kind != ROW_UNREAD))
		return 0;
	if (!follows_call(u, u->at->pc))
		return 0;
	asm volatile("" : "+r"(n));
	n &= MAX_FRAMES - 1; /* kernels such as 6.1 have forgotten the bound, with n in between on the stack */
	s->frame[n].a = u->at->pc;
	s->frame[n].b = 0;
	s->ahead = ahead + 1;
	return 0;
}
#endif

/* Walks a thread's stack from the given registers into the sample. */
static __always_inline void unwind(OF_TASK struct stack_sample *sample, struct unwind_process *process, u64 pc, u64 sp,
				   u64 fp, int is_return)
{
	struct unwind u = {
#ifdef WALKS_OTHERS
		.task = task,
#endif
		.sample = sample,
		.process = process,
		.at = &sample->at,
	};

#ifdef WALKS_OTHERS
	bpf_probe_read_kernel(&walked_address, sizeof(walked_address), &u.task);
#endif
	__builtin_memset(u.at, 0, sizeof(*u.at));
	u.at->pc = pc;
	u.at->sp = sp;
	u.at->fp = fp;
	u.at->is_return = is_return;
	u.at->mapping = process->first_mapping;
	u.at->trampoline = find_trampoline(ADDRESS_OF_WALKED(&u));
	if (is_return && pc == u.at->trampoline)
		go_on_at(&u, pc, sp - 8);
	if (process->eval_ranges)
		find_python_frame(&u);
	bpf_loop(MAX_ROUNDS, step, &u, 0);
	if (sample->stop == STOP_NONE)
		sample->stop = STOP_FULL;
#ifndef WALKS_OTHERS
	if (sample->stop == STOP_NO_TABLE) {
		u.at->is_return = 1;
		bpf_loop(AHEAD_WORDS, look_ahead, &u, 0);
	}
#endif
	/* Up to 3.10, an activation that is about to end may be without its frame: the others have each other's then. */
	if (sample->stop == STOP_OUTERMOST && process->py.entry_rule == PY_EACH && has_frames_left(&u))
		sample->stop = STOP_FRAMES_LEFT;
}

#endif
