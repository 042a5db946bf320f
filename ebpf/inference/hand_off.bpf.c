// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Which requests does a program get from others? Messages of ZeroMQ are seen where they are sent and received, and not on
 * their sockets, which belong to threads of the library's own. A message is told by its size and by sums over its first
 * bytes, nothing of which is kept; where messages of different requests are alike and on the way at once, nobody can tell
 * whose is received. */
#include "inference/deliveries.bpf.h"
#include "inference/serving.bpf.h"
#include "lib/arguments.bpf.h"

/* Set before loading, at random: who does not know them makes no two messages with the same sums. */
const volatile u64 message_seed = 1;
const volatile u64 message_seed_2 = 1;

#define MESSAGE_HEAD 128 /* bytes that are looked at */
#define MESSAGE_LEAST 16 /* identities, delimiters and what says of which kind a message is are smaller */
#define MESSAGE_STALE_NS 60000000000ULL /* what is not received by then never is */

struct message_key {
	u64 sums[2];
	u64 bytes;
	u64 user; /* others do not get it */
};

struct message_on_way {
	u32 tgid; /* of who sent it */
	u32 exec_id;
	u64 request; /* 0: no request's */
	u64 socket;
	u64 sent_ns;
	s32 count; /* how many are on the way */
	u8 is_ambiguous;
	u8 is_refused;	 /* it was not sent: it may be tried again */
	u8 is_followed;	 /* its sender's requests are */
	u8 is_strangers; /* it is, or may be, for somebody of whom no request is known */
};

/* Messages on the way, by what they are told by. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct message_key);
	__type(value, struct message_on_way);
} messages SEC(".maps");

/* A thread's call of ZeroMQ. */
struct message_call {
	struct message_key key; /* of what it sends; no bytes: of nothing that is followed */
	u64 address;		/* of what it receives */
	u64 room;
	u64 head[MESSAGE_HEAD / sizeof(u64)];
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct message_call);
} message_calls SEC(".maps");

/* Programs that were told of as senders whose requests are not followed. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct program_key);
	__type(value, u8);
} told_senders SEC(".maps");

static const struct message_on_way no_message = {};

static __always_inline struct message_call *call_of_thread(void)
{
	return bpf_task_storage_get(&message_calls, bpf_get_current_task_btf(), NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
}

/* zmq_msg_t, as versions 4.2 and 4.3 have it. */
struct zmq_message {
	u64 metadata;
	u64 data; /* or where { data, bytes } is */
	u64 bytes;
	u8 inside[17];
	u8 inside_bytes;
	u8 type;
	u8 rest[21];
};
_Static_assert(sizeof(struct zmq_message) == 64 && __builtin_offsetof(struct zmq_message, type) == 42,
	       "as src/msg.hpp");

enum zmq_type {
	ZMQ_INSIDE = 101, /* the message lies in the structure */
	ZMQ_OUTSIDE = 102,
	ZMQ_CONSTANT = 104,
	ZMQ_RECEIVED = 105, /* outside, in what was read */
};

struct data {
	u64 at;
	u64 bytes;
};

static __always_inline int data_of(u64 message, struct data *d)
{
	struct zmq_message m;

	if (bpf_probe_read_user(&m, sizeof(m), (void *)message))
		return 0;
	switch (m.type) {
	case ZMQ_INSIDE:
		d->at = message + __builtin_offsetof(struct zmq_message, data);
		d->bytes = m.inside_bytes;
		return 1;
	case ZMQ_CONSTANT:
		d->at = m.data;
		d->bytes = m.bytes;
		return 1;
	case ZMQ_OUTSIDE:
	case ZMQ_RECEIVED:
		return !bpf_probe_read_user(d, sizeof(*d), (void *)m.data);
	}
	return 0;
}

/* Sums a message up; false for what is too small, or cannot be read. */
static __always_inline int sum_up(struct message_call *call, const struct data *d)
{
	u64 bytes = d->bytes, one = message_seed ^ d->bytes, other = message_seed_2;

	if (bytes < MESSAGE_LEAST)
		return 0;
	if (bytes > MESSAGE_HEAD)
		bytes = MESSAGE_HEAD;
	__builtin_memset(call->head, 0, sizeof(call->head));
	asm volatile("" : "+r"(bytes)); /* the verifier must see the bound */
	if (bytes > MESSAGE_HEAD || bpf_probe_read_user(call->head, bytes, (void *)d->at))
		return 0;
#pragma unroll
	for (u32 i = 0; i < MESSAGE_HEAD / sizeof(u64); i++) {
		one = (one ^ call->head[i]) * 0x9e3779b97f4a7c15ULL;
		one ^= one >> 32;
		other = (other + call->head[i]) * 0xc2b2ae3d27d4eb4fULL;
		other ^= other >> 29;
	}
	call->key = (struct message_key){ { one, other }, d->bytes, (u32)bpf_get_current_uid_gid() };
	return 1;
}

static __always_inline struct followed *followed_program(const struct caller *who)
{
	struct followed *f = bpf_map_lookup_elem(&followed, &who->tgid);

	return f && f->exec_id == who->exec_id ? f : NULL;
}

static __always_inline void put_on_way(const struct caller *who, const struct message_key *key,
				       const struct message_on_way *sent)
{
	struct message_on_way *m = bpf_map_lookup_elem(&messages, key);
	struct program_key me = { who->tgid, who->exec_id };
	int is_mine;

	if (!m) {
		if (!program_of(who))
			meet();
		if (PUT_IN(messages, TABLE_MESSAGES, who, key, sent))
			return;
		m = bpf_map_lookup_elem(&messages, key); /* another thread has put it in meanwhile */
		if (!m) {
			lose(LOSS_REQUESTS_FULL);
			return;
		}
	}
	is_mine = m->tgid == who->tgid && m->exec_id == who->exec_id;
	if (m->is_refused && is_mine && m->socket == sent->socket) {
		/* zmq.asyncio sends from its event loop what it could not send at once. */
		if (sent->request) {
			m->request = sent->request;
			m->is_strangers = 0;
		}
		m->sent_ns = sent->sent_ns;
		m->is_refused = 0;
		return;
	}
	if (m->is_refused || sent->sent_ns - m->sent_ns > MESSAGE_STALE_NS) {
		take_out(&messages, TABLE_MESSAGES, m->tgid, m->exec_id, key);
		if (!PUT_IN(messages, TABLE_MESSAGES, who, key, sent))
			lose(LOSS_REQUESTS_FULL);
		return;
	}
	if (!is_mine || m->request != sent->request) {
		if (m->request && !m->is_ambiguous)
			tell_engine(ENGINE_AMBIGUOUS, who, m->request, &me);
		if (sent->request)
			tell_engine(ENGINE_AMBIGUOUS, who, sent->request, &me);
		m->is_ambiguous = 1;
		m->is_strangers |= sent->is_strangers;
	}
	m->sent_ns = sent->sent_ns;
	__sync_fetch_and_add(&m->count, 1);
}

/* Whether what is sent for no request may be for one that nobody knows of. Not so what a task sends when its request is over, as
 * it is where a client has gone, or one that was there before the agent. */
static __always_inline int is_of_stranger(u32 reason)
{
	return reason != NO_OWNER_OUTLIVED && reason != NO_OWNER_UNDECIDED && reason != NO_OWNER_UNKNOWN_CONTEXT;
}

/* It may be received before this call of the library has returned. */
static __always_inline int sends(const struct data *d, u64 socket)
{
	struct message_call *call = call_of_thread();
	struct message_on_way sent = {};
	struct caller who;
	struct owning o = {};
	struct followed *f;

	if (!call)
		return 0;
	call->key.bytes = 0;
	if (!identify(&who) || !sum_up(call, d))
		return 0;
	f = followed_program(&who);
	if (f) {
		o = owning_of(&who, context_now(f));
		own(&o, f);
		sent.request = o.request;
	}
	sent.is_strangers = !f || (!o.request && is_of_stranger(o.reason));
	sent.tgid = who.tgid;
	sent.exec_id = who.exec_id;
	sent.socket = socket;
	sent.sent_ns = bpf_ktime_get_ns();
	sent.count = 1;
	sent.is_followed = f != NULL;
	put_on_way(&who, &call->key, &sent);
	return 0;
}

static __always_inline void deliver(const struct caller *who, const struct message_on_way *m)
{
	struct program_key sender = { m->tgid, m->exec_id };
	struct engine *engine = meet_engine(who);

	if (!engine)
		return;
	engine->is_sent_messages = 1;
	/* Several parts of a message, as a rule. */
	if (engine->request == m->request)
		return;
	engine->request = m->request;
	tell_engine(ENGINE_DELIVERED, who, m->request, &sender);
}

/* A stranger's message was received: what the program does from now on may be for it, until the agent says that it has done
 * nothing for a while. */
static __always_inline void meet_stranger(const struct caller *who, u64 stranger)
{
	struct engine *engine = meet_receiver(who);

	if (!engine)
		return;
	engine->stranger_ns = bpf_ktime_get_ns();
	if (engine->strangers != engine->left && engine->stranger != stranger)
		stranger = STRANGERS;
	engine->stranger = stranger;
	__sync_fetch_and_add(&engine->strangers, 1);
}

static __always_inline int received_message(struct message_call *call, const struct data *d)
{
	struct message_on_way *m, taken;
	struct program_key sender;
	struct followed *f;
	struct caller who;
	u8 told = 1;

	if (!identify(&who) || !sum_up(call, d))
		return 0;
	f = followed_program(&who);
	m = bpf_map_lookup_elem(&messages, &call->key);
	if (!m || m->is_refused) {
		/* Nobody has seen it being sent; at first it may have been before there was anybody to see. */
		if (f && bpf_ktime_get_ns() > f->trusted_ns)
			meet_stranger(&who, STRANGERS);
		return 0;
	}
	/* Who works for nobody takes no request's message from who does. */
	if (!f && (m->is_followed || m->is_ambiguous))
		return 0;
	taken = *m;
	if (__sync_fetch_and_add(&m->count, -1) <= 1)
		take_out(&messages, TABLE_MESSAGES, taken.tgid, taken.exec_id, &call->key);
	if (!f)
		return 0;
	if (taken.is_strangers && (taken.tgid != who.tgid || taken.exec_id != who.exec_id))
		meet_stranger(&who, taken.is_followed || taken.is_ambiguous ? STRANGERS
									    : (u64)taken.tgid << 32 | taken.exec_id);
	if (taken.is_ambiguous)
		return 0;
	if (taken.request) {
		deliver(&who, &taken);
	} else if (!taken.is_followed) {
		sender = (struct program_key){ taken.tgid, taken.exec_id };
		if (!bpf_map_update_elem(&told_senders, &sender, &told, BPF_NOEXIST))
			tell_engine(ENGINE_FED, &who, 0, &sender);
	}
	return 0;
}

/* zmq_msg_send(zmq_msg_t *, void *socket, int flags): it is emptied by it. */
SEC("uprobe")
int message_sent(struct pt_regs *ctx)
{
	struct data d;

	return data_of(argument(ctx, 0), &d) ? sends(&d, argument(ctx, 1)) : 0;
}

/* zmq_send(void *socket, const void *, size_t, int flags) */
SEC("uprobe")
int bytes_sent(struct pt_regs *ctx)
{
	struct data d = { argument(ctx, 1), argument(ctx, 2) };

	return sends(&d, argument(ctx, 0));
}

SEC("uretprobe")
int send_returned(struct pt_regs *ctx)
{
	struct message_call *call = call_of_thread();
	struct message_on_way *m;
	struct caller who;

	if (!call || !call->key.bytes || RESULT(ctx) >= 0 || !identify(&who))
		return 0;
	m = bpf_map_lookup_elem(&messages, &call->key);
	call->key.bytes = 0;
	if (!m || m->tgid != who.tgid || m->exec_id != who.exec_id)
		return 0;
	if (m->count <= 1 && !m->is_ambiguous)
		m->is_refused = 1;
	else
		__sync_fetch_and_add(&m->count, -1);
	return 0;
}

/* zmq_msg_recv(zmq_msg_t *, void *socket, int flags) */
SEC("uprobe")
int message_awaited(struct pt_regs *ctx)
{
	struct message_call *call = call_of_thread();

	if (call)
		call->address = argument(ctx, 0);
	return 0;
}

SEC("uretprobe")
int message_received(struct pt_regs *ctx)
{
	struct message_call *call = call_of_thread();
	struct data d;

	if (!call || !call->address || RESULT(ctx) < MESSAGE_LEAST || !data_of(call->address, &d))
		return 0;
	call->address = 0;
	return received_message(call, &d);
}

/* zmq_recv(void *socket, void *, size_t room, int flags): it returns the size of the whole message. */
SEC("uprobe")
int bytes_awaited(struct pt_regs *ctx)
{
	struct message_call *call = call_of_thread();

	if (call) {
		call->address = argument(ctx, 1);
		call->room = argument(ctx, 2);
	}
	return 0;
}

SEC("uretprobe")
int bytes_received(struct pt_regs *ctx)
{
	struct message_call *call = call_of_thread();
	s32 bytes = RESULT(ctx);
	struct data d;

	if (!call || !call->address || bytes < MESSAGE_LEAST)
		return 0;
	d = (struct data){ call->address, bytes };
	call->address = 0;
	/* Of what was cut off nothing is known. */
	if (call->room < MESSAGE_HEAD && call->room < (u64)bytes)
		return 0;
	return received_message(call, &d);
}

/* (tgid, exec_id, how many): a program is done with so many messages of strangers. Run by the agent. */
SEC("raw_tp")
int leave_strangers(u64 *ctx)
{
	struct program_key program = { ctx[0], ctx[1] };
	struct engine *engine = bpf_map_lookup_elem(&engines, &program);

	if (engine)
		engine->left = ctx[2];
	return 0;
}

static long drop_stale(struct bpf_map *map, const struct message_key *key, struct message_on_way *m, u64 *sent_before)
{
	struct message_key copy = *key;

	if (m->sent_ns < *sent_before)
		take_out(&messages, TABLE_MESSAGES, m->tgid, m->exec_id, &copy);
	return 0;
}

/* (a time): forgets messages that were sent before and never received. Run by the agent. */
SEC("raw_tp")
int drop_messages(u64 *ctx)
{
	u64 sent_before = ctx[0];

	bpf_for_each_map_elem(&messages, drop_stale, &sent_before, 0);
	return 0;
}
