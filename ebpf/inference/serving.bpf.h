/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which requests does a program serve, and who works for them? */
#ifndef OTEL_GPU_INFERENCE_SERVING_BPF_H
#define OTEL_GPU_INFERENCE_SERVING_BPF_H

#include "inference/http1.bpf.h"
#include "inference/kernel_sockets.h"
#include "inference/charges.bpf.h"

#if defined(__TARGET_ARCH_x86)
#define RETURNED(ctx) ((ctx)->ax)
#define FIRST_ARGUMENT(ctx) ((ctx)->di)
#define SECOND_ARGUMENT(ctx) ((ctx)->si)
#define THIRD_ARGUMENT(ctx) ((ctx)->dx)
#define RETURNS_TO(ctx) read_word((ctx)->sp) /* before the function's first push */
#else
#define RETURNED(ctx) ((ctx)->regs[0])
#define FIRST_ARGUMENT(ctx) ((ctx)->regs[0])
#define SECOND_ARGUMENT(ctx) ((ctx)->regs[1])
#define THIRD_ARGUMENT(ctx) ((ctx)->regs[2])
#define RETURNS_TO(ctx) ((ctx)->regs[30])
#endif

/* Requests that have ended, in this order: each once. Larger than the table of requests. */
#define FINISHED 65536
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FINISHED);
	__type(key, u32);
	__type(value, u64);
} finished SEC(".maps");
u64 finished_count = 0;
u64 request_count = 0;
u64 context_count = 0;
u64 connection_count = 0;

static const struct request no_request = {};
static const struct connection no_connection = {};

/* Threads, by process and number, that waited as event loops do when the agent came. Written by the agent. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, u64);
	__type(value, u8);
} waiting_loops SEC(".maps");

/* How many programs are followed of those that share a place. Most that come by are of none: they are told at once, by a look
 * that costs less than one into a table. */
volatile u32 followed_places[PLACES] = {};

static __always_inline int may_be_followed(void)
{
	struct task_struct *task = current_task();
	u32 number = program_number(task->group_leader->start_boottime, task->self_exec_id);

	return *place_of_program(followed_places, number) != 0;
}

/* The calling thread, where its program's requests are followed. A function of its own, as the compiler would make one choice
 * of this and of what callers ask, which the verifier does not follow. */
static __noinline struct followed *follow(struct caller *who)
{
	struct followed *f;

	if (!who || !may_be_followed() || !tell_apart(who))
		return NULL;
	f = bpf_map_lookup_elem(&followed, &who->tgid);
	return f && f->exec_id == who->exec_id ? f : NULL;
}

static __always_inline struct request_thread *known_thread(const struct caller *who)
{
	struct request_thread *t = request_thread_of(who->task, who->tgid, who->exec_id);

	return t && t->born_ns == who->born_ns ? t : NULL;
}

static __always_inline struct request_thread *meet_request_thread(const struct caller *who)
{
	struct request_thread *t = known_thread(who);

	if (t)
		return t;
	t = bpf_map_lookup_elem(&request_threads, &who->task);
	if (t) /* its end went unseen */
		take_out(&request_threads, TABLE_REQUEST_THREADS, t->tgid, t->exec_id, &who->task);
	if (!PUT_IN(request_threads, TABLE_REQUEST_THREADS, who, &who->task, &no_request_thread)) {
		lose(LOSS_REQUESTS_FULL);
		return NULL;
	}
	t = bpf_map_lookup_elem(&request_threads, &who->task);
	if (t) {
		t->tgid = who->tgid;
		t->exec_id = who->exec_id;
		t->born_ns = who->born_ns;
		t->is_loop = bpf_map_lookup_elem(&waiting_loops, &who->pid_tgid) != NULL;
	}
	return t;
}

static __always_inline struct owning owning_of(const struct caller *who, u64 context)
{
	return (struct owning){
		.tgid = who->tgid,
		.exec_id = who->exec_id,
		.task = who->task,
		.context = context,
	};
}

/* ---- requests ---- */

static __always_inline void goes_on(u32 tgid, u32 exec_id, u64 more)
{
	struct program_key key = { tgid, exec_id };
	u64 *count = bpf_map_lookup_elem(&going_on, &key), none = 0;

	if (!count) {
		bpf_map_update_elem(&going_on, &key, &none, BPF_NOEXIST);
		count = bpf_map_lookup_elem(&going_on, &key);
	}
	if (count)
		__sync_fetch_and_add(count, more);
}

/* A request is over, once. */
static __always_inline void end_request(struct request *r, u8 ending)
{
	u32 at;

	if (!r || r->ended_ns)
		return;
	r->ending = ending;
	r->ended_ns = bpf_ktime_get_ns();
	goes_on(r->tgid, r->exec_id, -1);
	at = __sync_fetch_and_add(&finished_count, 1) & (FINISHED - 1);
	bpf_map_update_elem(&finished, &at, &r->id, BPF_ANY);
}

static __always_inline void read_ends(struct request *r, const struct sock *sk)
{
	u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);

	r->address_family = family;
	if (family == FAMILY_INET) {
		u32 local = BPF_CORE_READ(sk, __sk_common.skc_rcv_saddr),
		    peer = BPF_CORE_READ(sk, __sk_common.skc_daddr);
		__builtin_memcpy(r->local, &local, sizeof(local));
		__builtin_memcpy(r->peer, &peer, sizeof(peer));
	} else if (family == FAMILY_INET6) {
		BPF_CORE_READ_INTO(&r->local, sk, __sk_common.skc_v6_rcv_saddr);
		BPF_CORE_READ_INTO(&r->peer, sk, __sk_common.skc_v6_daddr);
	} else {
		return;
	}
	r->local_port = BPF_CORE_READ(sk, __sk_common.skc_num);
	r->peer_port = __builtin_bswap16(BPF_CORE_READ(sk, __sk_common.skc_dport));
}

/* The first byte of a request has come. */
static __noinline struct request *begin_request(const struct caller *who, u64 connection)
{
	u64 id = __sync_fetch_and_add(&request_count, 1) + 1;
	struct request *r;

	if (!who)
		return NULL;
	if (!PUT_IN(requests, TABLE_REQUESTS, who, &id, &no_request)) {
		lose(LOSS_REQUESTS_FULL);
		return NULL;
	}
	r = request_numbered(id);
	if (r) {
		r->tgid = who->tgid;
		r->exec_id = who->exec_id;
		r->tid = (u32)who->pid_tgid;
		r->id = id;
		r->connection = connection;
		r->began_ns = bpf_ktime_get_ns();
		goes_on(who->tgid, who->exec_id, 1);
	}
	return r;
}

/* What was taken for a request is none. */
static __always_inline void drop_request(struct request *r)
{
	u64 id = r->id;
	if (r->ended_ns)
		return;
	goes_on(r->tgid, r->exec_id, -1);
	take_out(&requests, TABLE_REQUESTS, r->tgid, r->exec_id, &id);
}

static __always_inline struct connection *meet_connection(const struct caller *who, u64 key)
{
	struct connection *c;

	if (!PUT_IN(connections, TABLE_CONNECTIONS, who, &key, &no_connection)) {
		lose(LOSS_REQUESTS_FULL);
		return NULL;
	}
	c = bpf_map_lookup_elem(&connections, &key);
	if (c) {
		c->tgid = who->tgid;
		c->exec_id = who->exec_id;
		c->number = __sync_fetch_and_add(&connection_count, 1) + 1;
		c->out.flags = MESSAGE_IS_RESPONSE;
	}
	return c;
}

/* Nobody can tell the connection's requests apart any more. */
static __always_inline void lose_track(struct connection *c)
{
	struct request *r = request_numbered(c->request);

	c->flags |= CONNECTION_AMBIGUOUS;
	if (r) {
		if (!r->ended_ns)
			r->flags |= REQUEST_AMBIGUOUS;
		end_request(r, ENDING_LOST);
	}
}

static __always_inline void drop_connection(struct connection *c, u64 key)
{
	leave_stranger(c);
	take_out(&connections, TABLE_CONNECTIONS, c->tgid, c->exec_id, &key);
}

/* Whether bytes are a method and a blank, as far as they go. */
static __always_inline int is_method(u64 word, u32 bytes, u8 *method)
{
	static const struct {
		u64 name;
		u32 size;
		u32 method;
	} methods[] = {
		{ WORD('G', 'E', 'T', ' ', 0, 0, 0, 0), 4, 0 },
		{ WORD('P', 'O', 'S', 'T', ' ', 0, 0, 0), 5, 0 },
		{ WORD('P', 'U', 'T', ' ', 0, 0, 0, 0), 4, 0 },
		{ WORD('H', 'E', 'A', 'D', ' ', 0, 0, 0), 5, METHOD_HEAD },
		{ WORD('P', 'A', 'T', 'C', 'H', ' ', 0, 0), 6, 0 },
		{ WORD('D', 'E', 'L', 'E', 'T', 'E', ' ', 0), 7, 0 },
		{ WORD('T', 'R', 'A', 'C', 'E', ' ', 0, 0), 6, 0 },
		{ WORD('O', 'P', 'T', 'I', 'O', 'N', 'S', ' '), 8, 0 },
		{ WORD('C', 'O', 'N', 'N', 'E', 'C', 'T', ' '), 8, METHOD_CONNECT },
	};

#pragma unroll
	for (u32 i = 0; i < sizeof(methods) / sizeof(*methods); i++) {
		u32 size = bytes < methods[i].size ? bytes : methods[i].size;
		u64 mask = size >= 8 ? ~0ULL : (1ULL << 8 * size) - 1;
		if ((word & mask) == (methods[i].name & mask)) {
			*method = methods[i].method;
			return 1;
		}
	}
	return 0;
}

#endif
