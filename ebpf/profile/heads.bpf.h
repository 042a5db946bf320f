/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What does a sample say before its frames? */
#ifndef OTEL_GPU_PROFILE_HEADS_BPF_H
#define OTEL_GPU_PROFILE_HEADS_BPF_H

#include "abi/stacks.h"
#include "lib/caller.bpf.h"

#define SAMPLE_HEAD __builtin_offsetof(struct stack_sample, frame)

static __always_inline void fill_head(struct stack_sample *s, const struct caller *who, u32 type, u32 function,
				      u64 time_ns, u64 subject)
{
	s->type = type;
	s->tgid = who->tgid;
	s->exec_id = who->exec_id;
	s->tid = (u32)who->pid_tgid;
	s->time_ns = time_ns;
	s->function = function;
	s->stop = STOP_NONE;
	s->ahead = 0;
	s->frames = 0;
	s->value = 0;
	s->count = 1;
	s->subject = subject;
	s->latest = 0;
	s->owner = (struct sample_owner){};
}

#endif
