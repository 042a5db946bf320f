/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Whose is this activation of the eval loop? A thread that runs a sub-interpreter has a thread state in each, and the
 * frames of each hang on its own. What lies in an activation's stack says which it is: up to 3.9 the saved registers of
 * its caller, which hold the frame; up to 3.12 the cframe; then the shim. */
#ifndef OTEL_GPU_UNWIND_INTERPRETERS_BPF_H
#define OTEL_GPU_UNWIND_INTERPRETERS_BPF_H

#include "abi/stacks.h"
#include "abi/unwinding.h"
#include "unwind/walk.bpf.h"

enum { NOT_ASKED, ONE_INTERPRETER, SEVERAL_INTERPRETERS };

#define MAX_STATES 512 /* thread states looked at in one walk */

/* Whether the program has sub-interpreters: asked once a walk, and only when something is amiss. */
static __always_inline int has_subinterpreters(struct unwind *u)
{
	u64 list[2]; /* the newest, the main one */

	if (!u->at->interpreters) {
		u->at->interpreters = ONE_INTERPRETER;
		if (!READ_WALKED(u, list, sizeof(list), (void *)u->process->interpreters) && list[0] != list[1]) {
			u->at->interpreters = SEVERAL_INTERPRETERS;
			__builtin_memset(&u->sample->search, 0, sizeof(u->sample->search));
		}
	}
	return u->at->interpreters == SEVERAL_INTERPRETERS;
}

/* All bits or none. Without a branch, though the compiler knows one: the verifier would follow both ways of each. */
static __always_inline u64 is_not_zero(u64 value)
{
	u64 top = value | -value;

	asm volatile("" : "+r"(top));
	return -(top >> 63);
}

static __always_inline u64 is_same(u64 a, u64 b)
{
	return ~is_not_zero(a ^ b);
}

#define SAVED_REGISTERS 6
#define FRAME_OBJECT_GENERATOR 96 /* PyFrameObject.f_gen and .f_localsplus of 3.8 and 3.9 */
#define FRAME_OBJECT_LOCALS(py) ((py)->minor == 10 ? 352 : 360)

/* Whether one of the first words is either number. A function of its own for the verifier, which looks at it once. */
__noinline u64 has_either(struct walk_words *words, u32 count, u64 a, u64 b)
{
	u64 found = 0;

	if (!words)
		return 0;
	for (u32 i = 0; i < WORDS_AT_ONCE && i < count; i++)
		found |= is_same(words->word[i], a) | is_same(words->word[i], b);
	return found;
}

/* Up to 3.9, whether the frame is that of the activation that was left. eval() keeps where the frame's locals begin in
 * its own stack frame; and it saves its caller's registers first of all, of which one mostly has the frame, or the
 * generator that the frame belongs to. */
static __always_inline int is_frame_of_activation(struct unwind *u, u64 frame)
{
	u64 locals = frame + FRAME_OBJECT_LOCALS(&u->process->py), saved = u->at->sp - 8 - SAVED_REGISTERS * 8;
	struct walk_words *words = &u->sample->words;
	u64 generator, found = 0;

	if (u->at->low > saved)
		return 0;
	if (u->at->low + sizeof(*words) <= saved && !READ_WALKED(u, words, sizeof(*words), (void *)u->at->low))
		found = has_either(words, WORDS_AT_ONCE, locals, locals);
	if (READ_WALKED(u, words, SAVED_REGISTERS * 8, (void *)saved) ||
	    READ_WALKED(u, &generator, sizeof(generator), (void *)(frame + FRAME_OBJECT_GENERATOR)))
		return 0;
	/* A frame of no generator is looked for twice. */
	generator |= frame & ~is_not_zero(generator);
	return (found | has_either(words, SAVED_REGISTERS, frame, generator)) != 0;
}

/* Up to 3.10, the same, told by the one word of eval's stack frame that holds where the frame's locals begin. */
static __always_inline int keeps_locals_of(struct unwind *u, u64 frame)
{
	u64 locals, at = u->at->sp - u->process->py.marker_to_cfa;

	return u->at->low <= at && !READ_WALKED(u, &locals, sizeof(locals), (void *)at) &&
	       locals == frame + FRAME_OBJECT_LOCALS(&u->process->py);
}

static __always_inline int is_in_activation(const struct unwind *u, u64 marker)
{
	return u->at->low <= marker && marker < u->at->sp;
}

/* Changes the thread state whose frames come next for one that was laid aside; twice is as never. */
static __always_inline void swap(struct unwind *u, u32 at)
{
	struct py_cursor *aside = &u->sample->search.aside[at % PY_ASIDE], other = *aside;

	*aside = u->at->here;
	u->at->here = other;
}

/* Looks at every thread state for the frames of the activation that was left: those laid aside, then all. */
static __always_inline int start_search(struct unwind *u)
{
	struct py_search *s = &u->sample->search;

	s->interp = 0;
	s->next = 0;
	s->next_aside = 0;
	u->at->phase = PHASE_SEARCH;
	return 0;
}

static __always_inline int end_search(struct unwind *u)
{
	u->at->phase = PHASE_NATIVE;
	if (!u->at->here.frame)
		return stop(u, STOP_CHAIN_ENDED);
	/* The innermost one has only begun, or is about to end. */
	return u->at->activations == 1 ? 0 : stop(u, STOP_NO_OWNER);
}

static __always_inline int take_from(struct unwind *u, u32 at)
{
	u->sample->search.swapped = at;
	swap(u, at);
	u->at->group_frame = u->at->here.frame;
	u->at->is_left = 1;
	u->at->phase = PHASE_GROUP;
	return 0;
}

/* The frames tried were another activation's: the search goes on where it was. */
static __always_inline int try_next(struct unwind *u)
{
	struct py_search *s = &u->sample->search;

	swap(u, s->swapped);
	if (s->is_fresh)
		s->aside[s->swapped % PY_ASIDE].frame = 0;
	u->at->phase = PHASE_SEARCH;
	return 0;
}

/* Whether the activation that was left may be one of this state's. From 3.13 on only its frames will tell. */
static __always_inline int may_own(struct unwind *u, const struct py_cursor *c)
{
	const struct py_layout *py = &u->process->py;
	u64 thread = 0;

	if (!c->frame)
		return 0;
	if (py->tstate_cframe != PY_ABSENT)
		return is_in_activation(u, c->cframe);
	if (py->entry_rule == PY_EACH)
		return is_frame_of_activation(u, c->frame);
	READ_WALKED(u, &thread, sizeof(thread), (void *)(c->state + py->tstate_thread_id));
	return thread == WALKED(u)->thread.fsbase;
}

static __always_inline void read_cursor(const struct unwind *u, u64 state, struct py_cursor *c)
{
	const struct py_layout *py = &u->process->py;

	c->state = state;
	c->frame = 0;
	c->cframe = 0;
	if (py->tstate_cframe != PY_ABSENT)
		READ_WALKED(u, &c->cframe, sizeof(c->cframe), (void *)(state + py->tstate_cframe));
	if (py->tstate_frame != PY_ABSENT)
		READ_WALKED(u, &c->frame, sizeof(c->frame), (void *)(state + py->tstate_frame));
	else if (c->cframe)
		READ_WALKED(u, &c->frame, sizeof(c->frame), (void *)(c->cframe + py->cframe_frame));
}

static __always_inline int has_frames_left(const struct unwind *u)
{
	const struct py_search *s = &u->sample->search;
	u64 left = u->at->here.frame;

	if (u->at->interpreters == SEVERAL_INTERPRETERS)
		for (int i = 0; i < PY_ASIDE; i++)
			left |= s->aside[i].frame;
	return left != 0;
}

/* One round of the search: one thread state, or the way to the next interpreter. */
static __always_inline int search(struct unwind *u)
{
	const struct py_layout *py = &u->process->py;
	struct py_search *s = &u->sample->search;
	u32 at = s->next_aside, free = PY_ASIDE;
	struct py_cursor c;

	if (at < PY_ASIDE) {
		c = s->aside[at];
		s->next_aside = at + 1;
		s->is_fresh = 0;
		return may_own(u, &c) ? take_from(u, at) : 0;
	}
	if (!s->next) {
		u64 link = s->interp ? s->interp + py->interp_next : u->process->interpreters, interp, next;

		if (READ_WALKED(u, &interp, sizeof(interp), (void *)link) || !interp ||
		    READ_WALKED(u, &next, sizeof(next), (void *)(interp + py->interp_threads)))
			return end_search(u);
		s->interp = interp;
		s->next = next;
		return ++s->looked_at > MAX_STATES ? stop(u, STOP_STATES) : 0;
	}
	if (++s->looked_at > MAX_STATES)
		return stop(u, STOP_STATES);
	read_cursor(u, s->next, &c);
	if (READ_WALKED(u, &s->next, sizeof(s->next), (void *)(c.state + py->tstate_next)))
		s->next = 0;
	if (c.state == u->at->here.state || !may_own(u, &c))
		return 0;
	for (u32 i = 0; i < PY_ASIDE; i++) {
		if (!s->aside[i].frame)
			free = i;
		else if (s->aside[i].state == c.state)
			return 0;
	}
	if (free >= PY_ASIDE)
		return stop(u, STOP_STATES);
	s->aside[free] = c;
	s->is_fresh = 1;
	return take_from(u, free);
}

#endif
