/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which collectives and messages were put on a stream, and has the host not seen done yet? Those of a group are on no stream
 * before it ends: until then its thread stands for one. */
#ifndef OTEL_GPU_NCCL_PENDING_BPF_H
#define OTEL_GPU_NCCL_PENDING_BPF_H

#include "abi/nccl.h"
#include "lib/atomics.bpf.h"
#include "lib/loops.bpf.h"
#include "nccl/rows.bpf.h"
#include "nccl/threads.bpf.h"

#define MOST_PENDING 16	  /* of a stream, or a group: of more it is not known when they are done */
#define FIRST_STREAM 3ULL /* the handles before are the default streams, each of which is another one on each device */

struct nccl_stream_key {
	u32 tgid;
	u32 exec_id;
	u64 stream; /* or caller.task of the thread whose group it is, which no user address is */
};

struct nccl_stream {
	u64 begun; /* how many were put on it, */
	u64 done;  /* and up to which one the host knows them to be done */
};

struct nccl_work_key {
	u32 tgid;
	u32 exec_id;
	u64 stream;
	u64 number;
};

struct nccl_work {
	u64 start_ns;
	u64 comm;
	s32 rank;
	s32 ranks;
	u64 bytes;
	u64 stream;
	u32 captured; /* captures of the program that had ended */
	u8 function;
	u8 datatype;
	u8 reduction;
	u8 pad;
	u64 claims; /* by those who saw it done: it is the first one's */
};

/* Written here; those of programs that have ended are removed by the agent. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, struct nccl_stream_key);
	__type(value, struct nccl_stream);
} nccl_streams SEC(".maps");

/* Each is taken out once, by whoever sees it done. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct nccl_work_key);
	__type(value, struct nccl_work);
} nccl_works SEC(".maps");

static const struct nccl_stream no_stream = {};

static __always_inline struct nccl_stream *stream_of(const struct caller *who, u64 stream)
{
	struct nccl_stream_key key = { who->tgid, who->exec_id, stream };

	return bpf_map_lookup_elem(&nccl_streams, &key);
}

static __always_inline u32 captured_by(const struct caller *who)
{
	struct program *program = program_of(who);

	return program ? program->captured : 0;
}

static __always_inline struct nccl_stream *meet_stream(const struct caller *who, u64 stream)
{
	struct nccl_stream_key key = { who->tgid, who->exec_id, stream };
	struct nccl_stream *found = stream_of(who, stream);

	if (found)
		return found;
	meet();
	KEEP_IN(nccl_streams, TABLE_NCCL_STREAMS, who, &key, &no_stream);
	return stream_of(who, stream);
}

/* Puts a work on a stream, or in a group. */
static __noinline int put_work(u64 stream, const struct nccl_work *work)
{
	struct nccl_work_key key = { .stream = stream };
	struct nccl_stream *on;
	struct caller who;

	if (!work || !identify(&who))
		return 0;
	on = meet_stream(&who, stream);
	if (!on || on->begun - on->done >= MOST_PENDING) {
		lose(LOSS_NCCL_PENDING_FULL);
		return 0;
	}
	key.tgid = who.tgid;
	key.exec_id = who.exec_id;
	key.number = COUNT_UP(&on->begun);
	if (!PUT_IN(nccl_works, TABLE_NCCL_WORKS, &who, &key, work))
		lose(LOSS_NCCL_PENDING_FULL);
	return 0;
}

/* Puts a group's work on its stream: to the group's thread nobody else comes. */
static __always_inline void submit_work(u64 start_ns, struct nccl_work *work)
{
	work->start_ns = start_ns;
	work->claims = 0;
	put_work(work->stream, work);
}

/* A call has returned, and its work is on a stream, or will be when its group ends. */
static __always_inline void follow(const struct caller *who, const struct nccl_thread *t, const struct nccl_call *call)
{
	struct nccl_work work = {
		.start_ns = call->start_ns,
		.comm = call->comm,
		.rank = call->rank,
		.ranks = call->ranks,
		.bytes = call->bytes,
		.stream = call->stream,
		.captured = captured_by(who),
		.function = call->signature.function,
		.datatype = call->signature.datatype,
		.reduction = call->signature.reduction,
	};

	if (call->stream >= FIRST_STREAM)
		put_work(t->groups ? who->task : call->stream, &work);
}

/* What happens to each work of a stream, or a group, up to one of them. */
struct sweep {
	u32 tgid;
	u32 exec_id;
	u64 stream;
	u64 first;
	u64 upto;
	u64 now;
	u32 captured;
	u32 is_alone;
	u32 is_group;
	u32 is_void;
};

static __noinline int finish_work(const struct sweep *s, const struct nccl_work *work)
{
	struct nccl_row_key key = {
		.tgid = s->tgid,
		.exec_id = s->exec_id,
		.comm = work->comm,
		.rank = work->rank,
		.ranks = work->ranks,
		.family = NCCL_DURATIONS,
		.function = work->function,
		.datatype = work->datatype,
		.reduction = work->reduction,
		.alone = s->is_alone,
		.bucket = duration_bucket(s->now - work->start_ns),
	};

	count_nccl(&key, work->bytes, s->now - work->start_ns);
	return 0;
}

ROUND(sweep_one)(u32 i, struct sweep *s)
{
	struct nccl_work_key key = { s->tgid, s->exec_id, s->stream, s->first + i };
	struct nccl_work *work;

	if (key.number > s->upto)
		return 1;
	work = bpf_map_lookup_elem(&nccl_works, &key);
	if (!work || COUNT_UP(&work->claims) != 1)
		return 0;
	/* What was captured into a graph was not put on the stream: its capture has ended since. */
	if (!s->is_void && work->captured == s->captured) {
		if (s->is_group)
			submit_work(s->now, work);
		else
			finish_work(s, work);
	}
	TAKE_OUT(nccl_works, TABLE_NCCL_WORKS, s, &key);
	return 0;
}

/* The host knows all works of a stream to be done up to one. */
RARE int see_done(u64 stream, u64 upto)
{
	struct sweep s = { .stream = stream, .upto = upto };
	struct nccl_stream *on;
	struct caller who;

	if (!identify(&who))
		return 0;
	on = stream_of(&who, stream);
	if (!on || on->done >= upto || on->begun < upto)
		return 0;
	s.tgid = who.tgid;
	s.exec_id = who.exec_id;
	s.is_alone = on->done + 1 == upto;
	/* One may have been put in late by another thread. */
	s.first = upto >= MOST_PENDING ? upto - MOST_PENDING + 1 : 1;
	s.captured = captured_by(&who);
	s.now = bpf_ktime_get_ns();
	REPEAT(MOST_PENDING, sweep_one, &s);
	on->done = upto;
	return 0;
}

/* The calling thread's group has ended: its works are on their streams since it was about to, or nowhere. */
RARE int submit_group(u64 start_ns, u32 has_failed)
{
	struct sweep s = { .is_group = 1, .is_void = has_failed, .now = start_ns };
	struct nccl_stream *on;
	struct caller who;

	if (!identify(&who))
		return 0;
	s.tgid = who.tgid;
	s.exec_id = who.exec_id;
	s.stream = who.task;
	on = stream_of(&who, s.stream);
	if (!on || on->done == on->begun)
		return 0;
	s.first = on->done + 1;
	s.upto = on->begun;
	s.captured = captured_by(&who);
	REPEAT(MOST_PENDING, sweep_one, &s);
	on->done = s.upto;
	return 0;
}

#endif
