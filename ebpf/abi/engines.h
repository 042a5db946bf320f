/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Programs that work for requests of others. */
#ifndef OTEL_GPU_ABI_ENGINES_H
#define OTEL_GPU_ABI_ENGINES_H

#include "abi/requests.h"

/* What happened in an engine. */
enum engine_event_kind {
	ENGINE_DELIVERED = 1, /* a message of a request was received */
	ENGINE_STEP,	      /* a thread's step is over */
	ENGINE_AMBIGUOUS,     /* equal messages of several requests are on the way: nobody knows who gets which */
	ENGINE_UNCLEAR_STEP,  /* a step is over that may have served somebody besides those who are known */
	ENGINE_FED,	      /* a program received what another sent whose requests are not followed */
};

/* What happened in an engine. Times are CLOCK_MONOTONIC. */
struct engine_event {
	u32 kind; /* enum engine_event_kind */
	u32 tgid;
	u32 exec_id;
	u32 tid;
	u64 time_ns; /* when; of a step, when the host saw its end */
	u64 request; /* delivered; ambiguous: one of them */
	u32 sender;  /* tgid of who sent the message */
	u32 sender_exec_id;
	u64 began_ns; /* of a step: its first launch, or copy to the device, */
	u64 last_ns;  /* and its last */
	struct gpu_totals totals;
};
_Static_assert(sizeof(struct engine_event) == 128, "engine_event crosses the border");

/* A program that others send messages to. Whose message is of no request that is known is a stranger: what the program does
 * until it is done with that may be for it. */
struct engine {
	u64 request;   /* that was delivered last */
	u64 strangers; /* messages of strangers, over ZeroMQ, which does not say when one of them is answered, */
	u64 left;      /* and with how many of those it is done, as the agent says */
	u64 stranger; /* the program that sent those which are left, tgid << 32 | exec_id; STRANGERS: nobody can tell */
	u64 stranger_ns; /* when one was received last */
	u64 worked_ns;	 /* when it last began something that is no single request's */
	u64 cold_ns; /* when it was met amid work of which it is not known whom it is for, as of the first stranger; 0: it was not */
	u32 is_delivered;     /* a request was handed on to it: it is an engine */
	u32 is_sent_messages; /* of ZeroMQ: it hands them on within, so what any of its threads does is for them */
};
_Static_assert(sizeof(struct engine) == 64, "engine crosses the border");
#define STRANGERS (~0ULL)

/* How far a thread's step has come. */
enum step_state {
	STEP_NONE, /* the thread has done nothing since the last one was told */
	STEP_GOES_ON,
	STEP_SEEN,  /* the host has seen the device done: what comes next may begin another */
	STEP_TAKEN, /* it is being told */
};

/* What a thread of an engine is doing. */
struct step {
	u32 tgid;
	u32 exec_id;
	u32 tid;
	u32 state;
	u32 is_unclear;
	u32 pad;
	u64 began_ns;
	u64 last_ns;
	u64 seen_ns;
	struct gpu_totals totals;
};
_Static_assert(sizeof(struct step) == 120, "step crosses the border");

#endif
