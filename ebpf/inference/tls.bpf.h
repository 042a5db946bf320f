/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which connection does an OpenSSL session (an SSL *) read and write in clear? Where the library itself asks the socket,
 * the one that the thread uses meanwhile. Where the program hands it what it has read, as asyncio and uvloop do, the one
 * that the thread has just read a record of TLS from and that no other session has; else the session is a connection of its
 * own. */
#ifndef OTEL_GPU_INFERENCE_TLS_BPF_H
#define OTEL_GPU_INFERENCE_TLS_BPF_H

#include "inference/conversations.bpf.h"

struct tls_session {
	struct connection_id connection;
	u64 socket; /* struct sock *; 0: the connection is the session's own */
};

/* Sessions by address, from their first bytes to SSL_free(). */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct live_key);
	__type(value, struct tls_session);
} tls_sessions SEC(".maps");

/* A thread that calls OpenSSL. */
struct tls_thread {
	u64 session; /* that it is in a call of; 0: of none */
	u64 buffer;
	u64 count_at; /* where the call says how many bytes there were; 0: it returns that */
	u64 stack;    /* the stack pointer at its entry */
	u64 read_socket; /* struct sock * that it has read a record from outside of calls; 0: of which a session is known */
	u64 read_key;	  /* and its socket_key() */
	struct scan scan; /* the thread may be preempted while it looks at a head */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct tls_thread);
} tls_threads SEC(".maps");

/* Connections of sessions whose socket is not known: no socket_key() is so. */
#define OWN_KEY (1ULL << 61)
_Static_assert(OWN_KEY != NUMBERED_SOCKET, "sessions and unix sockets are counted from small numbers, both");
u64 own_key_count = 0;

static const struct tls_session no_session = {};

static __always_inline struct tls_thread *tls_thread_now(void)
{
	return bpf_task_storage_get(&tls_threads, bpf_get_current_task_btf(), NULL, 0);
}

/* The thread may have left a call by longjmp(), without its return. */
static __always_inline int is_in_call(const struct tls_thread *t)
{
	struct pt_regs *regs = (void *)bpf_task_pt_regs(bpf_get_current_task_btf());

	return t->session && regs->sp <= t->stack;
}

static __always_inline struct tls_session *session_at(const struct caller *who, u64 address)
{
	struct live_key key = { who->tgid, who->exec_id, address };

	return bpf_map_lookup_elem(&tls_sessions, &key);
}

static __always_inline struct tls_session *meet_session(const struct caller *who, u64 address)
{
	struct live_key key = { who->tgid, who->exec_id, address };
	struct tls_session *s = bpf_map_lookup_elem(&tls_sessions, &key);

	if (s)
		return s;
	if (!PUT_IN(tls_sessions, TABLE_TLS_SESSIONS, who, &key, &no_session)) {
		lose(LOSS_REQUESTS_FULL);
		return NULL;
	}
	return bpf_map_lookup_elem(&tls_sessions, &key);
}

/* Takes a socket for the session's; without `is_certain`, unless another session has it. */
static __always_inline void bind(const struct caller *who, u64 address, u64 socket, u64 key, int is_certain)
{
	struct tls_session *s = meet_session(who, address), *other;
	struct connection *c;

	if (!s)
		return;
	c = bpf_map_lookup_elem(&connections, &key);
	if (c && c->number == s->connection.number && c->session == address)
		return;
	if (!c)
		c = meet_connection(who, key);
	if (!c)
		return;
	if (!is_certain && c->session && c->session != address) {
		other = session_at(who, c->session);
		if (other && other->connection.number == c->number)
			return;
	}
	if (!(c->flags & CONNECTION_ENCRYPTED) || c->session != address) {
		/* What it said so far was no HTTP, or another session's. */
		lose_track(c);
		c->request = 0;
		c->flags = CONNECTION_ENCRYPTED;
		begin_message(&c->in, 0);
		begin_message(&c->out, MESSAGE_IS_RESPONSE);
	}
	c->session = address;
	s->connection.key = key;
	s->connection.number = c->number;
	s->socket = socket;
}

/* A thread has read from a socket or written to it. True where that was TLS. */
static __always_inline int hides(const struct caller *who, const struct followed *f, const struct sock *sk, u64 key,
				 u32 bytes, int is_read)
{
	struct tls_thread *tls = tls_thread_now();
	struct connection *c = bpf_map_lookup_elem(&connections, &key);
	int is_known = c && c->flags & CONNECTION_ENCRYPTED;
	struct request_thread *t;
	struct given given;
	u32 known = 0;
	u64 word;

	if (tls && is_in_call(tls)) {
		bind(who, tls->session, (u64)sk, key, 1);
		if (is_read)
			turn_to_another(who);
		return 1;
	}
	if (!is_read)
		return is_known;
	if (!is_known) {
		if (c) {
			if (c->in.state != MESSAGE_START && c->in.state != MESSAGE_END)
				return 0;
		} else if (!tls) {
			return 0;
		}
		if (!bytes || !find_bytes(&given, bytes))
			return 0;
		word = first_word(&given, &known);
		if (known < RECORD_START || !is_record(word))
			return 0;
		if (c)
			c->flags |= CONNECTION_ENCRYPTED;
	}
	turn_to_another(who);
	if (tls) {
		tls->read_socket = (u64)sk;
		tls->read_key = key;
	}
	t = meet_request_thread(who);
	if (t && t->is_loop && f->context_offset) {
		t->context = context_now(f);
		t->awaits_enter = !is_entered(t->context);
	}
	return 1;
}

/* The connection that a session's bytes in clear belong to; makes one of its own where its socket is not known. What is written
 * by a session of which nothing was read answers what was asked before the agent came: NULL. */
static __always_inline struct tls_session *session_of_call(const struct caller *who, struct tls_thread *tls,
							   int is_read)
{
	struct tls_session *s = session_at(who, tls->session);
	struct connection *c;
	u64 key;

	if (!s && !is_read)
		return NULL;
	if (tls->read_socket && (!s || !connection_of(&s->connection)))
		bind(who, tls->session, tls->read_socket, tls->read_key, 0);
	s = meet_session(who, tls->session);
	if (s && connection_of(&s->connection)) {
		if (s->connection.key == tls->read_key)
			tls->read_socket = 0;
		return s;
	}
	if (!s)
		return NULL;
	key = OWN_KEY | (__sync_fetch_and_add(&own_key_count, 1) & (OWN_KEY - 1));
	c = meet_connection(who, key);
	if (!c)
		return NULL;
	c->flags = CONNECTION_ENCRYPTED;
	c->session = tls->session;
	s->connection.key = key;
	s->connection.number = c->number;
	s->socket = 0;
	return s;
}

#endif
