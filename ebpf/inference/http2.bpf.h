/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which requests are on a connection of HTTP/2 (RFC 9113)? Each stream that the client opens is one. Frames are followed by
 * their heads; header blocks are told to the agent, in order, and what is in them is known there alone. Who works for which
 * stream is known here only while one is open. */
#ifndef OTEL_GPU_INFERENCE_HTTP2_BPF_H
#define OTEL_GPU_INFERENCE_HTTP2_BPF_H

#include "abi/frames.h"
#include "inference/calls.bpf.h"
#include "inference/serving.bpf.h"

/* Header blocks, see struct frame_piece. Read by the agent. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} frames SEC(".maps");

#define PREFACE WORD('P', 'R', 'I', ' ', '*', ' ', 'H', 'T')
#define PREFACE_BYTES 24
#define FRAME_HEAD 9
#define FRAME_MOST_STEPS 8192 /* of one call: what is longer loses the frames */

enum frame_type {
	FRAME_DATA,
	FRAME_HEADERS,
	FRAME_RST_STREAM = 3,
	FRAME_PUSH_PROMISE = 5,
	FRAME_CONTINUATION = 9,
};
#define FRAME_END_STREAM 1

/* How far the frames of one direction have come. */
struct frames {
	u8 head[16];
	u32 gathered; /* bytes of the head */
	u32 size;
	u32 left; /* of the payload */
	u32 stream;
	u32 number;  /* of the next piece that is told */
	u32 preface; /* bytes that come before the first frame */
	u64 request; /* whose stream the present frame is on */
	u8 type;
	u8 flags;
	u8 pad[6];
};

struct http2_connection {
	u32 tgid;
	u32 exec_id;
	u64 open_sum;  /* of the numbers of the open requests: while one is open, it is that one */
	u64 closed_ns; /* 0: it goes on */
	u32 open;
	u32 last_stream;
	struct frames sides[FRAME_SIDES];
};

/* Connections of HTTP/2 by connection.number, from their preface until the agent has seen that they are closed. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, u64);
	__type(value, struct http2_connection);
} http2_connections SEC(".maps");
u64 http2_closed = 0; /* how many were closed, ever */

struct exchange_key {
	u64 connection;
	u64 stream;
};

struct exchange {
	u32 tgid;
	u32 exec_id;
	u64 request;
};

/* Streams that are open. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 32768);
	__type(key, struct exchange_key);
	__type(value, struct exchange);
} exchanges SEC(".maps");

static const struct http2_connection no_http2 = {};

/* What takes the frames that were given to it. */
struct framing {
	const struct caller *who;
	const struct sock *sk; /* NULL: not known */
	struct connection *connection;
	struct http2_connection *http2;
	struct frames *frames;
	struct given *given;
	struct scan *scratch;
	u32 side;
	u32 is_decrypted;
	u32 is_lost;
	u32 is_of_grpc; /* its core has read it */
};
_Static_assert(sizeof(struct frame_piece) <= sizeof(struct scan), "pieces are put together there");

static __always_inline struct http2_connection *http2_of(const struct connection *c)
{
	u64 number = c->number;

	return bpf_map_lookup_elem(&http2_connections, &number);
}

/* The request that the connection serves, if there is one; whose what is done for several, nobody can tell. */
static __always_inline void settle_open(struct connection *c, const struct http2_connection *h)
{
	c->request = h->open == 1 ? h->open_sum : 0;
	if (h->open > 1)
		c->flags |= CONNECTION_AMBIGUOUS;
	else
		c->flags &= ~CONNECTION_AMBIGUOUS;
}

static __always_inline struct request *request_on(u64 connection, u32 stream)
{
	struct exchange_key key = { connection, stream };
	struct exchange *e = bpf_map_lookup_elem(&exchanges, &key);

	return e ? request_numbered(e->request) : NULL;
}

static __always_inline void end_exchange(struct http2_connection *h, u64 connection, u32 stream, u8 ending)
{
	struct exchange_key key = { connection, stream };
	struct exchange *e = bpf_map_lookup_elem(&exchanges, &key), copy;

	if (!e)
		return;
	copy = *e;
	if (!take_out(&exchanges, TABLE_EXCHANGES, copy.tgid, copy.exec_id, &key))
		return;
	end_request(request_numbered(copy.request), ending);
	if (h) {
		__sync_fetch_and_add(&h->open, -1);
		__sync_fetch_and_add(&h->open_sum, -copy.request);
	}
}

static __always_inline struct request *begin_exchange(struct framing *g, u32 stream)
{
	struct connection *c = g->connection;
	struct exchange_key key = { c->number, stream };
	struct exchange e = { g->who->tgid, g->who->exec_id, 0 };
	struct request *r = begin_request(g->who, c->number);

	if (!r)
		return NULL;
	e.request = r->id;
	if (!PUT_IN(exchanges, TABLE_EXCHANGES, g->who, &key, &e)) {
		lose(LOSS_REQUESTS_FULL);
		drop_request(r);
		return NULL;
	}
	if (g->sk)
		read_ends(r, g->sk);
	r->flags |= REQUEST_HTTP2 | (g->is_decrypted ? REQUEST_ENCRYPTED : 0);
	__sync_fetch_and_add(&g->http2->open, 1);
	__sync_fetch_and_add(&g->http2->open_sum, e.request);
	return r;
}

/* A frame's head is whole. */
static __always_inline void frame_begins(struct framing *g)
{
	struct frames *f = g->frames;
	struct http2_connection *h = g->http2;
	struct request *r;
	u64 now;

	f->size = f->left = (u32)f->head[0] << 16 | (u32)f->head[1] << 8 | f->head[2];
	f->type = f->head[3];
	f->flags = f->head[4];
	f->stream = ((u32)f->head[5] << 24 | (u32)f->head[6] << 16 | (u32)f->head[7] << 8 | f->head[8]) & 0x7fffffff;
	f->gathered = 0;
	f->request = 0;
	if (!f->stream)
		return;
	if (g->side == FRAME_CLIENT && f->type == FRAME_HEADERS && f->stream & 1 && f->stream > h->last_stream) {
		h->last_stream = f->stream;
		r = begin_exchange(g, f->stream);
		if (g->is_of_grpc)
			call_arrives(g->who->tgid, g->who->exec_id, r ? r->id : 0);
	} else {
		r = request_on(g->connection->number, f->stream);
	}
	if (!r)
		return;
	f->request = r->id;
	now = bpf_ktime_get_ns();
	if (g->side == FRAME_SERVER && f->type == FRAME_HEADERS && !r->first_byte_ns)
		r->first_byte_ns = now;
	if (f->type != FRAME_DATA)
		return;
	if (g->side == FRAME_CLIENT) {
		r->request_body += f->size;
	} else if (f->size) {
		if (!r->body_first_ns)
			r->body_first_ns = now;
		r->body_last_ns = now;
		r->response_body += f->size;
		r->pieces++;
	}
}

static __always_inline void frame_ends(struct framing *g)
{
	struct frames *f = g->frames;
	int ends_stream = g->side == FRAME_SERVER && f->type <= FRAME_HEADERS && f->flags & FRAME_END_STREAM;

	if (ends_stream)
		end_exchange(g->http2, g->connection->number, f->stream, ENDING_COMPLETE);
	else if (f->type == FRAME_RST_STREAM)
		end_exchange(g->http2, g->connection->number, f->stream, ENDING_CLOSED);
}

static __always_inline int is_told(const struct frames *f)
{
	return f->type == FRAME_HEADERS || f->type == FRAME_PUSH_PROMISE || f->type == FRAME_CONTINUATION;
}

/* Tells `bytes` of the present frame's payload. */
static __always_inline void tell_piece(struct framing *g, u64 bytes)
{
	struct frame_piece *p = (void *)g->scratch;
	struct frames *f = g->frames;
	struct program *program = program_of(g->who);
	u64 size;

	if (!p || f->size - f->left >= FRAME_TOLD_MOST)
		return;
	p->tgid = g->who->tgid;
	p->exec_id = g->who->exec_id;
	p->connection = g->connection->number;
	p->request = f->request;
	p->time_ns = bpf_ktime_get_ns();
	p->number = f->number++;
	p->stream = f->stream;
	p->size = f->size;
	p->at = f->size - f->left;
	p->bytes = bytes;
	p->side = g->side;
	p->type = f->type;
	p->flags = f->flags;
	p->pad[0] = p->pad[1] = p->pad[2] = 0;
	asm volatile("" : "+r"(bytes)); /* the verifier must see the bound */
	if (bytes > FRAME_PIECE_BYTES)
		bytes = FRAME_PIECE_BYTES;
	if (bytes && bpf_probe_read_user(p->payload, bytes, (void *)g->given->from)) {
		lose(LOSS_REQUESTS_FULL);
		return;
	}
	size = __builtin_offsetof(struct frame_piece, payload) + bytes;
	if (!program || !may_send(&frames, &program->frames, size) || bpf_ringbuf_output(&frames, p, size, 0))
		lose(LOSS_REQUESTS_FULL);
}

static __always_inline void advance(struct given *given, u32 bytes)
{
	given->from += bytes;
	given->left -= bytes;
	given->piece -= bytes;
}

static __always_inline int next_vector(struct given *g)
{
	struct io_vector v;

	if (!g->vectors || bpf_probe_read_user(&v, sizeof(v), (void *)(g->vectors + sizeof(v) * g->vector)))
		return 0;
	g->vector++;
	g->from = v.base;
	g->piece = v.bytes < g->left ? v.bytes : g->left;
	return 1;
}

static long frame_step(u32 step, struct framing *g)
{
	struct given *given = g->given;
	struct frames *f = g->frames;
	u8 piece[16] = {};
	u32 bytes;

	if (!given->left)
		return 1;
	if (!given->piece) {
		g->is_lost = !next_vector(given);
		return g->is_lost;
	}
	bytes = given->piece;
	if (f->preface) {
		if (bytes > f->preface)
			bytes = f->preface;
		f->preface -= bytes;
		advance(given, bytes);
		return 0;
	}
	if (!f->left) {
		u32 gathered = f->gathered;
		if (gathered >= FRAME_HEAD) {
			g->is_lost = 1;
			return 1;
		}
		if (bytes > FRAME_HEAD - gathered)
			bytes = FRAME_HEAD - gathered;
		asm volatile("" : "+r"(bytes)); /* the verifier must see the bound */
		if (bytes > FRAME_HEAD || !given->from || bpf_probe_read_user(piece, bytes, (void *)given->from)) {
			g->is_lost = 1;
			return 1;
		}
		for (u32 i = 0; i < FRAME_HEAD && i < bytes; i++) {
			u32 at = gathered + i;
			asm volatile("" : "+r"(at)); /* the verifier must see the mask */
			f->head[at & 15] = piece[i];
		}
		f->gathered += bytes;
		advance(given, bytes);
		if (f->gathered < FRAME_HEAD)
			return 0;
		frame_begins(g);
		if (f->left)
			return 0;
		if (is_told(f))
			tell_piece(g, 0);
		frame_ends(g);
		return 0;
	}
	if (bytes > f->left)
		bytes = f->left;
	if (is_told(f)) {
		if (bytes > FRAME_PIECE_BYTES)
			bytes = FRAME_PIECE_BYTES;
		tell_piece(g, bytes);
	}
	f->left -= bytes;
	advance(given, bytes);
	if (!f->left)
		frame_ends(g);
	return 0;
}

/* Nobody can tell any more where frames begin. */
static __always_inline void lose_frames(struct connection *c, struct http2_connection *h)
{
	c->flags |= CONNECTION_AMBIGUOUS | CONNECTION_LOST;
	c->request = 0;
	if (!h->closed_ns) {
		h->closed_ns = bpf_ktime_get_ns();
		__sync_fetch_and_add(&http2_closed, 1);
	}
}

/* Takes what one side has sent. */
static __always_inline void take_frames(struct framing *g)
{
	bpf_loop(FRAME_MOST_STEPS, frame_step, g, 0);
	if (g->is_lost || g->given->left)
		lose_frames(g->connection, g->http2);
	else
		settle_open(g->connection, g->http2);
}

/* A connection begins with HTTP/2's preface. */
static __always_inline int begin_http2(const struct caller *who, struct connection *c)
{
	struct http2_connection *h;
	u64 number = c->number;

	if (!PUT_IN(http2_connections, TABLE_HTTP2_CONNECTIONS, who, &number, &no_http2)) {
		lose(LOSS_REQUESTS_FULL);
		return 0;
	}
	h = bpf_map_lookup_elem(&http2_connections, &number);
	if (!h)
		return 0;
	h->tgid = who->tgid;
	h->exec_id = who->exec_id;
	h->sides[FRAME_CLIENT].preface = PREFACE_BYTES;
	c->flags = (c->flags & CONNECTION_ENCRYPTED) | CONNECTION_HTTP2;
	c->request = 0;
	return 1;
}

/* What is open ends when the agent looks for it. */
static __always_inline void close_http2(const struct connection *c)
{
	struct http2_connection *h = http2_of(c);

	if (!h || h->closed_ns)
		return;
	h->closed_ns = bpf_ktime_get_ns();
	__sync_fetch_and_add(&http2_closed, 1);
}

#endif
