/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A stack: its frames, why it ends, and where its walk is. */
#ifndef OTEL_GPU_ABI_STACKS_H
#define OTEL_GPU_ABI_STACKS_H

#include "abi/types.h"

/* Why a stack ends where it ends. */
enum stop {
	STOP_NONE,
	STOP_OUTERMOST,	      /* it is complete */
	STOP_FULL,	      /* deeper than MAX_FRAMES */
	STOP_NO_MAPPING,      /* an address in no known mapping */
	STOP_NO_TABLE,	      /* the mapping's table is not there, or not yet */
	STOP_NO_ROW,	      /* no unwinding information for the address */
	STOP_UNSUPPORTED,     /* a rule that rows cannot say */
	STOP_UNREADABLE,      /* stack memory could not be read */
	STOP_STUCK,	      /* the stack pointer would not rise */
	STOP_CHAIN_ENDED,     /* more eval loops than Python frames: a greenlet */
	STOP_FRAME_POINTER,   /* code without tables and without frame pointers */
	STOP_UNKNOWN_PROCESS, /* the agent has yet to learn of the process */
	STOP_NO_CODE,	      /* the return address leads to no code: the callers are unknown */
	STOP_STATES,	      /* more interpreters or thread states than are looked at */
	STOP_NO_OWNER,	      /* an eval loop of no interpreter's thread state */
	STOP_FRAMES_LEFT,     /* fewer eval loops than Python frames */
	STOP_COUNT,
};

/* What a frame is of. */
enum frame_kind {
	FRAME_NATIVE = 1, /* a: address, b: file; not the leaf: a return address */
	FRAME_PYTHON = 2, /* see struct frame */
	FRAME_EXACT = 3,  /* as FRAME_NATIVE, but the very instruction */
	FRAME_MADE = 4,	  /* as FRAME_NATIVE, of code without a file */
};
#define FRAME_KIND_SHIFT 56
#define FRAME_OWNER_SHIFT 48

/* A native frame: a is the address, b is kind << 56 | file.
 * A Python frame: a is the code object, with the upper half of its checksum in the 16 bits that no address of a program
 * uses; b is kind << 56 | owner << 48 | the checksum's lower half << 32 | the instruction: an int f_lasti as it
 * is, or bytes from the first code unit. */
struct frame {
	u64 a;
	u64 b;
};
#define FRAME_CHECKSUM_A 48
#define FRAME_CHECKSUM_B 32

#define WORDS_AT_ONCE 16
#define MAX_AHEAD 128
#define MAX_FRAMES 512 /* CPython up to 3.10 has four native frames for each Python frame */

/* What is still to come of a thread state's Python frames. */
struct py_cursor {
	u64 state;
	u64 frame;  /* the innermost; 0: the chain has ended */
	u64 cframe; /* up to 3.12: what marks its eval activation */
};

/* Where the search for a thread state is; of no use to the agent, but the verifier does not follow values in here. */
#define PY_ASIDE 4 /* thread states that take turns in one stack, but for the present one */
struct py_search {
	u64 interp;
	u64 next; /* thread state */
	u32 next_aside;
	u32 looked_at;
	u32 swapped; /* which one laid aside has changed places with the one that is tried */
	u32 is_fresh;
	struct py_cursor aside[PY_ASIDE];
};

/* Where a walk is. */
struct unwind_state {
	u64 pc, sp, fp;
	struct py_cursor here;
	u64 low;	 /* the stack pointer in the activation that was left; sp is then its end */
	u64 marker;	 /* what lies in the stack of the activation whose frames were taken; 0: not known */
	u64 group_frame; /* as here.frame, and the sample's frames, were before these */
	u64 trampoline; /* what lies in the stack as the return address of calls whose return is probed; 0: there are none */
	u32 group_at;
	u32 activations; /* of the eval loop, so far */
	u32 is_left;	 /* the activation is left already: no need to do so when its frames are taken */
	u32 interpreters;
	u32 mapping;   /* the last one found, absolute: calls mostly stay in one file */
	u32 is_return; /* pc is a return address: the call is before it */
	u32 phase;
	u32 pad;
};

struct walk_words {
	u64 word[WORDS_AT_ONCE];
};

/* Whose the work is that a stack shows, as far as it is known when the stack is taken. Ids are as on the wire. */
struct sample_owner {
	u64 request;  /* its number; 0: none */
	u64 holder;   /* whose end decides whether it was for that request: struct python_context.number; 0: it was */
	u64 trace[2]; /* of the program's own span that is current, */
	u64 span;     /* 0: there is none */
};
_Static_assert(sizeof(struct sample_owner) == 40, "sample_owner crosses the border");

struct stack_sample {
	u32 type;
	u32 tgid;
	u32 exec_id;
	u32 tid;
	u64 time_ns;
	u64 value;
	u64 count; /* how many calls it stands for */
	u64 subject;
	u64 latest; /* what of the value is the last call's, whose the stack is: the rest is of those before it */
	struct sample_owner owner; /* of the last call */
	u16 function;
	u8 stop; /* enum stop */
	u8 ahead;
	u32 frames;
	/* Leaf first; behind them, of a stack that ends for want of a table, `ahead` further return addresses that lie on it
	 * in code without one: b is 0. */
	struct frame frame[MAX_FRAMES];
	/* What only the walk needs. Here, because its own stack is small, and because the verifier follows what stands
	 * there: it would look at a walk's code once for every combination of values. */
	struct unwind_state at;
	struct py_search search;
	struct walk_words words; /* of a Python frame, or of the stack */
};

#endif
