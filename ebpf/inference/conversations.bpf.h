/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What goes through a connection, in clear: which requests come in, and when are they answered? */
#ifndef OTEL_GPU_INFERENCE_CONVERSATIONS_BPF_H
#define OTEL_GPU_INFERENCE_CONVERSATIONS_BPF_H

#include "inference/channels.bpf.h"
#include "inference/http2.bpf.h"

/* Bytes that a thread has read or written in clear: by a system call, or out of TLS. */
struct carried {
	u64 key;	   /* of the connection */
	struct sock *sk;   /* NULL: not known */
	struct scan *scan; /* where nobody else looks at heads meanwhile; NULL: none */
	u64 from;	   /* where they lie; 0: the system call says it */
	u32 bytes;
	u32 is_decrypted;
};

/* Where the bytes of the system call lie that the thread is in; false for calls that are not understood. */
static __always_inline int find_bytes(struct given *given, u32 bytes)
{
	struct message_header header;
	struct system_call call;

	read_system_call(&call);
	*given = (struct given){ .left = bytes };
	switch (call.number) {
	case CALL_READ:
	case CALL_WRITE:
	case CALL_RECVFROM:
	case CALL_SENDTO:
		given->from = call.arguments[1];
		given->piece = bytes;
		return 1;
	case CALL_READV:
	case CALL_WRITEV:
		given->vectors = call.arguments[1];
		return 1;
	case CALL_RECVMSG:
	case CALL_SENDMSG:
		if (bpf_probe_read_user(&header, sizeof(header), (void *)call.arguments[1]))
			return 0;
		given->vectors = header.vectors;
		return 1;
	}
	given->piece = bytes;
	return 0;
}

static __always_inline int find_carried(struct given *given, const struct carried *carried)
{
	if (!carried->from)
		return find_bytes(given, carried->bytes);
	*given = (struct given){ .from = carried->from, .left = carried->bytes, .piece = carried->bytes };
	return 1;
}

static __always_inline u64 first_word(const struct given *g, u32 *bytes)
{
	u64 word = 0, from = g->from;
	struct io_vector v;
	u64 size = g->left;

	if (g->vectors) {
		if (bpf_probe_read_user(&v, sizeof(v), (void *)g->vectors))
			return 0;
		from = v.base;
		if (size > v.bytes)
			size = v.bytes;
	}
	asm volatile("" : "+r"(size)); /* the verifier must see the bound */
	if (size > sizeof(word))
		size = sizeof(word);
	*bytes = size;
	if (!size || !from || bpf_probe_read_user(&word, size, (void *)from))
		*bytes = 0;
	return word;
}

/* The other connection on which the calling thread, as it reads a request or accepts a connection (c is NULL), has one
 * that it read before and that is not answered: it works for several. Threads of a pool have answered; the connection
 * may be another thread's by now. */
static __always_inline struct connection *reads_several(const struct caller *who, const struct request_thread *t,
							const struct connection *c)
{
	struct connection *before = t->why == CLAIM_READ ? connection_of(&t->connection) : NULL;
	struct request *r;

	if (!before || (c && before->number == c->number) || before->flags & CONNECTION_CHANNEL)
		return NULL;
	if (before->flags & CONNECTION_AMBIGUOUS)
		return before->stranger_of == who->task && before->stranger_of_born_ns == who->born_ns ? before : NULL;
	r = request_numbered(before->request);
	return r && !r->ended_ns && r->tid == (u32)who->pid_tgid ? before : NULL;
}

/* A thread that was there before the agent may be an event loop, which is not known until it waits as one. */
static __always_inline int may_be_loop(const struct caller *who, const struct followed *f,
				       const struct request_thread *t)
{
	return t->is_loop || (who->born_ns < f->since_boot_ns && bpf_ktime_get_ns() < f->trusted_ns);
}

/* A thread that works for several requests does so in steps, which are told. Not so event loops, and where threads of
 * those take work from each other. */
static __always_inline void note_several(const struct caller *who, const struct followed *f, struct request_thread *t,
					 const struct connection *c)
{
	struct program_key me = { who->tgid, who->exec_id };
	struct connection *before;

	if (t->is_batch || (f->has_loops && !f->context_offset) || may_be_loop(who, f, t))
		return;
	before = reads_several(who, t, c);
	if (!before)
		return;
	t->is_batch = 1;
	if (!(before->flags & CONNECTION_AMBIGUOUS) && meet_engine(who))
		tell_engine(ENGINE_DELIVERED, who, before->request, &me);
}

/* A thread has read bytes of a request. */
static __always_inline void claim(const struct caller *who, const struct followed *f, struct connection *c,
				  const struct carried *carried, int is_new)
{
	struct request_thread *t = meet_request_thread(who);
	struct python_context *context;
	int is_inside;

	if (!t)
		return;
	note_several(who, f, t, c);
	t->context = context_now(f);
	t->request = c->flags & CONNECTION_AMBIGUOUS ? 0 : c->request;
	if (!t->is_loop && may_be_loop(who, f, t))
		t->request = 0;
	t->why = CLAIM_READ;
	t->connection.key = carried->key;
	t->connection.number = c->number;
	t->holder.number = 0;
	/* It joins those that the thread works for. */
	if (is_new && t->is_batch && t->request)
		tell_engine(ENGINE_DELIVERED, who, t->request, &(struct program_key){ who->tgid, who->exec_id });
	else if (c->flags & CONNECTION_AMBIGUOUS && !t->is_loop)
		owe_stranger(who, c);
	if (!f->context_offset)
		return;
	is_inside = is_entered(t->context);
	if (carried->is_decrypted && t->is_loop) {
		/* uvloop has entered its context between what was read and its decryption. */
		context = python_context_at(who->tgid, who->exec_id, t->context);
		if (context && context->kind == CONTEXT_SERVER) {
			t->context = context_before(t->context);
			return;
		}
	}
	t->awaits_enter = t->is_loop && !is_inside;
	if (t->is_loop && is_inside && is_new)
		follow_connection(who, t->context, &t->connection);
}

/* Whatever an event loop reads, it does for somebody else from here on. */
static __always_inline void turn_to_another(const struct caller *who)
{
	struct request_thread *t = known_thread(who);

	if (!t || !t->is_loop)
		return;
	t->awaits_enter = 0;
	if (t->why == CLAIM_READ)
		t->request = 0;
}

/* Whether gRPC's core reads: in threads of its own, which have no Python, or in the one that waits in it. */
static __always_inline int is_grpc(const struct caller *who, const struct followed *f)
{
	struct request_thread *t;

	if (!f->grpc)
		return 0;
	if (!thread_state_now(f))
		return 1;
	t = known_thread(who);
	return t && t->waits_in_grpc;
}

/* Takes frames of HTTP/2. */
static __always_inline void take_http2(const struct caller *who, struct connection *c, const struct carried *carried,
				       u32 side, u32 is_of_grpc)
{
	struct http2_connection *h = http2_of(c);
	struct message *m = side == FRAME_CLIENT ? &c->in : &c->out;
	struct framing g = {
		.who = who,
		.sk = carried->sk,
		.connection = c,
		.http2 = h,
		.given = &m->given,
		.scratch = carried->scan,
		.side = side,
		.is_decrypted = carried->is_decrypted,
		.is_of_grpc = is_of_grpc,
	};

	if (!h || !carried->bytes)
		return;
	if (c->flags & CONNECTION_LOST) {
		if (is_of_grpc)
			call_arrives(who->tgid, who->exec_id, 0);
		return;
	}
	g.frames = side == FRAME_CLIENT ? &h->sides[FRAME_CLIENT] : &h->sides[FRAME_SERVER];
	if (!find_carried(g.given, carried)) {
		lose_frames(c, h);
		return;
	}
	take_frames(&g);
}

/* Whether a connection begins with HTTP/2's preface: nothing was asked on it before. */
static __always_inline struct connection *meet_http2(const struct caller *who, struct connection *c,
						     const struct carried *carried)
{
	struct given given;
	u32 known = 0;

	if (c && (c->request || c->flags & (CONNECTION_HTTP2 | CONNECTION_CHANNEL)))
		return NULL;
	if (carried->bytes < sizeof(u64) || !find_carried(&given, carried))
		return NULL;
	if (first_word(&given, &known) != PREFACE || known != sizeof(u64))
		return NULL;
	if (!c)
		c = meet_connection(who, carried->key);
	return c && begin_http2(who, c) ? c : NULL;
}

/* Nothing was asked on the connection since it is known. */
static __always_inline int is_unheard(const struct connection *c)
{
	return !c->request && c->in.state == MESSAGE_START;
}

static __always_inline void received(const struct caller *who, const struct followed *f, const struct carried *carried)
{
	struct given given;
	u64 key = carried->key, word;
	struct connection *c = bpf_map_lookup_elem(&connections, &key), *begun;
	struct request *r = NULL, *old;
	struct request_thread *t;
	u32 known, is_new = 0;
	u8 method = 0;

	turn_to_another(who);
	if (!carried->bytes)
		return;
	if (!c || !(c->flags & CONNECTION_HTTP2)) {
		begun = meet_http2(who, c, carried);
		if (begun)
			c = begun;
	}
	if (c && c->flags & CONNECTION_HTTP2) {
		take_http2(who, c, carried, FRAME_CLIENT, is_grpc(who, f));
		claim(who, f, c, carried, 1);
		return;
	}
	if (is_grpc(who, f))
		call_arrives(who->tgid, who->exec_id, 0);
	if (c && c->flags & CONNECTION_AMBIGUOUS) {
		t = known_thread(who);
		if (!t || !t->is_loop)
			claim(who, f, c, carried, 0);
		return;
	}
	if (!find_carried(&given, carried)) {
		if (c && !(c->flags & CONNECTION_CHANNEL))
			lose_track(c);
		return;
	}
	if (!c || c->in.state == MESSAGE_START || c->in.state == MESSAGE_END) {
		word = first_word(&given, &known);
		is_new = known && is_method(word, known, &method);
		/* It was taken for another protocol in the middle of a body. */
		if (is_new && c && c->flags & CONNECTION_CHANNEL && !c->request && !(c->flags & CONNECTION_BATCH))
			c->flags = 0;
		/* What begins no request may be for a request of another program: channel_received() looks at it. */
		if (c && (c->flags & CONNECTION_CHANNEL ||
			  (!is_new && !c->request && !carried->is_decrypted && !is_other_protocol(word))))
			return;
		if (!c) {
			c = is_new ? meet_connection(who, key) : NULL;
			if (!c)
				return;
		}
		/* A session's rest of what was asked before the agent came. In clear such a connection is not known yet. */
		if (!is_new && is_unheard(c))
			return;
		if (c->in.state == MESSAGE_END)
			begin_message(&c->in, 0);
	}
	if (is_new) {
		old = request_numbered(c->request);
		if (old && !old->ended_ns) {
			lose_track(c);
		} else {
			r = begin_request(who, c->number);
			c->request = r ? r->id : 0;
			c->method = method;
			begin_message(&c->out, MESSAGE_IS_RESPONSE);
			if (r) {
				if (carried->sk)
					read_ends(r, carried->sk);
				if (carried->is_decrypted)
					r->flags |= REQUEST_ENCRYPTED;
			} else {
				c->flags |= CONNECTION_AMBIGUOUS;
			}
		}
	} else {
		r = request_numbered(c->request);
	}
	if (!(c->flags & CONNECTION_AMBIGUOUS)) {
		c->in.given = given;
		feed(&c->in, r, carried->scan);
		if (r)
			r->request_body += c->in.given.body;
		if (c->in.state == MESSAGE_OTHER) {
			if (r)
				drop_request(r);
			drop_connection(c, key);
			return;
		}
		/* What is left is the next request's, before this one is answered. */
		if (c->in.state == MESSAGE_DOUBTFUL || c->in.given.left || (!r && c->in.state != MESSAGE_START))
			lose_track(c);
	}
	claim(who, f, c, carried, is_new);
}

/* The agent came in the middle, or what is sent answers nothing. */
static __always_inline int is_unasked(const struct request *r)
{
	return !r || r->ended_ns;
}

static __always_inline void sent(const struct caller *who, const struct followed *f, const struct carried *carried)
{
	u64 key = carried->key, now;
	struct connection *c = bpf_map_lookup_elem(&connections, &key);
	struct request_thread *t;
	struct connection_id id;
	struct given given;
	struct request *r;

	if (!c || c->flags & CONNECTION_CHANNEL) {
		if (carried->sk && !carried->is_decrypted)
			sent_on_channel(who, f, carried->sk, carried->bytes);
		if (c)
			answered_on_channel(c);
		return;
	}
	id = (struct connection_id){ key, c->number };
	if (f->context_offset)
		answer_from(who, context_now(f), &id);
	if (c->flags & CONNECTION_HTTP2) {
		take_http2(who, c, carried, FRAME_SERVER, 0);
		return;
	}
	if (!carried->bytes)
		return;
	if (c->flags & CONNECTION_AMBIGUOUS) {
		/* An engine may answer one of several that were asked at once. */
		t = known_thread(who);
		if (!t || !t->is_batch)
			leave_stranger(c);
		return;
	}
	if (is_unheard(c))
		return;
	r = request_numbered(c->request);
	if (is_unasked(r)) {
		lose_track(c);
		return;
	}
	find_carried(&given, carried);
	c->out.given = given;
	c->out.given.method = c->method;
	feed(&c->out, r, carried->scan);
	now = bpf_ktime_get_ns();
	if (!r->first_byte_ns && c->out.state != MESSAGE_START)
		r->first_byte_ns = now;
	r->status = c->out.status;
	if (c->out.given.body) {
		if (!r->body_first_ns)
			r->body_first_ns = now;
		r->body_last_ns = now;
		r->response_body += c->out.given.body;
		r->pieces++;
	}
	if (c->out.state == MESSAGE_DOUBTFUL) {
		lose_track(c);
	} else if (c->out.state == MESSAGE_OTHER) {
		end_request(r, c->out.status ? ENDING_COMPLETE : ENDING_LOST);
		r->flags |= REQUEST_GONE;
		drop_connection(c, key);
	} else if (c->out.state == MESSAGE_END) {
		end_request(r, ENDING_COMPLETE);
		if (c->out.given.left)
			lose_track(c);
	}
}

/* The program's side of a connection is closed, or both are. */
static __always_inline void close_connection(u64 key)
{
	struct connection *c = bpf_map_lookup_elem(&connections, &key);
	struct request *r;

	if (!c)
		return;
	if (c->flags & CONNECTION_HTTP2)
		close_http2(c);
	r = c->flags & (CONNECTION_HTTP2 | CONNECTION_CHANNEL) ? NULL : request_numbered(c->request);
	if (r) {
		r->flags |= REQUEST_GONE;
		end_request(r, c->out.state == MESSAGE_UNTIL_CLOSE ? ENDING_COMPLETE : ENDING_CLOSED);
	}
	drop_connection(c, key);
}

#endif
