/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which bytes on their way from one process to another were sent for which request? A stream is one direction of a channel.
 * Its bytes are numbered, where it is known how many are on the way; those that were sent for a request are remembered until
 * they are read. What is not remembered is not known, and nobody's. */
#ifndef OTEL_GPU_INFERENCE_STREAMS_BPF_H
#define OTEL_GPU_INFERENCE_STREAMS_BPF_H

#include "inference/tables.bpf.h"

/* What a stream is told by: for unix sockets the sender's number, for TCP both ends, for pipes their inode. */
struct stream_key {
	u64 from;
	u64 to;
	u64 ends; /* ports, and enum stream_kind */
	u64 net;
};

enum stream_kind {
	STREAM_TCP = 1,
	STREAM_UNIX,
	STREAM_PIPE,
};

/* A pipe, by its inode's number and its address: neither alone is only one's for ever. */
static __always_inline struct stream_key pipe_stream(u64 number, u64 pipe)
{
	return (struct stream_key){ .from = number, .to = pipe, .ends = (u64)STREAM_PIPE << 32 };
}

/* Who reads from it, among connections. No socket_key() is so. */
#define PIPE_KEY (1ULL << 60)
static __always_inline u64 pipe_key(u64 number, u64 pipe)
{
	return ((number << 20 ^ pipe) & (PIPE_KEY - 1)) | PIPE_KEY;
}

#define STREAM_PIECES 32	  /* that are on the way at once; what is beyond is not remembered */
#define STREAM_BEGIN (1ULL << 40) /* where numbers begin: bytes that were there before have lower ones */

struct stream_piece {
	u64 from;
	u64 to;
	u64 request;
};

struct stream {
	u32 tgid; /* of who first sent on it */
	u32 exec_id;
	u64 written; /* numbers of the next byte that is sent, */
	u64 read;    /* and of the next that is read */
	u64 writer;  /* the thread that sent last */
	u64 last_ns;
	struct connection_id reader; /* who has read up to `read` before that was seen being sent */
	u64 reading;		     /* and that thread */
	u64 writing;		     /* of a pipe: the thread that writes now, */
	u64 in_flight;		     /* and so many bytes, which are counted already */
	u32 sequence;		     /* TCP's number of `written` */
	u32 sender;		     /* tgid of who was seen sending last; 0: nobody was */
	u32 locked;
	u32 oldest; /* piece */
	u32 next;
	u8 is_known;  /* the numbers are right */
	u8 is_late;   /* what could not be sent at once is sent by who comes by */
	u8 is_missed; /* something was sent or read that could not be noted */
	u8 pad;
	struct stream_piece pieces[STREAM_PIECES];
};

/* Streams on which something was sent for a request. Entries are 900 bytes. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, struct stream_key);
	__type(value, struct stream);
} streams SEC(".maps");

static const struct stream no_stream = {};

#define LOCK_TRIES 64

/* Who sends and who reads are on two CPUs. Not taken, it is noted: what is in the stream is not known then. */
static __always_inline int lock_stream(struct stream *s)
{
	for (u32 i = 0; i < LOCK_TRIES; i++)
		if (!__sync_val_compare_and_swap(&s->locked, 0, 1))
			return 1;
	s->is_missed = 1;
	return 0;
}

static __always_inline void unlock_stream(struct stream *s)
{
	s->last_ns = bpf_ktime_get_ns();
	__sync_lock_test_and_set(&s->locked, 0);
}

/* Nothing is known of what is on the way. */
static __always_inline void lose_stream(struct stream *s)
{
	s->oldest = s->next;
	s->is_known = 0;
	s->reader.number = 0;
}

static __always_inline void restart_stream(struct stream *s, u64 on_way)
{
	lose_stream(s);
	s->read = STREAM_BEGIN;
	s->written = STREAM_BEGIN + on_way;
	s->is_known = 1;
	s->is_missed = 0;
}

static __always_inline struct stream_piece *piece_at(struct stream *s, u32 number)
{
	u32 at = number & (STREAM_PIECES - 1);

	asm volatile("" : "+r"(at)); /* the verifier must see the mask */
	return &s->pieces[at & (STREAM_PIECES - 1)];
}

static __always_inline void remember_piece(struct stream *s, u64 from, u64 to, u64 request)
{
	struct stream_piece *last = piece_at(s, s->next - 1);

	if (s->next != s->oldest && last->to == from && last->request == request) {
		last->to = to;
		return;
	}
	if (s->next - s->oldest >= STREAM_PIECES)
		return;
	*piece_at(s, s->next) = (struct stream_piece){ from, to, request };
	s->next++;
}

/* What was read, and for whom it was sent. */
struct reading {
	struct stream *stream;
	u64 from;
	u64 to;
	u64 known;   /* bytes of which that is known */
	u64 request; /* one of them */
	u32 others;  /* whether there are others */
	u32 end;     /* the piece behind the last */
};

static long read_piece(u32 i, struct reading *r)
{
	struct stream *s = r->stream;
	struct stream_piece *p;
	u64 from, to;
	u32 at = s->oldest + i;

	if (at == s->next)
		return 1;
	p = piece_at(s, at);
	if (p->from >= r->to)
		return 1;
	from = p->from > r->from ? p->from : r->from;
	to = p->to < r->to ? p->to : r->to;
	if (from < to) {
		r->known += to - from;
		if (r->request && r->request != p->request)
			r->others = 1;
		r->request = p->request;
	}
	if (p->to <= r->to)
		r->end = at + 1;
	return 0;
}

static __always_inline void look_up_pieces(struct reading *r)
{
	r->known = r->request = r->others = 0;
	r->end = r->stream->oldest;
	if (r->stream->oldest != r->stream->next)
		bpf_loop(STREAM_PIECES, read_piece, r, 0);
}

static long drop_stale_stream(struct bpf_map *map, const struct stream_key *key, struct stream *s, u64 *used_before)
{
	struct stream_key copy = *key;
	struct connection *c;
	u64 reader;

	if (s->last_ns >= *used_before)
		return 0;
	if (copy.ends == (u64)STREAM_PIPE << 32) {
		reader = pipe_key(copy.from, copy.to);
		c = bpf_map_lookup_elem(&connections, &reader);
		if (c) {
			leave_stranger(c);
			take_out(&connections, TABLE_CONNECTIONS, c->tgid, c->exec_id, &reader);
		}
	}
	take_out(&streams, TABLE_STREAMS, s->tgid, s->exec_id, &copy);
	return 0;
}

#endif
