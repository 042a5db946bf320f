// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* When does the host see that a stream, or an event on it, is done? Functions of the driver, and of HIP: only for streams on which
 * there is something of NCCL's. */
#include "nccl/pending.bpf.h"

struct nccl_event_key {
	u32 tgid;
	u32 exec_id;
	u64 event;
};

/* Up to which work of a stream all is done when an event is. */
struct nccl_recorded {
	u64 stream;
	u64 upto;
};

/* Events that were recorded behind works; removed when they are recorded anew, or destroyed. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct nccl_event_key);
	__type(value, struct nccl_recorded);
} nccl_recorded SEC(".maps");

/* Remembers for which work the calling thread waits, or behind which it records an event. */
static __always_inline void await(struct pt_regs *ctx, const struct caller *who, u64 stream, u64 upto, u64 event)
{
	struct nccl_thread *t = meet_nccl_thread(who);

	if (!t) {
		lose(LOSS_NCCL_PENDING_FULL);
		return;
	}
	t->wait.stack = STACK_POINTER(ctx);
	t->wait.stream = stream;
	t->wait.upto = upto;
	t->wait.event = event;
}

/* What the call that returns here waited for; NULL where that is not known. */
static __always_inline struct nccl_wait *awaited(struct pt_regs *ctx, const struct caller *who)
{
	struct nccl_thread *t = nccl_thread_of(who);

	if (!t || !t->wait.stack || t->wait.stack + STACK_SKIP != STACK_POINTER(ctx))
		return NULL;
	t->wait.stack = 0;
	return &t->wait;
}

/* (CUstream) */
SEC("uprobe")
int stream_wait(struct pt_regs *ctx)
{
	u64 stream = argument(ctx, 0);
	struct nccl_stream *on;
	struct caller who;

	if (stream < FIRST_STREAM || !identify(&who))
		return 0;
	on = stream_of(&who, stream);
	if (on && on->begun != on->done)
		await(ctx, &who, stream, on->begun, 0);
	return 0;
}

/* (CUevent) */
SEC("uprobe")
int event_wait(struct pt_regs *ctx)
{
	struct nccl_event_key key = { .event = argument(ctx, 0) };
	struct nccl_recorded *recorded;
	struct nccl_stream *on;
	struct caller who;

	if (!identify(&who))
		return 0;
	key.tgid = who.tgid;
	key.exec_id = who.exec_id;
	recorded = bpf_map_lookup_elem(&nccl_recorded, &key);
	on = recorded ? stream_of(&who, recorded->stream) : NULL;
	if (on && on->done < recorded->upto)
		await(ctx, &who, recorded->stream, recorded->upto, key.event);
	return 0;
}

SEC("uretprobe")
int waited(struct pt_regs *ctx)
{
	struct nccl_recorded *recorded;
	struct nccl_event_key key = {};
	struct nccl_wait *wait;
	struct caller who;

	if (!identify(&who))
		return 0;
	wait = awaited(ctx, &who);
	if (!wait || RESULT(ctx))
		return 0;
	if (wait->event) {
		/* Recorded anew meanwhile, by another thread, it may be about something else. */
		key.tgid = who.tgid;
		key.exec_id = who.exec_id;
		key.event = wait->event;
		recorded = bpf_map_lookup_elem(&nccl_recorded, &key);
		if (!recorded || recorded->stream != wait->stream || recorded->upto != wait->upto)
			return 0;
	}
	see_done(wait->stream, wait->upto);
	return 0;
}

static __always_inline void forget_event(const struct caller *who, u64 event)
{
	struct nccl_event_key key = { who->tgid, who->exec_id, event };

	if (bpf_map_lookup_elem(&nccl_recorded, &key))
		TAKE_OUT(nccl_recorded, TABLE_NCCL_RECORDED, who, &key);
}

/* (CUevent, CUstream): from here to its return the event is about the one or the other. */
SEC("uprobe")
int event_records(struct pt_regs *ctx)
{
	u64 event = argument(ctx, 0), stream = argument(ctx, 1);
	struct nccl_stream *on;
	struct caller who;

	if (!identify(&who))
		return 0;
	forget_event(&who, event);
	on = stream < FIRST_STREAM ? NULL : stream_of(&who, stream);
	if (on && on->begun != on->done)
		await(ctx, &who, stream, on->begun, event);
	return 0;
}

SEC("uretprobe")
int event_recorded(struct pt_regs *ctx)
{
	struct nccl_recorded recorded;
	struct nccl_event_key key;
	struct nccl_wait *wait;
	struct caller who;

	if (!identify(&who))
		return 0;
	wait = awaited(ctx, &who);
	if (!wait || RESULT(ctx))
		return 0;
	key = (struct nccl_event_key){ who.tgid, who.exec_id, wait->event };
	recorded = (struct nccl_recorded){ wait->stream, wait->upto };
	if (!PUT_IN(nccl_recorded, TABLE_NCCL_RECORDED, &who, &key, &recorded))
		lose(LOSS_NCCL_PENDING_FULL);
	return 0;
}

/* (CUevent) */
SEC("uprobe")
int event_ends(struct pt_regs *ctx)
{
	struct caller who;

	if (identify(&who))
		forget_event(&who, argument(ctx, 0));
	return 0;
}

/* (CUstream): what was on it is not seen done any more, and another stream may have its handle. */
SEC("uprobe")
int stream_ends(struct pt_regs *ctx)
{
	u64 stream = argument(ctx, 0);
	struct sweep s = { .stream = stream, .is_void = 1 };
	struct nccl_stream *on;
	struct caller who;

	if (stream < FIRST_STREAM || !identify(&who))
		return 0;
	on = stream_of(&who, stream);
	if (!on)
		return 0;
	s.tgid = who.tgid;
	s.exec_id = who.exec_id;
	s.upto = on->begun;
	s.first = s.upto >= MOST_PENDING ? s.upto - MOST_PENDING + 1 : 1;
	/* Its numbers go on: events that were recorded on it are done up to what is gone. */
	REPEAT(MOST_PENDING, sweep_one, &s);
	on->done = s.upto;
	return 0;
}

/* (CUstream, CUgraph *): what was put on streams since it began is in a graph, and on no stream. */
SEC("uprobe")
int capture_ends(struct pt_regs *ctx)
{
	struct program *program;
	struct caller who;

	if (!identify(&who))
		return 0;
	program = program_of(&who);
	if (program)
		__sync_fetch_and_add(&program->captured, 1);
	return 0;
}
