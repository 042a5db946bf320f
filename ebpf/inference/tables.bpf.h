/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is kept of requests, and of the threads and contexts that work for them? Tables that the programs which follow
 * requests fill, and those that count the GPU's work look into. */
#ifndef OTEL_GPU_INFERENCE_TABLES_BPF_H
#define OTEL_GPU_INFERENCE_TABLES_BPF_H

#include "abi/memory.h"
#include "abi/requests.h"
#include "abi/rows.h"
#include "abi/unwinding.h"
#include "lib/shares.bpf.h"

/* Observed programs whose requests are followed, by tgid. Written by the agent. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, u32);
	__type(value, struct followed);
} followed SEC(".maps");

/* Where programs say which span of their own is current, by tgid. Written by the agent. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, u32);
	__type(value, struct span_source);
} span_sources SEC(".maps");

/* Requests by number, from their first byte until what the GPU did for them is told. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 32768);
	__type(key, u64);
	__type(value, struct request);
} requests SEC(".maps");

/* Bytes of a system call that are given to a message. Not on the stack, where the verifier would follow every value. */
struct given {
	u64 from;    /* in the program's memory; 0: only how many there are is known */
	u64 vectors; /* struct io_vector, of which the next one follows; 0: there is one piece */
	u64 body;    /* of what was taken */
	u32 left;    /* of the call */
	u32 piece;   /* of the piece that is at `from` */
	u32 vector;
	u32 method; /* of the request that the message is about */
};

/* How far a message of HTTP/1 has come, in one direction of a connection. */
#define LINE_WORDS 3
struct message {
	struct given given;
	u64 left;	      /* of the body, or of a chunk */
	u64 length;	      /* as the head has it, or of a chunk as far as its digits have come */
	u64 tail;	      /* the last eight bytes of the present line */
	u64 word;	      /* a header's value: a number, or letters */
	u64 line[LINE_WORDS]; /* its beginning, letters in lower case */
	u32 at;		      /* bytes of the line */
	u32 lines;
	u32 head_bytes;
	u16 status;
	u8 state; /* enum message_state */
	u8 flags;
	u8 value; /* of which header the line gives the value: VALUE_* */
	u8 letters;
	u8 is_over; /* blanks have come behind them */
	u8 pad[5];
};

/* A connection on which a program is asked. */
struct connection {
	u32 tgid;
	u32 exec_id;
	u64 number;  /* no other connection ever has it */
	u64 request; /* that is served; 0: none since it began */
	struct message in;
	struct message out;
	u64 session;	 /* SSL * whose bytes its socket carries; 0: none is known */
	u64 stranger_of; /* the thread that owes an answer to a message which is no known request's; 0: none does */
	u64 stranger_of_born_ns;
	u8 flags;  /* CONNECTION_* */
	u8 method; /* of the request: METHOD_* */
	u8 is_answered;
	u8 is_stdin; /* a pipe from which a program has its standard input */
	u8 pad[4];
};
#define CONNECTION_AMBIGUOUS 1
#define CONNECTION_ENCRYPTED 2 /* what goes through its socket is TLS: its messages are seen where they are in clear */
#define CONNECTION_HTTP2 4
#define CONNECTION_LOST 8      /* of HTTP/2: where frames begin is not known any more */
#define CONNECTION_CHANNEL 16  /* no HTTP: on it other programs hand on requests of theirs */
#define CONNECTION_BATCH 32    /* and several were handed on before the first was answered */
#define CONNECTION_AWAITS 64   /* who sent what was read last was not seen doing so yet */
#define CONNECTION_UNCLEAR 128 /* what was read last was for several, or it is not known for whom */
#define METHOD_HEAD 1
#define METHOD_CONNECT 2

/* Connections by what socket_key() says of their socket, from accept() or the first request to the end. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, u64);
	__type(value, struct connection);
} connections SEC(".maps");

/* A connection as others remember it: sockets are had again, numbers are not. */
struct connection_id {
	u64 key;
	u64 number; /* 0: none */
};

/* Why a thread works for a request. */
enum claim {
	CLAIM_NONE,
	CLAIM_READ,    /* it read it */
	CLAIM_ITEM,    /* it took from a queue what somebody who worked for it put there */
	CLAIM_THREAD,  /* who started the thread worked for it */
	CLAIM_CHANNEL, /* it read what another program sent for it */
};

/* A context that holds what it and those below it do until it ends. */
struct holder {
	u64 context;
	u64 number; /* 0: there is none */
};

/* A call of a function that runs a callback. */
struct callback_frame {
	u64 request;	/* which the callback is; 0: there was no room for it */
	u64 stack;	/* the stack pointer as the function was called: it lies below; 0: there is none */
	u64 returns_to; /* to where it returns: on x86-64 it is at `stack` as long as the call goes on */
};

/* A thread that has to do with requests. */
struct request_thread {
	u64 born_ns;
	u32 tgid;
	u32 exec_id;
	u64 request;			 /* that it works for where no context says otherwise; 0: none */
	struct connection_id connection; /* on which it read that */
	u64 context;			 /* its contextvars.Context then */
	struct holder holder;
	u32 strangers; /* connections on which it owes such an answer */
	u32 unused;
	struct connection_id accepted; /* a connection that it just accepted, */
	u64 accepted_in;	       /* in this context: the next copy of that is the connection's */
	u64 copied_bytes;	       /* of the copy that it counted last, */
	u8 copied;		       /* and its direction */
	u8 why;			       /* enum claim */
	u8 is_loop;		       /* it waits for several descriptors at a time: an event loop */
	u8 awaits_enter;	       /* bytes were read outside of contexts: the next one entered is the server's */
	u8 is_batch; /* it read requests of others before it had answered those before: what it does is for several */
	u8 waits_in_grpc; /* it waits for descriptors in gRPC's core */
	u8 pad[2];
	struct callback_frame callback; /* of an executor, the innermost that the thread is in */
};
_Static_assert(__builtin_offsetof(struct request_thread, tgid) == OWNER_AT, "the agent finds whose it is");

/* Threads by caller.task. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, u64);
	__type(value, struct request_thread);
} request_threads SEC(".maps");

/* Whom a contextvars.Context works for. */
enum context_kind {
	CONTEXT_NONE = 1,   /* nobody */
	CONTEXT_FROZEN,	    /* one request, for life */
	CONTEXT_CONNECTION, /* whatever its connection serves now */
	CONTEXT_SHARED,	    /* several connections: nobody can tell */
	CONTEXT_SERVER,	    /* uvloop's, in which every connection's callbacks run */
};
#define CONTEXT_ROOT 1 /* it read the request, or answers it: not to be outlived by it */

struct python_context {
	u64 request;
	struct connection_id connection;
	u64 parent;
	u64 number; /* none has it twice, as addresses are had */
	struct holder holder;
	struct gpu_totals held;
	u8 kind;
	u8 flags;
	u8 has_stacks; /* stacks of its work were taken: whose they are is told when it ends */
	u8 pad[5];
};

/* Contexts, from their birth to their end. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 131072);
	__type(key, struct live_key);
	__type(value, struct python_context);
} python_contexts SEC(".maps");

/* Contexts that ended in time, by number: what they held was for this request. Of those alone of whose work stacks were taken.
 * Read by the agent. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, u64);
	__type(value, u64);
} decided_holders SEC(".maps");

/* Work that is no request's, by program and reason. Read by the agent, which removes it. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct no_owner_key);
	__type(value, struct gpu_totals);
} no_owners SEC(".maps");

/* How many requests of a program go on. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, struct program_key);
	__type(value, u64);
} going_on SEC(".maps");

static const struct gpu_totals no_totals = {};
static const struct request_thread no_request_thread = {};

static __always_inline struct request_thread *request_thread_of(u64 task, u32 tgid, u32 exec_id)
{
	struct request_thread *t = bpf_map_lookup_elem(&request_threads, &task);

	return t && t->tgid == tgid && t->exec_id == exec_id ? t : NULL;
}

static __always_inline struct python_context *python_context_at(u32 tgid, u32 exec_id, u64 address)
{
	struct live_key key = { tgid, exec_id, address };

	return address ? bpf_map_lookup_elem(&python_contexts, &key) : NULL;
}

static __always_inline struct request *request_numbered(u64 id)
{
	return id ? bpf_map_lookup_elem(&requests, &id) : NULL;
}

/* The connection, if it still is the same one. */
static __always_inline struct connection *connection_of(const struct connection_id *id)
{
	u64 key = id->key;
	struct connection *c = id->number ? bpf_map_lookup_elem(&connections, &key) : NULL;

	return c && c->number == id->number ? c : NULL;
}

/* The message of a stranger that came on a connection is answered, or will not be. */
static __always_inline void leave_stranger(struct connection *c)
{
	struct request_thread *t = c->stranger_of ? request_thread_of(c->stranger_of, c->tgid, c->exec_id) : NULL;

	if (t && t->born_ns == c->stranger_of_born_ns && t->strangers)
		__sync_fetch_and_add(&t->strangers, -1);
	c->stranger_of = 0;
}

static __always_inline int is_connection(const struct connection_id *a, const struct connection_id *b)
{
	return a->number == b->number;
}

static __always_inline u64 *going_on_of(u32 tgid, u32 exec_id)
{
	struct program_key key = { tgid, exec_id };

	return bpf_map_lookup_elem(&going_on, &key);
}

#endif
