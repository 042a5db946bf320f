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
#include "abi/events.h"
#include "abi/programs.h"
#include "abi/rows.h"
#include "cuda/busy_map.bpf.h"
#include "cuda/capture.bpf.h"
#include "cuda/device.bpf.h"
#include "cuda/events.bpf.h"
#include "lib/rows.bpf.h"

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

/* What batches came to, by what was done in them: of those whose every submission is in busy.kind. Read by the agent,
 * which removes those of ended processes. What finds no room is time of which less is known. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, struct batch_kind);
	__type(value, struct batch_sum);
} batch_kinds SEC(".maps");

/* When the agent read last: batches that were opened before are not added up. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} batches_since SEC(".maps");

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

/* Not on the stack: kernels below 6.13 have 512 bytes for all functions that are active. */
static const struct busy no_busy = {};
static const struct batch_sum no_batches = {};

/* A call of another thread that began this long ago has returned. A submission can take longer only when the
 * device's queue is full or its thread was put off its CPU inside it. */
#define RETURNED_NS 1000000

/* From the end of the awaited work to the return of a call, apart from the time that its thread waited for a CPU:
 * the way out of the driver with what interrupts it; and, of a thread that slept, the device's interrupt, a CPU's way
 * out of idleness and the wake-up. Virtual machines were seen to take 250 us. */
#define RETURN_NS 50000
#define WAKE_NS 300000

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
		b->opened_ns = b->batch_opened_ns = now;
		b->open = 1;
		b->first_ns = now;
	}
	return 1;
}

static __always_inline void sum_batch(const struct busy *b, u64 ended)
{
	const struct busy_key *key = &b->kind.key;
	struct batch_sum *sum;
	u64 *since;
	u32 zero = 0;

	since = bpf_map_lookup_elem(&batches_since, &zero);
	if (!since || b->batch_opened_ns < *since)
		return;
	sum = bpf_map_lookup_elem(&batch_kinds, &b->kind);
	if (!sum) {
		PUT_IN(batch_kinds, TABLE_BATCH_KINDS, key, &b->kind, &no_batches);
		sum = bpf_map_lookup_elem(&batch_kinds, &b->kind);
	}
	if (!sum) {
		lose(LOSS_BUSY_FULL);
		return;
	}
	/* Nobody else is here: the device's entry is claimed. */
	sum->batches++;
	sum->upper_ns += ended - b->batch_opened_ns;
	sum->lower_ns += b->lower_ns - b->batch_lower_ns;
}

/* Says what a batch came to, when somebody has looked who made it, and begins the next one. */
static __always_inline void next_batch(const struct busy_key *key, struct busy *b, u64 ended, u64 now)
{
	struct event *e;

	if (b->sampled > b->batch_first && b->sampled <= b->idle_submissions) {
		e = RESERVE_EVENT(struct event);
		if (e) {
			*e = (struct event){
				.type = EVENT_BATCH,
				.tgid = key->tgid,
				.incarnation = key->incarnation,
				.tid = key->device,
				.time_ns = ended,
				.a = b->batch_first,
				.b = b->idle_submissions,
				.c = b->batch_opened_ns,
				.d = b->lower_ns - b->batch_lower_ns,
			};
			bpf_ringbuf_submit(e, 0);
		}
	}
	if (b->noted) {
		if (b->noted == b->idle_submissions - b->batch_first)
			sum_batch(b, ended);
		b->noted = 0;
		for (u32 i = 0; i < BATCH_PARTS; i++)
			b->kind.parts[i] = (struct batch_part){};
	}
	b->batch_first = b->idle_submissions;
	b->batch_opened_ns = now;
	b->batch_lower_ns = b->lower_ns;
}

/* Work comes after a time in which the device was known to be idle. */
RARE int begin_work(u32 device)
{
	struct row_key row = { .family = FAMILY_IDLE, .bucket_b = BUCKET_NONE };
	u64 now = bpf_ktime_get_ns(), since;
	struct busy_key key;
	struct caller who;
	struct busy *b;

	if (!identify(&who))
		return 0;
	busy_key_of(&key, &who, device);
	/* When the entry is taken the next submission will try: the gap, with two submissions behind it, is void. */
	if (!claim(&key))
		return 0;
	b = bpf_map_lookup_elem(&busy, &key);
	if (b && !b->open) {
		since = b->idle_since_ns;
		b->idle_since_ns = 0;
		b->opened_ns = now;
		if (since && since < now && b->submissions == b->idle_submissions + 1) {
			b->idle_ns += now - since;
			next_batch(&key, b, since, now);
			row.tgid = key.tgid;
			row.incarnation = key.incarnation;
			row.device = device;
			row.bucket_a = duration_bucket(now - since);
			count_more(&row, now - since, 0);
		}
		b->open = 1;
	}
	unclaim(&key);
	return 0;
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
		/* So that the present batch is never taken for known to the last submission. */
		b->batch_first--;
		b->tid = 0;
	}
	return now;
}

/* Work is about to be given to a stream. */
static __always_inline void submit(const struct caller *who, const struct thread *t, u64 stream, u64 cookie)
{
	u32 tid = who->pid_tgid, place;
	u64 now = 0, context;
	struct busy_stream *s;
	struct busy_key key;
	struct busy *b;

	if (!is_followed(cookie))
		return;
	context = context_of_thread(t);
	busy_key_of(&key, who, device_of_thread(t));
	stream = normal_stream(who, stream, COOKIE_FLAGS(cookie));
	b = bpf_map_lookup_elem(&busy, &key);
	if (!b) {
		if (!first_submission(key.device, context))
			return;
		b = bpf_map_lookup_elem(&busy, &key);
		if (!b)
			return;
	}
	if (b->context != context)
		b->mixed = 1;
	if (b->tid != tid)
		now = share(b);
	place = place_of(b, stream);
	if (place == BUSY_STREAMS)
		place = take_place(key.device, stream);
	if (place < BUSY_STREAMS) {
		s = at_place(b, place);
		if (s->tid != tid) {
			s->foreign_ns = s->last_ns;
			s->tid = tid;
		}
		if (now) {
			s->last_ns = now;
			__sync_fetch_and_add(&s->last, 1);
		} else {
			(*(volatile u64 *)&s->last)++;
		}
	} else {
		b->untracked_ns = bpf_ktime_get_ns();
	}
	/* After the number in its stream, which an observer of this one must find there. */
	if (now)
		__sync_fetch_and_add(&b->submissions, 1);
	else
		(*(volatile u64 *)&b->submissions)++;
	if (!b->open)
		begin_work(key.device);
}

/* Work will wait for something that is none of the device's: until it is idle, nothing tells that it is busy. */
static __always_inline void hold(const struct caller *who, const struct thread *t)
{
	struct busy_key key;
	struct busy *b;

	meet();
	busy_key_of(&key, who, device_of_thread(t));
	first_submission(key.device, context_of_thread(t));
	b = bpf_map_lookup_elem(&busy, &key);
	if (b)
		b->clean_ns = HELD;
}

/* Some graph of the process does so whenever it is launched. */
static __always_inline void hold_graphs(const struct caller *who)
{
	struct program *program;

	meet();
	program = program_of(who);
	if (program)
		program->holds_graphs = 1;
}

static __always_inline void submit_graph(const struct caller *who, const struct thread *t, u64 stream, u64 cookie)
{
	struct program *program;

	submit(who, t, stream, cookie);
	if (!is_followed(cookie))
		return;
	program = program_of(who);
	if (program && program->holds_graphs)
		hold(who, t);
}

/* Busy without a break from `from` to `until`. */
static __noinline int known_busy(struct busy_key *key, u64 from, u64 until)
{
	struct busy *b;

	if (!key || until <= from || !claim(key))
		return 0;
	b = bpf_map_lookup_elem(&busy, key);
	if (b && b->open && b->clean_ns != HELD) {
		if (from < b->clean_ns)
			from = b->clean_ns;
		if (from < b->opened_ns)
			from = b->opened_ns;
		if (from < b->covered_ns)
			from = b->covered_ns;
		if (until > from) {
			b->lower_ns += until - from;
			b->covered_ns = until;
		}
	}
	unclaim(key);
	return 0;
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

/* Is all work done? `submissions` is their number before anything else was looked at. */
static __always_inline void try_idle(struct busy_key *key, struct busy *b, u64 submissions, u64 now)
{
	if (b->untracked_ns)
		return;
#pragma unroll
	for (u32 i = 0; i < BUSY_STREAMS; i++)
		if (b->streams[i].done != b->streams[i].last)
			return;
	if (!claim(key))
		return;
	/* A submission since then makes the numbers differ, and the gap void. */
	if (!b->idle_since_ns || b->idle_submissions != submissions) {
		b->idle_submissions = submissions;
		b->idle_since_ns = now;
		b->clean_ns = now;
	}
	b->open = 0;
	unclaim(key);
}

/* What a call waited for, or asked about. */
struct awaited {
	struct busy_key key;
	u64 stream;   /* WAIT_STREAM */
	u64 event;    /* WAIT_EVENT */
	u64 began_ns; /* the call's entry */
	u32 what;     /* enum wait_kind */
	u32 tid;
};

static __always_inline struct recorded *find_recorded(const struct busy_key *key, u64 event)
{
	struct context_key which = { key->tgid, key->incarnation, event };

	return bpf_map_lookup_elem(&recorded, &which);
}

/* The work was unfinished at `until`. Since when was it there? A wait proves nothing of the time before it began: what
 * looked like waiting for the device may have been something else, and a small error would become a large one. */
static __noinline int seen_busy(struct awaited *a, u64 until, int was_asked)
{
	u64 from, submissions;
	struct recorded *r;
	struct busy *b;
	u32 place;

	if (!a)
		return 0;
	from = a->began_ns;
	if (a->what == WAIT_EVENT) {
		r = find_recorded(&a->key, a->event);
		if (!r || r->at_ns >= from)
			return 0;
		a->key.device = r->device;
		if (was_asked)
			from = r->at_ns;
	}
	b = bpf_map_lookup_elem(&busy, &a->key);
	if (!b || !b->open)
		return 0;
	if (a->what == WAIT_STREAM && a->stream != LEGACY_STREAM) {
		place = place_of(b, a->stream);
		if (place == BUSY_STREAMS || at_place(b, place)->done == at_place(b, place)->last)
			return 0; /* whatever it was, it was not work that we know of */
	}
	submissions = *(volatile u64 *)&b->submissions;
	if (b->seen_submissions != submissions) {
		/* In this order: with the number goes a time that is no older. */
		*(volatile u64 *)&b->seen_ns = bpf_ktime_get_ns();
		*(volatile u64 *)&b->seen_submissions = submissions;
	} else if (was_asked && b->seen_ns < from) {
		from = b->seen_ns; /* nothing was submitted since then */
	}
	known_busy(&a->key, from, until);
	return 0;
}

/* The work is done, as a call that returns now has told. */
static __noinline int seen_done(struct awaited *a, u64 now)
{
	u64 submissions;
	struct recorded *r;
	struct busy *b;
	u64 last = 0, stream;
	u32 place;

	if (!a)
		return 0;
	stream = a->stream;
	if (a->what == WAIT_EVENT) {
		r = find_recorded(&a->key, a->event);
		if (!r || !r->last || r->at_ns >= a->began_ns ||
		    (r->tid != a->tid && r->at_ns + RETURNED_NS >= a->began_ns))
			return 0;
		last = r->last;
		stream = r->stream;
		a->key.device = r->device;
		a->began_ns = r->at_ns;
	}
	b = bpf_map_lookup_elem(&busy, &a->key);
	if (!b)
		return 0;
	if (b->tid && b->tid != a->tid)
		share(b);
	submissions = *(volatile u64 *)&b->submissions;
	if (a->what == WAIT_CONTEXT) {
		if (b->mixed)
			return 0;
		for (place = 0; place < BUSY_STREAMS; place++) {
			last = settled(at_place(b, place), a->tid, a->began_ns);
			if (last)
				finish(b, place, last, a->began_ns);
		}
		if (b->untracked_ns + RETURNED_NS < a->began_ns)
			b->untracked_ns = 0;
	} else {
		place = place_of(b, stream);
		if (place == BUSY_STREAMS)
			return 0;
		if (a->what == WAIT_STREAM)
			last = settled(at_place(b, place), a->tid, a->began_ns);
		else if (at_place(b, place)->last != last)
			last = 0;
		if (last)
			finish(b, place, last, a->began_ns);
	}
	try_idle(&a->key, b, submissions, now);
	return 0;
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
	which = (struct context_key){ who.tgid, who.incarnation, event };
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
	struct context_key which = { who->tgid, who->incarnation, event };

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

static __always_inline void read_thread_state(struct thread_state *state)
{
	struct task_struct *task = (void *)bpf_get_current_task();

	if (bpf_core_field_exists(task->sched_info.run_delay)) {
		state->delay_ns = BPF_CORE_READ(task, sched_info.run_delay);
		state->arrivals = BPF_CORE_READ(task, sched_info.pcount);
	}
	state->sleeps = BPF_CORE_READ(task, nvcsw);
	state->faults = BPF_CORE_READ(task, min_flt) + BPF_CORE_READ(task, maj_flt);
}

/* A call that began at a->began_ns returns now: how much of that did it wait for the device? */
static __always_inline void waited(struct awaited *a, const struct thread_state *before, u64 now)
{
	struct thread_state after = {};
	u64 late;

	read_thread_state(&after);
	/* A thread that may have waited for memory, or for a CPU on a kernel that does not tell, proves nothing. */
	if (!after.arrivals || after.faults != before->faults)
		return;
	late = after.delay_ns - before->delay_ns + (after.sleeps == before->sleeps ? RETURN_NS : WAKE_NS);
	if (now - a->began_ns > late)
		seen_busy(a, now - late, 0);
}

#endif
