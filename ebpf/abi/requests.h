/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Requests, and the GPU's work for them. */
#ifndef OTEL_GPU_ABI_REQUESTS_H
#define OTEL_GPU_ABI_REQUESTS_H

#include "abi/types.h"

#define DIRECTIONS 3 /* of copies: COPY_HOST_TO_DEVICE and what follows it */

/* What a device was asked to do. */
struct gpu_totals {
	u64 launches;
	u64 graph_launches;
	u64 copies[DIRECTIONS];
	u64 copied_bytes[DIRECTIONS];
	u64 synchronize_ns;
};
_Static_assert(sizeof(struct gpu_totals) == 72, "gpu_totals crosses the border");

/* Why work is no request's. */
enum no_owner {
	NO_OWNER_NOT_FOLLOWED,	  /* the agent does not follow its program's requests, or not yet */
	NO_OWNER_NO_REQUEST,	  /* neither thread nor context serves a request */
	NO_OWNER_IDLE,		  /* the context's connection has no request now */
	NO_OWNER_AMBIGUOUS,	  /* its connection's requests cannot be told apart: pipelining, doubtful lengths */
	NO_OWNER_OUTLIVED,	  /* its request was over */
	NO_OWNER_SHARED,	  /* the context serves several connections, or its program's threads do */
	NO_OWNER_UNKNOWN_CONTEXT, /* the context was there before it could be seen */
	NO_OWNER_UNDECIDED,	  /* a task that a request began outlived it: it may have worked for others */
	NO_OWNER_FULL,		  /* there was no room to remember the request, or whose the work is */
	NO_OWNER_COUNT,
};

/* Work of a program that is no request's, by the reason. */
struct no_owner_key {
	u32 tgid;
	u32 exec_id;
	u32 reason; /* enum no_owner */
	u32 pad;
};
_Static_assert(sizeof(struct no_owner_key) == 16, "no_owner_key crosses the border");

/* A program whose requests are followed, and where its CPython keeps what its threads are at. Written by the agent. */
struct followed {
	u32 exec_id;
	u32 thread_state;  /* where its pointer is; THREAD_STATE_NONE without a CPython */
	s64 thread_offset; /* as in struct unwind_process */
	u64 thread_module;
	u64 runtime;		  /* _PyRuntime, from here */
	u64 runtime_end;	  /* to here */
	u32 context_offset;	  /* of the current contextvars.Context in a thread state */
	u8 threads_have_contexts; /* from 3.14 on threads run in a context of their own */
	u8 has_loops; /* without a CPython: threads hand requests to each other where nobody sees it; set here too */
	u8 was_there; /* what it did for the GPU before it was followed is not known: until it was quiet once, as is seen here */
	u8 pad;
	u64 since_boot_ns; /* threads that began before (CLOCK_BOOTTIME) may be event loops without having been seen as such: */
	u64 trusted_ns;	 /* what they read before (CLOCK_MONOTONIC) is not charged to them */
	u32 has_learned; /* set here: the context that uvloop runs callbacks in is known, */
	u32 learns_anew; /* or there is one that is not */
	u64 worked_ns;	 /* if it was there, when it did something last that is no request's; set here */
	u64 grpc;	 /* gRPC's core for Python, from here; 0: it has none */
	u64 grpc_end;	 /* to here */
	u64 python;	 /* the code of its CPython, from here */
	u64 python_end;	 /* to here */
	/* Where a CPython has its frames, of a program whose rclpy runs callbacks: offsets. */
	u16 state_frame; /* of the current frame in a thread state; 0: it is in the cframe, which is there: */
	u16 state_cframe;
	u16 cframe_frame;
	u16 frame_previous; /* 0: frames are not looked at */
	u16 frame_code;
	u16 frame_owner;     /* a byte that says whether it is a generator's; 0: a pointer to that does: */
	u16 frame_generator; /* here */
	u16 pad_frames;
};
_Static_assert(sizeof(struct followed) == 128, "followed crosses the border");

#define SPAN_TYPES 3 /* classes of spans of one program that are known */

/* A class of opentelemetry-python's spans. */
struct span_type {
	u64 type;  /* whose objects are spans; 0: none */
	u64 keys;  /* of its objects' attributes, from 3.11 on */
	s64 place; /* of an object: of its dict up to 3.10, of its values from 3.13 on */
};

/* A name that opentelemetry-python uses. */
struct span_name {
	u64 text; /* a str that stands as a key in dicts */
	u64 hash;
};

/* Where a program says which span of its own tracing is current in a thread. Written by the agent. */
struct span_source {
	u32 exec_id;
	u32 published; /* otel_thread_ctx_v1 of OTEP 4947: THREAD_STATE_* says how to find it */
	s64 published_offset;
	u64 published_module;
	/* CPython, with opentelemetry-python: */
	u32 minor;	   /* 0: there is none */
	u32 variable_hash; /* of the ContextVar, as a HAMT has it */
	u64 variable;
	struct span_name key;	  /* under which a context has its span; its hash is looked up when it is needed */
	struct span_name context; /* attributes of spans */
	struct span_name kind;
	struct span_name parent;
	struct span_name start;
	u64 server;	 /* SpanKind.SERVER */
	u64 true_object; /* True */
	u64 tuple_items; /* offset in a tuple */
	struct span_type types[SPAN_TYPES];
};
_Static_assert(sizeof(struct span_source) == 216, "span_source crosses the border");

/* Who said it. */
enum span_says {
	SPAN_SAYS_NOBODY,
	SPAN_SAYS_PUBLISHED, /* the program, by OTEP 4947 */
	SPAN_SAYS_PYTHON,    /* the context variable of opentelemetry-python */
	SPAN_SAYS_OBI,	     /* OpenTelemetry eBPF Instrumentation, in its map */
};

#define SPAN_REMOTE 1	    /* it is the caller's: the program made none itself */
#define SPAN_SERVER 2	    /* of kind SERVER */
#define SPAN_HAS_PARENT 4   /* `parent` says whose child it is */
#define SPAN_PARENT_AFAR 8  /* which is the caller's */
#define SPAN_KNOWS_FLAGS 16 /* trace_flags are known */

/* A span that a program made itself. Ids are as on the wire. */
struct own_span {
	u64 trace[2];
	u64 span;
	u64 parent;
	u64 began_ns; /* since the epoch; 0: not known */
	u8 says;      /* enum span_says; 0: there is none */
	u8 flags;
	u8 trace_flags;
	u8 pad[5];
};
_Static_assert(sizeof(struct own_span) == 48, "own_span crosses the border");

/* How a request ended. */
enum ending {
	ENDING_NONE,
	ENDING_COMPLETE,
	ENDING_CLOSED, /* the connection, before the response was whole */
	ENDING_LOST,   /* bytes were not seen, or not understood; of a callback: its end was not seen */
	ENDING_THROWN, /* an exception left the callback */
};

/* What a piece of work is. */
enum work_kind {
	WORK_BATCH = 1, /* first launch to the end that the host saw */
	WORK_WAIT,	/* a blocking call */
};

/* One piece of a request's work. */
struct gpu_work {
	u64 began_ns;
	u64 ended_ns;
	u64 bytes;    /* of a copy that was waited for */
	u32 launches; /* of a batch */
	u32 holder;   /* whose end decides whether it was the request's; 0: it was; ~0: several */
	u16 function; /* of a wait: row of the hook table */
	u8 kind;      /* enum work_kind */
	u8 direction; /* of a copy: enum copy_kind */
	u32 graph_launches;
	u64 span; /* of the program's own, whose it was; 0: none, or several */
};
_Static_assert(sizeof(struct gpu_work) == 48, "gpu_work crosses the border");

#define REQUEST_WORKS 16
#define REQUEST_HEAD 1024 /* bytes kept of its head */
#define RESPONSE_HEAD 256

#define REQUEST_AMBIGUOUS 1 /* the connection's requests could not be told apart: whose its work was is not known */
#define REQUEST_GONE 2	    /* its connection is closed */
#define REQUEST_CLOSED 4    /* nothing is added any more */
#define REQUEST_ENCRYPTED 8 /* it came over TLS */
#define REQUEST_HTTP2 16    /* it is a stream, whose header blocks are told apart from it: see abi/frames.h */
#define REQUEST_CALLBACK 32 /* it is a callback that an executor ran */

/* What a callback is for: the status of such a request. In the order of rclcpp::AnyExecutable. */
enum callback_kind {
	CALLBACK_ANY, /* whatever is due */
	CALLBACK_SUBSCRIPTION,
	CALLBACK_TIMER,
	CALLBACK_SERVICE,
	CALLBACK_CLIENT,
	CALLBACK_WAITABLE,
	CALLBACK_KINDS,
};
#define CALLBACK_NAME 256   /* bytes of the head: the topic's or the service's name */
#define CALLBACK_MESSAGE 56 /* bytes of struct rmw_message_info_t or rmw_service_info_t that matter */

/* What is told of a callback's message: the response of such a request. */
struct callback_told {
	u64 implementation; /* whose entity it is: where the middleware's name lies in the program's memory */
	u8 message[CALLBACK_MESSAGE];
};
_Static_assert(sizeof(struct callback_told) == 64, "callback_told crosses the border");

/* A request that a program serves. Times are CLOCK_MONOTONIC. */
struct request {
	u32 tgid;
	u32 exec_id;
	u64 id;
	u64 connection; /* its number */
	u64 began_ns;
	u64 ended_ns;	   /* 0: it goes on */
	u64 first_byte_ns; /* of the response, interim ones left out */
	u64 body_first_ns; /* first and last piece of its body */
	u64 body_last_ns;
	u64 request_body;
	u64 response_body;
	u64 batch_ns;	     /* first launch that was not waited for yet */
	u64 batch_span;	     /* as in struct gpu_work */
	u64 server_span;     /* the program's own of kind SERVER, in the same trace as: */
	struct own_span own; /* the first of the program's own that was current */
	u64 own_met;	     /* 1: somebody writes it, or has */
	u64 kind_known_of;   /* of which span the kind was looked at last */
	struct gpu_totals owned;
	struct gpu_totals held; /* by contexts whose end decides whether it was for this request */
	u32 batch_launches;
	u32 batch_graphs;
	u32 batch_holder;
	u32 tid; /* who read it */
	u32 pieces;
	u32 works_left_out;
	u64 stacks; /* 0: none was taken of its work */
	u16 works;
	u16 status;
	u16 head_size;
	u16 response_size;
	u8 ending; /* enum ending */
	u8 flags;
	u16 address_family;
	u16 local_port;
	u16 peer_port;
	u8 local[16];
	u8 peer[16];
	struct gpu_work work[REQUEST_WORKS];
	char response[RESPONSE_HEAD];
	char head[REQUEST_HEAD]; /* last: what of it is used is sent */
};

#endif
