/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Where in its stream was an event recorded, and who waits for it there? */
#ifndef OTEL_GPU_CUDA_RECORDED_EVENTS_BPF_H
#define OTEL_GPU_CUDA_RECORDED_EVENTS_BPF_H

#include "abi/busy.h"
#include "abi/programs.h"
#include "cuda/busy.bpf.h"
#include "cuda/submissions.bpf.h"

/* Where in its stream an event was recorded last. */
struct recorded {
	u64 stream;
	u64 at_ns;
	u64 last; /* the stream's latest submission then; 0 when its call may not have returned */
	u32 device;
	u32 tid;
};

/* Written here, removed when the event is destroyed. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 131072);
	__type(key, struct context_key); /* the event in place of a context */
	__type(value, struct recorded);
} recorded SEC(".maps");

static __always_inline struct recorded *find_recorded(const struct busy_key *key, u64 event)
{
	struct context_key which = { key->tgid, key->exec_id, event };

	return bpf_map_lookup_elem(&recorded, &which);
}

RARE int put_recorded(u64 event, u64 stream, u64 at_ns, u64 last, u32 device)
{
	struct recorded r = { .stream = stream, .at_ns = at_ns, .last = last, .device = device };
	struct context_key which;
	struct caller who;

	if (!identify(&who))
		return 0;
	meet();
	r.tid = who.pid_tgid;
	which = (struct context_key){ who.tgid, who.exec_id, event };
	if (bpf_map_lookup_elem(&recorded, &which))
		bpf_map_update_elem(&recorded, &which, &r, BPF_EXIST); /* as a whole, for who reads it meanwhile */
	else if (!KEEP_IN(recorded, TABLE_RECORDED, &who, &which, &r))
		lose(LOSS_BUSY_FULL);
	return 0;
}

static __always_inline void record_event(const struct caller *who, u64 event, u64 stream, u8 flags)
{
	u64 now = bpf_ktime_get_ns(), last = 0;
	u32 device = device_of(who), tid = who->pid_tgid, place;
	struct busy_key key;
	struct busy *b;

	stream = normal_stream(who, stream, flags);
	busy_key_of(&key, who, device);
	b = bpf_map_lookup_elem(&busy, &key);
	if (b) {
		if (b->tid && b->tid != tid)
			share(b);
		place = place_of(b, stream);
		if (place < BUSY_STREAMS)
			last = settled(at_place(b, place), tid, now);
	}
	put_recorded(event, stream, now, last, device);
}

static __always_inline void forget_event(const struct caller *who, u64 event)
{
	struct context_key which = { who->tgid, who->exec_id, event };

	TAKE_OUT(recorded, TABLE_RECORDED, who, &which);
}

/* A stream waits for an event: when it is done, so is what comes before the event. */
static __always_inline void join_streams(const struct caller *who, u64 stream, u64 event, u8 flags)
{
	struct thread *t = thread_of(who);
	u32 device = device_of_thread(t), from, to;
	struct busy_stream *s;
	struct busy_key key;
	struct recorded *r;
	struct busy *b;

	busy_key_of(&key, who, device);
	r = find_recorded(&key, event);
	if (!r || r->device != device) {
		hold(who, t); /* another device's event, another process's, or one from before we looked */
		return;
	}
	b = bpf_map_lookup_elem(&busy, &key);
	if (!b || !r->last)
		return;
	stream = normal_stream(who, stream, flags);
	from = place_of(b, r->stream);
	to = place_of(b, stream);
	if (to == BUSY_STREAMS)
		to = take_place(key.device, stream);
	if (from >= BUSY_STREAMS || to >= BUSY_STREAMS)
		return;
	s = at_place(b, to);
	asm volatile("" : "+r"(from));
	s->joined[from & (BUSY_STREAMS - 1)] = r->last;
	s->joined_ns = bpf_ktime_get_ns();
}

#endif
