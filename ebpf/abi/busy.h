/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is known of a device's work for a program. */
#ifndef OTEL_GPU_ABI_BUSY_H
#define OTEL_GPU_ABI_BUSY_H

#include "abi/types.h"

/* What is known of a device's work for a process. Times are CLOCK_MONOTONIC. */
struct busy_key {
	u32 tgid;
	u32 exec_id;
	u32 device;
	u32 pad;
};
_Static_assert(sizeof(struct busy_key) == 16, "busy_key crosses the border");

#define PERIOD_PARTS 4 /* kinds of submissions that are told apart in one busy period */

/* Submissions of one busy period that do the same. */
struct period_part {
	u64 subject; /* see PART_OF */
	u64 calls;
};

/* A kernel's handle, or what is none by its function. */
#define PART_OF(subject, function) ((subject) ?: 1ULL << 63 | (function))

/* All busy periods of a program on a device that did the same. */
struct period_kind {
	struct busy_key key;
	struct period_part parts[PERIOD_PARTS]; /* in the order in which they came first */
};
_Static_assert(sizeof(struct period_kind) == 80, "period_kind crosses the border");

struct period_sum {
	u64 periods;
	u64 upper_ns;
	u64 lower_ns;
};
_Static_assert(sizeof(struct period_sum) == 24, "period_sum crosses the border");

#define BUSY_STREAMS 8 /* in use at a time; work on more is known to be done only when all of the context's is */

struct busy_stream {
	u64 stream;
	u64 last;		  /* number of its latest submission; never the same again, whatever stream is here */
	u64 last_ns;		  /* entry of that one, or later; kept only when several threads use the device */
	u64 foreign_ns;		  /* of the latest one by another thread than tid */
	u64 done;		  /* as last when all of it is known to be done */
	u64 joined_ns;		  /* when it was last made to wait for another stream */
	u64 joined[BUSY_STREAMS]; /* up to which submission of each it waits */
	u32 tid;
	u32 pad;
};

struct busy {
	u64 first_ns;	   /* first submission */
	u64 idle_ns;	   /* certain gaps since then, but for the present one */
	u64 lower_ns;	   /* certainly busy */
	u64 idle_since_ns; /* the present gap, if submissions == idle_submissions; 0 for none */
	u64 idle_submissions;
	u64 submissions;
	u64 period_first; /* of the present busy period, or the last: submissions before it */
	u64 period_opened_ns;
	u64 period_lower_ns;	 /* lower_ns before it */
	u64 sampled;		 /* the latest submission whose stack was taken, or a little later */
	u64 noted;		 /* submissions of the present busy period that are in its kind's parts */
	u64 noting;		 /* somebody is at them */
	struct period_kind kind; /* what the present busy period does, as far as it is noted */
	u64 opened_ns;		 /* end of the last gap */
	u64 covered_ns;		 /* lower_ns has what lies before */
	u64 clean_ns;		 /* nothing submitted since waits for the host or other devices; ~0: something does */
	u64 seen_ns;		 /* nothing was submitted since, while the number is still: */
	u64 seen_submissions;
	u64 untracked_ns; /* latest submission to a stream that found no place; 0 when it is done */
	u64 context;
	u32 open;  /* 0: the next submission ends a gap */
	u32 mixed; /* several contexts use the device */
	u32 tid;   /* the only thread that uses the device; 0: there are several */
	u32 pad;
	struct busy_stream streams[BUSY_STREAMS];
};
_Static_assert(sizeof(struct busy) == 248 + BUSY_STREAMS * (56 + 8 * BUSY_STREAMS), "busy crosses the border");

#endif
