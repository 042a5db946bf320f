/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* In which call of a library is a thread? From its entry to its return, by function: one may call another. */
#ifndef OTEL_GPU_RDMA_CALLS_BPF_H
#define OTEL_GPU_RDMA_CALLS_BPF_H

#include "rdma/queue_pairs.bpf.h"

struct verbs_call_key {
	u64 task;
	u64 function;
};

/* What of a completion a program has read. */
struct verbs_read {
	u32 known; /* a bit for each of enum verbs_reading */
	u32 opcode;
	u32 bytes;
	u32 qpn;
};

enum verbs_reading {
	READ_OPCODE,
	READ_BYTES,
	READ_QP_NUM,
};

struct verbs_call {
	u32 tgid;
	u32 exec_id;
	u64 born_ns;
	u64 a, b, c;
	u64 start_ns;
	struct verbs_read read;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct verbs_call_key);
	__type(value, struct verbs_call);
} verbs_calls SEC(".maps");

enum verbs_function {
	VERBS_POLL = 1,
	VERBS_CREATE,
	VERBS_CREATE_BY_COMMAND,
	VERBS_MODIFY,
	VERBS_DESTROY,
	VERBS_REGISTER,
	VERBS_DEREGISTER,
	VERBS_GET_EVENT,
	VERBS_START_POLL,
	VERBS_NEXT_POLL,
	VERBS_READ,
	VERBS_CREATE_QUEUE,
};

static __always_inline void begin_call(const struct caller *who, u64 function, u64 a, u64 b, u64 c)
{
	struct verbs_call_key key = { who->task, function };
	struct verbs_call call = { who->tgid, who->exec_id, who->born_ns, a, b, c, bpf_ktime_get_ns(), {} };
	struct verbs_call *left = bpf_map_lookup_elem(&verbs_calls, &key);

	if (left && left->tgid == call.tgid && left->exec_id == call.exec_id) {
		*left = call; /* it was left without returning */
		return;
	}
	if (left)
		take_out(&verbs_calls, TABLE_VERBS_CALLS, left->tgid, left->exec_id, &key);
	/* A program that was there before has its first entry here. */
	if (!program_of(who))
		meet();
	if (!PUT_IN(verbs_calls, TABLE_VERBS_CALLS, who, &key, &call))
		lose(LOSS_CALLS_FULL);
}

/* Takes out the call that returns; false where its entry was not seen. */
static __always_inline int end_call(const struct caller *who, u64 function, struct verbs_call *call)
{
	struct verbs_call_key key = { who->task, function };
	struct verbs_call *found = bpf_map_lookup_elem(&verbs_calls, &key);

	if (!found)
		return 0;
	*call = *found;
	take_out(&verbs_calls, TABLE_VERBS_CALLS, call->tgid, call->exec_id, &key);
	return call->born_ns == who->born_ns && call->exec_id == who->exec_id;
}

/* What a program on a function's entry does where nothing has to be read first. */
static __always_inline int enter(u64 function, u64 a, u64 b, u64 c)
{
	struct caller who;

	if (identify(&who))
		begin_call(&who, function, a, b, c);
	return 0;
}

/* On its return: who has returned from which call; false where nobody is observed, or its entry was not seen. */
static __always_inline int leave(u64 function, struct caller *who, struct verbs_call *call)
{
	return identify(who) && end_call(who, function, call);
}

#endif
