// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Programs on what goes through sockets: which requests come in, and when are they answered? The kernel tells of every
 * message that a thread has received or sent (6.3), with preemption off, so that none is missed; where it lies in the
 * program's memory stands in the arguments of the system call. */
#include "inference/channels.bpf.h"
#include "inference/contexts.bpf.h"

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

static __always_inline u64 first_word(const struct given *g, u32 *bytes)
{
	u64 word = 0, from = g->from;
	struct io_vector v;
	u32 size = g->left;

	if (g->vectors) {
		if (bpf_probe_read_user(&v, sizeof(v), (void *)g->vectors))
			return 0;
		from = v.base;
		if (size > v.bytes)
			size = v.bytes;
	}
	if (size > sizeof(word))
		size = sizeof(word);
	*bytes = size;
	if (!size || !from || bpf_probe_read_user(&word, size, (void *)from))
		*bytes = 0;
	return word;
}

/* A thread has read bytes of a request. */
static __always_inline void claim(const struct caller *who, const struct followed *f, const struct connection *c,
				  u64 key, int is_new)
{
	struct request_thread *t = meet_request_thread(who);
	int is_inside;

	if (!t)
		return;
	t->context = context_now(f);
	t->request = c->flags & CONNECTION_AMBIGUOUS ? 0 : c->request;
	if (who->born_ns < f->since_boot_ns && bpf_ktime_get_ns() < f->trusted_ns)
		t->request = 0;
	t->why = CLAIM_READ;
	t->connection.key = key;
	t->connection.number = c->number;
	t->holder.number = 0;
	if (!f->context_offset)
		return;
	is_inside = is_entered(t->context);
	t->awaits_enter = t->is_loop && !is_inside;
	if (t->is_loop && is_inside && is_new)
		follow_connection(who, t->context, &t->connection);
}

static __always_inline void received(const struct caller *who, const struct followed *f, struct sock *sk, u32 bytes)
{
	struct request_thread *t = known_thread(who);
	struct given given;
	u64 key = socket_key(sk), word;
	struct connection *c = bpf_map_lookup_elem(&connections, &key);
	struct request *r = NULL, *old;
	u32 known, is_new = 0;
	u8 method = 0;

	if (t && t->is_loop) {
		/* Whatever an event loop reads, it does for somebody else from here on. */
		t->awaits_enter = 0;
		if (t->why == CLAIM_READ)
			t->request = 0;
	}
	if (!bytes || (c && c->flags & CONNECTION_AMBIGUOUS))
		return;
	if (!find_bytes(&given, bytes) && c && !(c->flags & CONNECTION_CHANNEL)) {
		lose_track(c);
		return;
	}
	if (!c || c->in.state == MESSAGE_START || c->in.state == MESSAGE_END) {
		word = first_word(&given, &known);
		is_new = known && is_method(word, known, &method);
		/* It was taken for another protocol in the middle of a body. */
		if (is_new && c && c->flags & CONNECTION_CHANNEL && !c->request && !(c->flags & CONNECTION_BATCH))
			c->flags = 0;
		if ((!is_new || (c && c->flags & CONNECTION_CHANNEL)) &&
		    received_on_channel(who, f, t, sk, key, c, bytes, word))
			return;
		if (!c) {
			c = is_new ? meet_connection(who, key) : NULL;
			if (!c)
				return;
		}
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
			if (r)
				read_ends(r, sk);
			else
				c->flags |= CONNECTION_AMBIGUOUS;
		}
	} else {
		r = request_numbered(c->request);
	}
	if (!(c->flags & CONNECTION_AMBIGUOUS)) {
		c->in.given = given;
		feed(&c->in, r);
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
	claim(who, f, c, key, is_new);
}

/* The agent came in the middle, or what is sent answers nothing. */
static __always_inline int is_unasked(const struct request *r)
{
	return !r || r->ended_ns;
}

static __always_inline void sent(const struct caller *who, const struct followed *f, struct sock *sk, u32 bytes)
{
	u64 key = socket_key(sk), now;
	struct connection *c = bpf_map_lookup_elem(&connections, &key);
	struct connection_id id;
	struct given given;
	struct request *r;

	if (!c || c->flags & CONNECTION_CHANNEL) {
		sent_on_channel(who, f, sk, bytes);
		if (c)
			answered_on_channel(c);
		return;
	}
	id = (struct connection_id){ key, c->number };
	if (f->context_offset)
		answer_from(who, context_now(f), &id);
	if (!bytes || c->flags & CONNECTION_AMBIGUOUS)
		return;
	r = request_numbered(c->request);
	if (is_unasked(r)) {
		lose_track(c);
		return;
	}
	find_bytes(&given, bytes);
	c->out.given = given;
	c->out.given.method = c->method;
	feed(&c->out, r);
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

/* (sock, bytes or error, flags) */
SEC("tp_btf/sock_recv_length")
int socket_received(u64 *ctx)
{
	struct sock *sk = (void *)ctx[0];
	s32 bytes = ctx[1], flags = ctx[2];
	struct caller who;
	struct followed *f = follow(&who);

	if (!f || flags & PEEK)
		return 0;
	received(&who, f, sk, bytes > 0 ? bytes : 0);
	return 0;
}

SEC("tp_btf/sock_send_length")
int socket_sent(u64 *ctx)
{
	struct sock *sk = (void *)ctx[0];
	s32 bytes = ctx[1];
	struct caller who;
	struct followed *f = follow(&who);

	if (!f) {
		if (sk->__sk_common.skc_family == FAMILY_UNIX && sk->__sk_common.skc_cookie.counter)
			sent_on_channel(&who, NULL, sk, bytes > 0 ? bytes : 0);
		return 0;
	}
	sent(&who, f, sk, bytes > 0 ? bytes : 0);
	return 0;
}

/* The program's side of a connection is closed, or both are. */
static __always_inline void close_connection(u64 key)
{
	struct connection *c = bpf_map_lookup_elem(&connections, &key);
	struct request *r;

	if (!c)
		return;
	r = c->flags & CONNECTION_CHANNEL ? NULL : request_numbered(c->request);
	if (r) {
		r->flags |= REQUEST_GONE;
		end_request(r, c->out.state == MESSAGE_UNTIL_CLOSE ? ENDING_COMPLETE : ENDING_CLOSED);
	}
	drop_connection(c, key);
}

/* (sock, old state, new state): wherever it happens, and not always in the program. */
SEC("tp_btf/inet_sock_set_state")
int socket_changed(u64 *ctx)
{
	struct sock *sk = (void *)ctx[0];
	s32 state = ctx[2];

	if (state == TCP_ESTABLISHED)
		forget_streams(sk, 0);
	else if (state == TCP_CLOSE)
		forget_streams(sk, 1);
	if (state == TCP_FIN_WAIT1 || state == TCP_LAST_ACK || state == TCP_CLOSE)
		close_connection((u64)sk);
	return 0;
}

/* (a time): forgets streams that nobody has used since. Run by the agent. */
SEC("raw_tp")
int drop_streams(u64 *ctx)
{
	u64 used_before = ctx[0];

	bpf_for_each_map_elem(&streams, drop_stale_stream, &used_before, 0);
	return 0;
}
