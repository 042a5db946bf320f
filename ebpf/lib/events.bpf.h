/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The trickle of events: what happens seldom and cannot be summed. */
#ifndef OTEL_GPU_LIB_EVENTS_BPF_H
#define OTEL_GPU_LIB_EVENTS_BPF_H

#include "abi/events.h"
#include "abi/programs.h"
#include "lib/shares.bpf.h"

/* Whether the calling program may have so much of the ring; counted where it may not. */
RARE int may_tell(u32 bytes)
{
	struct program *program;
	struct caller who;

	if (!identify(&who))
		return 0;
	program = program_of(&who);
	if (program && may_send(&events, &program->events, bytes))
		return 1;
	lose_of(program, LOSS_EVENTS_FULL);
	return 0;
}

/* A record of the calling program's; NULL, which is counted, where there is no room. */
#define RESERVE_EVENT(type)                                                                                            \
	({                                                                                                             \
		type *record_ = NULL;                                                                                  \
		if (may_tell(sizeof(type))) {                                                                          \
			record_ = bpf_ringbuf_reserve(&events, sizeof(type), 0);                                       \
			if (!record_)                                                                                  \
				lose(LOSS_EVENTS_FULL);                                                                \
		}                                                                                                      \
		record_;                                                                                               \
	})

static __always_inline void fill_event(struct event *e, const struct caller *who, u32 type, u64 a, u64 b, u64 c, u64 d)
{
	*e = (struct event){
		.type = type,
		.tgid = who->tgid,
		.exec_id = who->exec_id,
		.tid = (u32)who->pid_tgid,
		.time_ns = bpf_ktime_get_ns(),
		.a = a,
		.b = b,
		.c = c,
		.d = d,
	};
}

RARE int emit(u32 type, u64 a, u64 b, u64 c, u64 d)
{
	struct caller who;
	struct event *e;

	if (!identify(&who))
		return 0;
	e = RESERVE_EVENT(struct event);
	if (!e)
		return 0;
	fill_event(e, &who, type, a, b, c, d);
	bpf_ringbuf_submit(e, 0);
	return 0;
}

#endif
