/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* In which contextvars.Context is this thread of a CPython? */
#ifndef OTEL_GPU_INFERENCE_PYTHON_BPF_H
#define OTEL_GPU_INFERENCE_PYTHON_BPF_H

#include "inference/tables.bpf.h"

/* struct _pycontextobject: Include/internal/pycore_context.h, the same from 3.8 to 3.15. */
#define CONTEXT_PREVIOUS 16
#define CONTEXT_ENTERED 40

static __always_inline u64 read_word(u64 at)
{
	u64 word = 0;

	bpf_probe_read_user(&word, sizeof(word), (void *)at);
	return word;
}

/* A word of the calling thread's own: `how` is one of THREAD_STATE_*. */
static __always_inline u64 thread_local_word(u32 how, s64 offset, u64 module)
{
#if defined(__TARGET_ARCH_x86)
	struct task_struct *task = (void *)bpf_get_current_task();
	u64 base = BPF_CORE_READ(task, thread.fsbase), block;

	if (how == THREAD_STATE_SLOT)
		return read_word(base + offset);
	if (how == THREAD_STATE_DTV) {
		block = read_word(read_word(base + 8) + 16 * module);
		return block && block != ~0ULL ? read_word(block + offset) : 0;
	}
#endif
	return 0;
}

static __always_inline u64 thread_state_now(const struct followed *f)
{
	return thread_local_word(f->thread_state, f->thread_offset, f->thread_module);
}

/* The thread's current context; 0 for none, or where there is no CPython. */
static __always_inline u64 context_now(const struct followed *f)
{
	u64 state = f->context_offset ? thread_state_now(f) : 0;

	return state ? read_word(state + f->context_offset) : 0;
}

/* The context from which this one was entered; 0 for none. */
static __always_inline u64 context_before(u64 context)
{
	return context ? read_word(context + CONTEXT_PREVIOUS) : 0;
}

static __always_inline int is_entered(u64 context)
{
	return context && (u32)read_word(context + CONTEXT_ENTERED);
}

#endif
