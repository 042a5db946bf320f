/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How long did a device work for a process? Bounds, from what the host sees of it.
 *
 * A device is idle for certain from the return of the call that told the host of its last work's end to the entry
 * of the next call that submits any: the upper bound is all other time. It is busy for certain from a moment at which
 * unfinished work had been submitted to the last moment at which that work was seen unfinished: a query said so, or a
 * call was still waiting for it. Whatever cannot be told for sure (another thread's call may not have returned, work
 * waits for the host or for another device, two threads are here at once) widens the bounds. */
#ifndef OTEL_GPU_CUDA_BUSY_BPF_H
#define OTEL_GPU_CUDA_BUSY_BPF_H

#include "abi/busy.h"
#include "abi/cookies.h"
#include "abi/programs.h"
#include "abi/rows.h"
#include "cuda/busy_map.bpf.h"
#include "cuda/capture.bpf.h"
#include "cuda/device.bpf.h"

const volatile u8 busy_time = 1; /* 0: none of this is done */

static __always_inline int is_followed(u64 cookie)
{
	return busy_time && !(COOKIE_KIND(cookie) & KIND_HIP);
}

/* Who is changing an entry of `busy` in more than one step; nobody ever waits for it, and no program ends within: it never
 * holds more than run at a time. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct busy_key);
	__type(value, u8);
} claims SEC(".maps");

/* Not on the stack: kernels below 6.13 have 512 bytes for all functions that are active. */
static const struct busy no_busy = {};

/* A call of another thread that began this long ago has returned. A submission can take longer only when the
 * device's queue is full or its thread was put off its CPU inside it. */
#define RETURNED_NS 1000000

#define HELD (~0ULL)

static __always_inline int claim(const struct busy_key *key)
{
	u8 yes = 1;

	return !bpf_map_update_elem(&claims, key, &yes, BPF_NOEXIST);
}

static __always_inline void unclaim(const struct busy_key *key)
{
	bpf_map_delete_elem(&claims, key);
}

/* The stream's place, BUSY_STREAMS when it has none. */
static __always_inline u32 place_of(const struct busy *b, u64 stream)
{
#pragma unroll
	for (u32 i = 0; i < BUSY_STREAMS; i++)
		if (b->streams[i].stream == stream)
			return i;
	return BUSY_STREAMS;
}

static __always_inline struct busy_stream *at_place(struct busy *b, u32 place)
{
	asm volatile("" : "+r"(place)); /* the verifier must see the mask */
	return &b->streams[place & (BUSY_STREAMS - 1)];
}

/* A place is given to another stream only when its own has long been done with, lest a thread still be using it. */
#define PLACE_KEPT_NS 100000000

RARE u32 take_place(u32 device, u64 stream)
{
	u64 now = bpf_ktime_get_ns();
	struct busy_key key;
	struct caller who;
	struct busy *b;
	u32 place;

	if (!identify(&who))
		return BUSY_STREAMS;
	busy_key_of(&key, &who, device);
	if (!claim(&key))
		return BUSY_STREAMS;
	b = bpf_map_lookup_elem(&busy, &key);
	if (!b) {
		unclaim(&key);
		return BUSY_STREAMS;
	}
	place = place_of(b, stream);
	for (u32 i = 0; i < BUSY_STREAMS && place == BUSY_STREAMS; i++) {
		struct busy_stream *s = &b->streams[i];

		if (s->stream && (s->done != s->last || s->last_ns + PLACE_KEPT_NS > now))
			continue;
		s->last_ns = s->foreign_ns = s->joined_ns = 0;
		s->last = s->done = now; /* nobody submits faster than the clock counts */
		s->tid = 0;
		for (u32 k = 0; k < BUSY_STREAMS; k++) {
			s->joined[k] = 0;
			b->streams[k].joined[i] = 0;
		}
		s->stream = stream;
		place = i;
	}
	unclaim(&key);
	return place;
}

RARE int first_submission(u32 device, u64 context)
{
	struct busy_key key;
	struct caller who;
	struct busy *b;
	u64 now;

	if (!identify(&who))
		return 0;
	busy_key_of(&key, &who, device);
	b = bpf_map_lookup_elem(&busy, &key);
	if (!b) {
		PUT_IN(busy, TABLE_BUSY, &who, &key, &no_busy);
		b = bpf_map_lookup_elem(&busy, &key);
	}
	if (!b) {
		lose(LOSS_BUSY_FULL);
		return 0;
	}
	if (!b->first_ns) {
		now = bpf_ktime_get_ns();
		b->tid = who.pid_tgid;
		b->context = context;
		b->kind.key = key;
		b->opened_ns = b->period_opened_ns = now;
		b->open = 1;
		b->first_ns = now;
	}
	return 1;
}

#define APART (1ULL << 32)

/* The time, in which another thread than the one before uses the device. As long as there is but one, the clock is not
 * read, which tells whether a submission has returned: a thread knows that of its own; and submissions are not counted
 * atomically. Should the first thread be at one now, it will give it a number that no other has, or gets; the total
 * may miss one, of a stream that is not known to be done. */
static __always_inline u64 share(struct busy *b)
{
	u64 now = bpf_ktime_get_ns();

	if (b->tid) {
#pragma unroll
		for (u32 i = 0; i < BUSY_STREAMS; i++) {
			if (b->streams[i].last_ns < now)
				b->streams[i].last_ns = now;
			if (b->streams[i].stream)
				__sync_fetch_and_add(&b->streams[i].last, APART);
		}
		/* So that the present busy period is never taken for known to the last submission. */
		b->period_first--;
		b->tid = 0;
	}
	return now;
}

/* Had every submission to a stream returned when a thread's call began? */
static __always_inline int is_settled(const struct busy_stream *s, u32 tid, u64 began)
{
	u64 foreign = s->tid == tid ? s->foreign_ns : s->last_ns;

	return s->last_ns < began && foreign + RETURNED_NS < began;
}

/* The number of a stream's latest submission if they all had; else 0. It is read first: of what comes meanwhile,
 * nothing is known. */
static __always_inline u64 settled(const struct busy_stream *s, u32 tid, u64 began)
{
	u64 last = *(volatile u64 *)&s->last;

	return is_settled(s, tid, began) ? last : 0;
}

/* A stream's submissions up to this one are done, and those that it waited for. */
static __always_inline void finish(struct busy *b, u32 place, u64 last, u64 began)
{
	struct busy_stream *s = at_place(b, place);

	s->done = last;
	if (s->joined_ns >= began)
		return;
#pragma unroll
	for (u32 i = 0; i < BUSY_STREAMS; i++)
		if (s->joined[i] && b->streams[i].last == s->joined[i])
			b->streams[i].done = s->joined[i];
}

#endif
