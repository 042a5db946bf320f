/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Events: what happens seldom and cannot be summed. */
#ifndef OTEL_GPU_ABI_EVENTS_H
#define OTEL_GPU_ABI_EVENTS_H

#include "abi/types.h"

/* What an event says. a, b, c and d are given behind each. */
enum event_type {
	EVENT_NAMED = 1,    /* a kernel got its name: handle, module, address of the name, KERNEL_NOW ; then the name */
	EVENT_FIRST_LAUNCH, /* a row of launches was made: handle, row_key.kind, -, - ; then struct origin */
	EVENT_CAPTURED,	    /* a capture recorded a node: capture, node type, handle, bytes or version, NODE_DETAIL */
	EVENT_CALL, /* a call succeeded: function, what it wrote to its out parameter, id, device ; then struct arguments */
	/* A busy period of which stacks were taken is over. tid is the device, time_ns the end. Submissions before it, and up
	 * to its end; when it was opened, its lower bound. */
	EVENT_BUSY_PERIOD,
	/* A program shows itself for the first time: when its process began (CLOCK_BOOTTIME), how often that had called
	 * exec, its parent, whether the way to its executable was walked ; then struct identity. */
	EVENT_PROGRAM,
	/* What a driver's record says of a kernel that nobody saw being named, ahead of its EVENT_FIRST_LAUNCH: handle, -, -, -
	 * ; then the text, as a name. */
	EVENT_RECORDED,
};

/* Node types, as CUgraphNodeType. */
enum node_type {
	NODE_KERNEL = 0,
	NODE_COPY = 1,
	NODE_MEMSET = 2,
	NODE_GRAPH = 4,	       /* launched while its stream was captured: a child with what that version executes */
	NODE_CONDITIONAL = 13, /* has bodies, of which the device alone knows which it executes, and how often */
	NODE_UNKNOWN = 255,    /* of a type that executes what the agent cannot tell */
};

/* EVENT_CAPTURED's d: a kernel's buckets (grid, block << 8), a copy's kind and host memory (kind, host << 8). */
#define NODE_DETAIL(low, high) ((u64)(low) | (u64)(high) << 8)

struct event {
	u32 type;
	u32 tgid;
	u32 exec_id;
	u32 tid;
	u64 time_ns;
	u64 a, b, c, d;
};
_Static_assert(sizeof(struct event) == 56, "event crosses the border");

/* Which kernel a handle is from now on: its generation, and whether it was another one before. */
#define KERNEL_NOW(generation, is_other) ((u32)(u16)(generation) | (u32)(is_other) << 16)
#define KERNEL_FORGOTTEN                                                                                               \
	(1 << 17) /* there was no room to remember the name: nothing tells whether it was another one before */

#define NAME_SHORT 200	/* so that most names fit a record of 256 bytes */
#define NAME_LONG 4096	/* and nearly all of the rest this one */
#define NAME_HUGE 16384 /* longer ones are cut */

struct name_event {
	struct event event;
	char name[]; /* with room for one of these */
};

/* How a driver's records lead from a handle to a text: by offsets, each of which but the last is followed as a pointer. */
#define RECORD_STEPS 3
#define WAYS_AT_ONCE 4
struct record_way {
	u16 offsets[RECORD_STEPS];
	u16 steps; /* 0: there is none here, nor behind it */
};

/* All ways that lead to names in the records of one library. */
struct record_ways {
	struct record_way ways[WAYS_AT_ONCE];
};

#define RECORDED_ARGUMENTS 6
#define RECORDED_BYTES 256
struct arguments {
	u64 values[RECORDED_ARGUMENTS];
	u8 data[RECORDED_BYTES]; /* what one of them pointed to, zeros where it was not readable */
};
struct call_event {
	struct event event;
	struct arguments arguments;
};

/* Where a launch came from: what the kernel's name can be told by when nobody saw it being loaded. */
#define ORIGIN_WORDS 256
struct origin {
	u64 ip, sp, fp;
	u64 saved[5];		 /* callee-saved registers: rbx, r12-r15; x19-x23 */
	u64 stack[ORIGIN_WORDS]; /* from sp on; zeros where it was not readable */
};
struct first_launch {
	struct event event;
	struct origin origin;
};

#endif
