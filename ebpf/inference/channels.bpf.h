/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which request was handed on to this program over a socket? What a program sends while it works for a request to another one
 * on this host is that request's, and so is what the other one does who reads it: until it answers, reads what is for
 * another request, or the request ends. Only what the kernel has seen being sent counts. Where one who reads has more than
 * one request that it did not answer, it works for several at once: its steps are told, as a batched engine's. */
#ifndef OTEL_GPU_INFERENCE_CHANNELS_BPF_H
#define OTEL_GPU_INFERENCE_CHANNELS_BPF_H

#include "inference/contexts.bpf.h"
#include "inference/deliveries.bpf.h"
#include "inference/streams.bpf.h"

#define MOST_QUEUED 8 /* buffers on the way that are counted */
#define MANY (~0ULL)
#define MOST_VECTORS 8
#define RECORD_START 3 /* bytes by which a record of TLS is recognised */

/* ---- which stream ---- */

/* A socket as a number, which a function takes that is verified by itself. */
static __always_inline u64 address_of(struct sock *sk)
{
	u64 address = 0;

	bpf_probe_read_kernel(&address, sizeof(address), &sk);
	return address;
}

/* An address; of IPv6 a sum, as nobody chooses the addresses that a host has for itself. */
static __always_inline u64 folded(const struct in6_addr *a)
{
	const u64 *halves = (const u64 *)a->bytes;

	if (!halves[0] && (u32)halves[1] == 0xffff0000)
		return halves[1] >> 32; /* IPv4 in IPv6 */
	return (halves[0] ^ (halves[1] >> 7)) * 0x9e3779b97f4a7c15ULL ^ halves[1] ^ 1ULL << 63;
}

RARE int tcp_stream(u64 socket, u32 is_received, struct stream_key *key)
{
	struct sock *sk = (void *)socket;
	u16 family = BPF_CORE_READ(sk, __sk_common.skc_family), type = BPF_CORE_READ(sk, sk_type);
	struct in6_addr address;
	u64 here, there, port_here, port_there;

	if (!key || type != TYPE_STREAM)
		return 0;
	if (family == FAMILY_INET) {
		here = BPF_CORE_READ(sk, __sk_common.skc_rcv_saddr);
		there = BPF_CORE_READ(sk, __sk_common.skc_daddr);
	} else {
		BPF_CORE_READ_INTO(&address, sk, __sk_common.skc_v6_rcv_saddr);
		here = folded(&address);
		BPF_CORE_READ_INTO(&address, sk, __sk_common.skc_v6_daddr);
		there = folded(&address);
	}
	/* To the host itself: 127.0.0.0/8, or its own address. */
	if (here != there && (here > 0xffffffff || (u8)here != 127 || (u8)there != 127))
		return 0;
	port_here = BPF_CORE_READ(sk, __sk_common.skc_num);
	port_there = __builtin_bswap16(BPF_CORE_READ(sk, __sk_common.skc_dport));
	key->from = is_received ? there : here;
	key->to = is_received ? here : there;
	key->ends = (is_received ? port_there | port_here << 16 : port_here | port_there << 16) | (u64)STREAM_TCP << 32;
	key->net = (u64)BPF_CORE_READ(sk, __sk_common.skc_net.net);
	return 1;
}

static __always_inline struct sock *unix_peer(struct sock *sk)
{
	return BPF_CORE_READ((struct unix_sock *)sk, peer);
}

/* By the sender's number: who receives has none before accept(). */
static __always_inline int unix_stream(struct sock *sender, struct stream_key *key)
{
	u64 number = socket_number(sender);

	*key = (struct stream_key){ .from = number, .ends = (u64)STREAM_UNIX << 32 };
	return number != 0;
}

/* The stream that bytes come by to a socket. */
static __always_inline int stream_into(struct sock *sk, u16 family, struct stream_key *key)
{
	if (family == FAMILY_UNIX)
		return unix_stream(unix_peer(sk), key);
	if (family == FAMILY_INET || family == FAMILY_INET6)
		return tcp_stream(address_of(sk), 1, key);
	return 0;
}

/* Whether a socket is one that its program is asked on: it was accepted, or bound. */
RARE int is_asked_on(u64 socket)
{
	struct sock *sk = (void *)socket;
	u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);
	struct inet_bind_bucket *port;

	if (family == FAMILY_UNIX)
		return BPF_CORE_READ((struct unix_sock *)sk, addr) != NULL;
	if ((family != FAMILY_INET && family != FAMILY_INET6) || BPF_CORE_READ(sk, sk_type) != TYPE_STREAM)
		return 0;
	port = BPF_CORE_READ((struct inet_connection_sock *)sk, icsk_bind_hash);
	return port && BPF_CORE_READ(port, fastreuse) >= 0;
}

/* ---- what is on the way ---- */

/* Of a unix socket: bytes that can be read on it, messages where they are kept apart; MANY where that takes too long. */
RARE u64 queued_on(u64 socket, u32 is_of_bytes)
{
	struct sock *sk = (void *)socket;
	u32 count = BPF_CORE_READ(sk, sk_receive_queue.qlen);
	struct sk_buff *buffer;
	u64 bytes = 0;

	if (!is_of_bytes || !count)
		return count;
	if (count > MOST_QUEUED)
		return MANY;
	buffer = BPF_CORE_READ(sk, sk_receive_queue.next);
	for (u32 i = 0; i < MOST_QUEUED; i++) {
		if (i >= count)
			break;
		bytes += BPF_CORE_READ(buffer, len) -
			 BPF_CORE_READ(
				 (struct unix_skb_parms *)((u64)buffer + bpf_core_field_offset(struct sk_buff, cb)),
				 consumed);
		buffer = BPF_CORE_READ(buffer, next);
	}
	return bytes;
}

/* ---- sending ---- */

/* A program in one number, as a function takes it that is verified by itself. */
static __always_inline u64 sender_of(const struct stream *s)
{
	return (u64)s->tgid << 32 | s->exec_id;
}

static __always_inline void tell_delivered_by(const struct caller *who, u64 program, u64 request)
{
	struct program_key sender = { program >> 32, program };

	if (request)
		tell_engine(ENGINE_DELIVERED, who, request, &sender);
}

static __always_inline void tell_delivered(const struct caller *who, const struct stream *s, u64 request)
{
	tell_delivered_by(who, sender_of(s), request);
}

/* How much the system call was to send; MANY where that is not known. */
RARE u64 bytes_asked(void)
{
	struct message_header header = {};
	struct system_call call;
	struct io_vector v;
	u64 vectors, count, bytes = 0;

	read_system_call(&call);
	switch (call.number) {
	case CALL_WRITE:
	case CALL_SENDTO:
		return call.arguments[2];
	case CALL_WRITEV:
		vectors = call.arguments[1];
		count = call.arguments[2];
		break;
	case CALL_SENDMSG:
		if (bpf_probe_read_user(&header, sizeof(header), (void *)call.arguments[1]))
			return MANY;
		vectors = header.vectors;
		count = header.count;
		break;
	default:
		return MANY;
	}
	if (count > MOST_VECTORS)
		return MANY;
	for (u32 i = 0; i < MOST_VECTORS; i++) {
		if (i >= count)
			break;
		if (bpf_probe_read_user(&v, sizeof(v), (void *)(vectors + i * sizeof(v))))
			return MANY;
		bytes += v.bytes;
	}
	return bytes;
}

/* The request that the calling thread works for beyond doubt, as it sends; 0: none. */
static __always_inline u64 request_of_sender(const struct caller *who, const struct followed *f,
					     const struct request_thread *t)
{
	struct owning o = owning_of(who, context_now(f));
	struct request *r;

	own(&o, f);
	r = request_numbered(o.request);
	if (!r || r->ended_ns)
		return 0;
	/* A task may have been begun for one request and work for others; what is run once, in another thread, does not. */
	if (o.holder.number && !is_alone(r, &o) && (o.holder.context != o.context || (t && t->is_loop)))
		return 0;
	return o.request;
}

/* Who has read something before it was seen being sent works for its request. */
static __always_inline void claim_late(struct stream *s, u64 request)
{
	struct connection *c = connection_of(&s->reader);
	struct request_thread *t = bpf_map_lookup_elem(&request_threads, &s->reading);
	struct caller reader = {};

	if (!c || !(c->flags & CONNECTION_AWAITS))
		return;
	c->flags &= ~(CONNECTION_AWAITS | CONNECTION_UNCLEAR);
	c->request = request;
	leave_stranger(c);
	reader.tgid = c->tgid;
	reader.exec_id = c->exec_id;
	if (t && t->is_batch && is_engine(&reader))
		tell_delivered(&reader, s, request);
	if (t && t->why == CLAIM_CHANNEL && !t->request && is_connection(&t->connection, &s->reader))
		t->request = request;
}

/* Attributes what was just sent to a request: who reads it will work for that, or does so already. */
static __always_inline void attribute_sent(struct stream *s, u64 from, u64 request)
{
	if ((s64)(s->read - s->written) < 0)
		remember_piece(s, from, s->written, request);
	else if (s->reader.number && s->read == s->written)
		claim_late(s, request);
	s->reader.number = 0;
}

/* Notes what was sent: so many bytes, or one message, of so many that are on the way now. */
static __always_inline void note_sent(struct stream *s, u64 bytes, u64 on_way, u64 request, u64 task)
{
	u64 from = s->written;
	int is_other = s->writer != task, was_known;

	s->writer = task;
	if (s->is_missed)
		lose_stream(s);
	/* More than is known of: somebody else sends as well, or did before. */
	if (!s->is_known || (on_way != MANY && (s64)on_way > (s64)(from + bytes - s->read))) {
		was_known = s->is_known;
		lose_stream(s);
		/* All that is there, or was until it was read right now, is what was sent. */
		if (on_way != bytes && (on_way || was_known))
			return;
		restart_stream(s, bytes);
		from = s->written - bytes;
	} else {
		s->written = from + bytes;
	}
	if (!request || (on_way == MANY && is_other))
		return;
	attribute_sent(s, from, request);
}

/* The same of TCP, which numbers bytes itself; who sends at the same time makes a gap. */
static __always_inline void note_sent_by_tcp(struct stream *s, struct sock *sk, u32 bytes, u64 request)
{
	u32 now = BPF_CORE_READ((struct tcp_sock *)sk, write_seq);
	u64 from = s->written;
	int is_first = !s->is_known;

	if (is_first) {
		restart_stream(s, bytes);
		from = STREAM_BEGIN;
		s->read = 0;
	} else {
		s->written += (s32)(now - s->sequence);
	}
	s->sequence = now;
	if (!request || s->written - from != bytes)
		return;
	attribute_sent(s, from, request);
}

static __always_inline struct stream *meet_stream(const struct caller *who, const struct stream_key *key)
{
	if (!program_of(who))
		meet();
	if (!KEEP_IN(streams, TABLE_STREAMS, who, key, &no_stream)) {
		lose(LOSS_REQUESTS_FULL);
		return NULL;
	}
	return bpf_map_lookup_elem(&streams, key);
}

/* The calling thread has sent on a socket on which it is not asked itself. `f` is NULL where its program is not followed:
 * then only what is known of the stream already is kept right. */
static __always_inline void sent_on_channel(const struct caller *who, const struct followed *f, struct sock *sk,
					    u32 bytes)
{
	u16 family = sk->__sk_common.skc_family;
	int is_of_bytes = sk->sk_type == TYPE_STREAM;
	struct request_thread *t = f ? known_thread(who) : NULL;
	struct sock *peer = NULL;
	struct stream_key key;
	struct stream *s;
	u64 request = 0, asked;

	if (family == FAMILY_UNIX) {
		peer = unix_peer(sk);
		if (!peer || !unix_stream(sk, &key))
			return;
		/* By this it is known again where nobody follows who sends. */
		if (f)
			bpf_get_socket_cookie(sk);
	} else if ((family != FAMILY_INET && family != FAMILY_INET6) || !tcp_stream(address_of(sk), 0, &key)) {
		return;
	}
	s = bpf_map_lookup_elem(&streams, &key);
	if (!s && !f)
		return;
	if (f)
		request = request_of_sender(who, f, t);
	if (!s) {
		if (!request)
			return;
		s = meet_stream(who, &key);
		if (!s)
			return;
	}
	if (!lock_stream(s))
		return;
	s->sender = who->tgid;
	/* An event loop sends later what could not be sent at once, whoever it runs for then. */
	if (t && t->is_loop) {
		asked = bytes_asked();
		if (s->is_late)
			request = 0;
		s->is_late = asked == MANY ? s->is_late : bytes < asked;
	}
	if (bytes && family == FAMILY_UNIX)
		note_sent(s, is_of_bytes ? bytes : 1, queued_on(address_of(peer), is_of_bytes), request, who->task);
	else if (bytes)
		note_sent_by_tcp(s, sk, bytes, request);
	unlock_stream(s);
}

/* ---- reading ---- */

struct telling {
	const struct caller *who;
	struct stream *stream;
	u32 end;
};

static long tell_stream_piece(u32 i, struct telling *t)
{
	struct program_key sender = { t->stream->tgid, t->stream->exec_id };
	u32 at = t->stream->oldest + i;

	if (at == t->end || at == t->stream->next)
		return 1;
	tell_engine(ENGINE_DELIVERED, t->who, piece_at(t->stream, at)->request, &sender);
	return 0;
}

/* Whether somebody may still work for a request that was handed on: it is not over, or it was left by its client. */
static __always_inline int may_go_on(u64 id)
{
	struct request *r = request_numbered(id);

	return r && (!r->ended_ns || r->ending != ENDING_COMPLETE);
}

/* Counts what was read, of which so much is on the way still; false where it is not known what that was. */
static __always_inline int count_read(struct stream *s, u64 size, u64 on_way, struct reading *r)
{
	if (s->is_missed)
		lose_stream(s);
	s->read += size;
	/* Less than is known of: somebody else reads as well, or what was sent was lost. */
	if (!s->is_known || (on_way != MANY && (s64)(s->written - s->read) > (s64)on_way)) {
		lose_stream(s);
		if (on_way)
			return 0;
		restart_stream(s, 0);
		s->read += size;
	}
	r->to = s->read;
	r->from = r->to - size;
	return 1;
}

/* Notes what was read, and who may wait for it to be seen being sent. */
static __always_inline void note_read(struct stream *s, struct sock *sk, u16 family, u32 bytes, struct reading *r)
{
	int is_of_bytes = sk->sk_type == TYPE_STREAM;
	u64 on_way, size = is_of_bytes ? bytes : 1;

	r->stream = s;
	if (family == FAMILY_UNIX) {
		if (!count_read(s, size, queued_on(address_of(sk), is_of_bytes), r))
			return;
	} else {
		if (!s->is_known) {
			restart_stream(s, 0);
			s->sequence = BPF_CORE_READ((struct tcp_sock *)sk, copied_seq) - size;
		}
		r->to = s->written + (s32)(BPF_CORE_READ((struct tcp_sock *)sk, copied_seq) - s->sequence);
		r->from = r->to - size;
		on_way = s->read;
		s->read = r->to;
		/* Who reads at the same time takes part of what is taken for this. */
		if (on_way > STREAM_BEGIN && on_way != r->from)
			return;
	}
	look_up_pieces(r);
}

/* Whether a thread works for a request that was not handed on to it by another program. */
static __always_inline int is_busy(const struct request_thread *t)
{
	return t && t->request && t->why != CLAIM_CHANNEL && may_go_on(t->request);
}

static __always_inline int is_taken(const struct request_thread *t)
{
	return t && t->request && t->why != CLAIM_CHANNEL;
}

/* The beginning of a record of TLS, of all versions that have a handshake: its type, 3, and 0 to 4. */
static __always_inline int is_record(u64 word)
{
	u8 type = word, major = word >> 8, minor = word >> 16;

	return type >= 20 && type <= 23 && major == 3 && minor <= 4;
}

/* What TLS sends, or a blank line before a request of HTTP: that is read elsewhere. */
static __always_inline int is_other_protocol(u64 word)
{
	u8 first = word;

	return is_record(word) || first == '\r' || first == '\n';
}

/* The calling thread works for the request that was handed on to it, in the context of its connection if it is in one. Verified
 * by itself: there are too many ways to get here. */
RARE int claim_channel(u64 key, u64 sender)
{
	struct connection *c = bpf_map_lookup_elem(&connections, &key), *before;
	struct caller who;
	struct followed *f = follow(&who);
	struct request_thread *t;
	u64 context;

	if (!c || !f)
		return 0;
	t = meet_request_thread(&who);
	if (!t)
		return 0;
	context = context_now(f);
	if (t->is_loop && f->context_offset && is_entered(context)) {
		t->request = 0;
		if (c->request)
			follow_connection(&who, context, &(struct connection_id){ key, c->number });
		return 0;
	}
	if (is_taken(t) && !c->request)
		return 0;
	if (is_busy(t)) {
		/* For whom it works now, nobody knows. */
		t->request = 0;
		return 0;
	}
	before = t->why == CLAIM_CHANNEL && t->request ? connection_of(&t->connection) : NULL;
	if (before && before != c && before->request == t->request && may_go_on(t->request) &&
	    c->request != t->request && !t->is_batch) {
		t->is_batch = 1;
		tell_delivered_by(&who, sender, t->request);
		tell_delivered_by(&who, sender, c->request);
	}
	if (c->flags & CONNECTION_BATCH || (t->is_loop && c->request))
		t->is_batch = 1;
	t->context = context;
	t->request = c->request;
	t->connection = (struct connection_id){ key, c->number };
	t->why = CLAIM_CHANNEL;
	t->holder.number = 0;
	t->awaits_enter = t->is_loop && f->context_offset;
	return 0;
}

/* The calling thread has read what no request is known to have been sent for: until it has answered, what it does may be for
 * that, whatever else it reads. */
static __always_inline void owe_stranger(const struct caller *who, struct connection *c)
{
	struct request_thread *t = meet_request_thread(who);

	if (!t || (c->stranger_of == who->task && c->stranger_of_born_ns == who->born_ns))
		return;
	leave_stranger(c);
	c->stranger_of = who->task;
	c->stranger_of_born_ns = who->born_ns;
	__sync_fetch_and_add(&t->strangers, 1);
}

/* The calling thread has read from a stream, which is locked: for whom it works from now on. `is_asked`: its program is asked
 * on the channel by whoever sends. */
static __always_inline int take_reading(const struct caller *who, const struct followed *f, struct request_thread *t,
					u64 key, struct connection *c, struct stream *s, struct reading *reading,
					int is_asked)
{
	int is_channel = c && c->flags & CONNECTION_CHANNEL, is_told = t && (t->is_batch || t->is_loop);
	u64 request = reading->known == reading->to - reading->from ? reading->request : 0, old;
	struct request *r = request_numbered(reading->request);
	struct telling telling;

	/* An answer: who reads it knows whom it works for. Of the rest that is known as well, if there is any. */
	if ((r && r->tgid == who->tgid && r->exec_id == who->exec_id) ||
	    (!r && !is_channel && (is_taken(t) || (t && t->is_loop && !c)))) {
		s->oldest = reading->end;
		unlock_stream(s);
		return 1;
	}
	if (!c) {
		if (!program_of(who))
			meet();
		c = meet_connection(who, key);
	}
	if (!c) {
		unlock_stream(s);
		return 1;
	}
	c->flags |= CONNECTION_CHANNEL;
	old = c->request;
	c->flags &= ~(CONNECTION_AWAITS | CONNECTION_UNCLEAR);
	if (reading->others ||
	    (old && reading->request && old != reading->request && may_go_on(old) && !(c->flags & CONNECTION_BATCH))) {
		/* What comes next may be for any of them. */
		if (!(c->flags & CONNECTION_BATCH) && old != reading->request)
			tell_delivered(who, s, old);
		c->flags |= CONNECTION_BATCH;
	}
	is_told |= c->flags & CONNECTION_BATCH;
	if (is_told && reading->request && meet_engine(who)) {
		telling = (struct telling){ who, s, reading->end };
		/* Also of the last, of which a part was read. */
		if (reading->end != s->next && reading->known)
			telling.end++;
		bpf_loop(STREAM_PIECES, tell_stream_piece, &telling, 0);
	}
	s->oldest = reading->end;
	c->request = request;
	if (!request && reading->to > reading->from)
		c->flags |= CONNECTION_UNCLEAR;
	if (!reading->known && reading->to && (s64)(reading->to - s->written) > 0) {
		c->flags |= CONNECTION_AWAITS;
		s->reader = (struct connection_id){ key, c->number };
		s->reading = who->task;
	}
	/* What a program sends to itself wakes it up. */
	if (!request && !reading->others && (is_asked || (s->sender && s->sender != who->tgid)))
		owe_stranger(who, c);
	unlock_stream(s);
	claim_channel(address_of((void *)key), sender_of(s));
	return 1;
}

/* The calling thread has received bytes that begin no request of its own program; false: on no channel on which requests are
 * handed on. */
static __always_inline int received_on_channel(const struct caller *who, const struct followed *f,
					       struct request_thread *t, struct sock *sk, u64 key, struct connection *c,
					       u32 bytes, u64 word)
{
	u16 family = sk->__sk_common.skc_family;
	int is_channel = c && c->flags & CONNECTION_CHANNEL;
	struct reading reading = {};
	struct stream_key stream_key;
	struct stream *s = NULL;

	if (!is_channel && ((c && c->request) || is_other_protocol(word)))
		return 0;
	if (stream_into(sk, family, &stream_key)) {
		s = bpf_map_lookup_elem(&streams, &stream_key);
		/* Who sent it may be seen doing so yet. Unix sockets do not number bytes: who reads is to be seen always. */
		if (!s && (family == FAMILY_UNIX || (!is_taken(t) && (c || !t || !t->is_loop))))
			s = meet_stream(who, &stream_key);
	}
	if (!s || !lock_stream(s)) {
		/* Whose it is, is not known: it may come from another host. */
		if (!is_channel && t && t->why == CLAIM_CHANNEL && is_asked_on(address_of(sk))) {
			c = c ? c : meet_connection(who, key);
			if (c)
				c->flags |= CONNECTION_CHANNEL;
			is_channel = c != NULL;
		}
		if (is_channel && c) {
			c->request = 0;
			owe_stranger(who, c);
		}
		return is_channel;
	}
	note_read(s, sk, family, bytes, &reading);
	return take_reading(who, f, t, key, c, s, &reading, is_asked_on(address_of(sk)));
}

/* What is sent on a channel by who reads it is the answer, or its beginning. */
static __always_inline void answered_on_channel(struct connection *c)
{
	if (!(c->flags & CONNECTION_BATCH))
		c->request = 0;
	c->flags &= ~(CONNECTION_AWAITS | CONNECTION_UNCLEAR);
	leave_stranger(c);
}

/* A connection over TCP is there, or is no more: who has its ends now sends other bytes. */
static __always_inline void forget_streams(struct sock *sk, int is_received)
{
	struct stream_key key;
	struct stream *s;
	u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);

	if ((family != FAMILY_INET && family != FAMILY_INET6) || !tcp_stream(address_of(sk), is_received, &key))
		return;
	s = bpf_map_lookup_elem(&streams, &key);
	if (s)
		take_out(&streams, TABLE_STREAMS, s->tgid, s->exec_id, &key);
}

#endif
