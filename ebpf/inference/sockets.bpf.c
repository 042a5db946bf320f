// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Programs on what goes through sockets: which requests come in, and when are they answered? The kernel tells of every
 * message that a thread has received or sent (6.3), with preemption off, so that none is missed; where it lies in the
 * program's memory stands in the arguments of the system call. */
#include "inference/tls.bpf.h"

static __always_inline struct carried carried_by_socket(struct sock *sk, u64 key, s32 bytes)
{
	return (struct carried){ .key = key, .sk = sk, .scan = scan_of_cpu(), .bytes = bytes > 0 ? bytes : 0 };
}

/* (exec id, how many more): programs are followed, from before the agent writes them down until they no longer are. Run by
 * the agent. */
SEC("raw_tp")
int mark_followed(u64 *ctx)
{
	__sync_fetch_and_add(place_of_program(followed_places, ctx[0]), (u32)ctx[1]);
	return 0;
}

/* What the bytes begin with that the system call has read; 0: not known. Verified by itself. */
RARE u64 first_word_read(u32 bytes)
{
	struct given given;
	u32 known = 0;

	find_bytes(&given, bytes);
	return first_word(&given, &known);
}

/* Goes on where socket_received() ends, which has more on the stack than there is room for beside this. */
SEC("tp_btf/sock_recv_length")
int channel_received(u64 *ctx)
{
	struct sock *sk = (void *)ctx[0];
	s32 bytes = ctx[1], flags = ctx[2];
	struct tls_thread *tls = tls_thread_now();
	u64 key = socket_key(sk), word = 0;
	struct connection *c;
	struct caller who;
	struct followed *f = follow(&who);
	u8 method;

	if (!f || flags & PEEK || bytes <= 0 || (tls && is_in_call(tls)))
		return 0;
	c = bpf_map_lookup_elem(&connections, &key);
	if (c && c->flags & (CONNECTION_ENCRYPTED | CONNECTION_HTTP2 | CONNECTION_AMBIGUOUS))
		return 0;
	if (!c || !(c->flags & CONNECTION_CHANNEL)) {
		if (c && c->request)
			return 0;
		word = first_word_read(bytes);
		if (is_method(word, sizeof(word), &method) || word == PREFACE)
			return 0;
	}
	received_on_channel(&who, f, known_thread(&who), sk, key, c, bytes, word);
	return 0;
}

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(u32));
	__array(values, int(u64 *));
} received_next SEC(".maps") = { .values = { [0] = (void *)&channel_received } };

/* One program for each message, as every process of the host pays for it. (sock, bytes or error, flags) */
SEC("tp_btf/sock_recv_length")
int socket_received(u64 *ctx)
{
	struct sock *sk = (void *)ctx[0];
	s32 bytes = ctx[1], flags = ctx[2];
	struct carried carried;
	struct caller who;
	struct followed *f;

	if (!may_be_followed() || flags & PEEK)
		return 0;
	f = follow(&who);
	if (!f)
		return 0;
	carried = carried_by_socket(sk, socket_key(sk), bytes);
	if (!hides(&who, f, sk, carried.key, carried.bytes, 1))
		received(&who, f, &carried);
	bpf_tail_call(ctx, &received_next, 0);
	return 0;
}

SEC("tp_btf/sock_send_length")
int socket_sent(u64 *ctx)
{
	struct sock *sk = (void *)ctx[0];
	s32 bytes = ctx[1];
	struct carried carried;
	struct caller who;
	struct followed *f = NULL;

	if (may_be_followed())
		f = follow(&who);
	if (!f) {
		if (sk->__sk_common.skc_family == FAMILY_UNIX && sk->__sk_common.skc_cookie.counter && tell_apart(&who))
			sent_on_channel(&who, NULL, sk, bytes > 0 ? bytes : 0);
		return 0;
	}
	carried = carried_by_socket(sk, socket_key(sk), bytes);
	if (!hides(&who, f, sk, carried.key, carried.bytes, 0))
		sent(&who, f, &carried);
	return 0;
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
