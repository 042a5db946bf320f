/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Something is done again and again: by bpf_loop, whose round the verifier looks at once, or by a plain loop, of which it
 * looks at every round, for kernels that have none: objects for those are compiled with BEFORE_5_17. */
#ifndef OTEL_GPU_LIB_LOOPS_BPF_H
#define OTEL_GPU_LIB_LOOPS_BPF_H

#include "lib/kernel.h"

/* REPEAT_WHILE(n, goes_on) asks up to n times, as long as the answer is true, and the verifier looks at every round. The loop
 * has a jump at its end, for older kernels refuse one that falls through to where it began, as the compiler likes to place
 * them. */
#define REPEAT_WHILE(n, goes_on)                                                                                       \
	({                                                                                                             \
		__label__ again_;                                                                                      \
		u32 i_ = 0;                                                                                            \
	again_:                                                                                                        \
		if (i_ < (n) && (goes_on)) {                                                                           \
			i_++;                                                                                          \
			asm goto("goto %l0" : : : : again_);                                                           \
		}                                                                                                      \
	})

/* REPEAT(n, round, context) calls `ROUND(round)(u32 i, void *context)` for i = 0, 1, ... up to n times, as long as it
 * returns 0. */
#ifdef BEFORE_5_17
#define ROUND(name) static __always_inline long name
#define REPEAT(n, round, context) REPEAT_WHILE(n, !round(i_, context))
#else
#define ROUND(name) static __noinline long name
#define REPEAT(n, round, context) bpf_loop(n, round, context, 0)
#endif

#endif
