/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Queue pairs, what they did, and the programs that use verbs. */
#ifndef OTEL_GPU_ABI_RDMA_H
#define OTEL_GPU_ABI_RDMA_H

#include "abi/types.h"

/* What a work request asks for: the first seven are enum ibv_wr_opcode. */
enum rdma_operation {
	RDMA_WRITE,
	RDMA_WRITE_IMM,
	RDMA_SEND,
	RDMA_SEND_IMM,
	RDMA_READ,
	RDMA_COMPARE_SWAP,
	RDMA_FETCH_ADD,
	RDMA_OTHER, /* memory windows, invalidation, large segments */
	RDMA_OPERATIONS,
};

/* A queue pair. Its number is unique on its device only, and a device is opened anew by each context. */
struct queue_pair_key {
	u32 tgid;
	u32 exec_id;
	u64 context;
	u32 qpn;
	u32 pad;
};
_Static_assert(sizeof(struct queue_pair_key) == 24, "queue_pair_key crosses the border");

#define QPN_NONE 0xffffffff /* of the queue pairs that found no room: their posts are added up in one entry */
#define DEVICE_NAME 64	    /* IBV_SYSFS_NAME_MAX */
#define STATE_UNKNOWN 0xff

/* What is known of a queue pair, and what it did. */
struct queue_pair {
	struct queue_pair_key key;
	u64 id;	     /* no other has it, also none of the same number later */
	u64 posted;  /* work requests, to its send queue */
	u64 awaited; /* receive work requests, but those of shared queues */
	u64 operations[RDMA_OPERATIONS];
	u64 bytes[RDMA_OPERATIONS];
	u64 last_done_ns; /* when the last completion was seen */
	u64 send_queue;	  /* its completion queues */
	u64 receive_queue;
	u64 comm; /* of NCCL, that it is of; 0 where that is not known, or it is of none */
	u64 base; /* from where on the ring knows all that was posted */
	u64 tail; /* up to where it is over */
	u32 window;
	u32 unread; /* verbs_program.unread when it was last followed */
	u32 matches;
	u32 depth;	 /* the most work requests in its send queue */
	u32 remote_qpn;	 /* 0 where it is not known, or where there is none */
	u32 destination; /* of InfiniBand without global routes: the other port's local identifier */
	u8 gid[16];	 /* of the other side */
	u8 type;	 /* enum ibv_qp_type, 0 where it is not known */
	u8 state;	 /* enum ibv_qp_state, or STATE_UNKNOWN */
	u8 port;
	u8 mtu; /* enum ibv_mtu */
	u8 gid_index;
	u8 has_gid;
	u8 from_start;	/* seen before anything was posted */
	u8 all_signal;	/* every work request has a completion */
	u8 is_followed; /* which work request is next to complete is known */
	u8 reuses;	/* it gave a number again before the first with it was over */
	u8 is_lost;	/* there was no room for its ring */
	u8 pad[5];
	char device[DEVICE_NAME];
};

/* What a program has of a queue pair, by its id. */
struct work_ring_key {
	u32 tgid;
	u32 exec_id;
	u64 id;
};

/* What a row counts. */
enum rdma_row_kind {
	RDMA_ROW_LATENCY,      /* from post to completion, by operation and bucket: nanoseconds */
	RDMA_ROW_SERVICE,      /* since the completion before, where that was later than the post */
	RDMA_ROW_RECEIVED,     /* messages, by what they were: bytes */
	RDMA_ROW_ERROR,	       /* completions that failed, by status in the bucket */
	RDMA_ROW_UNMATCHED,    /* completions whose latency is not known, by enum rdma_unmatched in the bucket */
	RDMA_ROW_STATE,	       /* changes of state, by the new one in the bucket */
	RDMA_ROW_ASYNC,	       /* asynchronous events, by enum ibv_event_type in the bucket */
	RDMA_ROW_REGISTERED,   /* memory regions: bytes */
	RDMA_ROW_DEREGISTERED, /* those among them that are gone */
	RDMA_ROW_REGISTRATION, /* how long it took, by bucket: nanoseconds */
	RDMA_ROW_REFUSED,      /* registrations that failed */
};

/* Why a completion has no latency. */
enum rdma_unmatched {
	RDMA_UNMATCHED_BEFORE,	  /* what it is of was, or may have been, posted before its queue pair was followed */
	RDMA_UNMATCHED_AMBIGUOUS, /* several requests that may still be under way have its number */
	RDMA_UNMATCHED_DEEP,	  /* more are under way than are remembered */
	RDMA_UNMATCHED_UNREAD,	  /* the program did not read which queue pair it is of, or what it was */
};

/* Of whom a row is: a queue pair by its id, or 0 for the program itself. */
struct rdma_row_key {
	u32 tgid;
	u32 exec_id;
	u64 id;
	u8 kind;
	u8 operation; /* enum rdma_operation; of what was received 0 or, with immediate data, 1 */
	u8 bucket;
	u8 pad[5];
};
_Static_assert(sizeof(struct rdma_row_key) == 24, "rdma_row_key crosses the border");

struct rdma_row {
	u64 count;
	u64 sum;
};

/* What the kernel reports at once. */
enum verbs_event_kind {
	VERBS_OPENED = 1, /* a device was opened: poll_cq, post_send, post_recv */
	VERBS_EXTENDED,	  /* a queue pair has functions of its own: struct verbs_event says which */
	VERBS_QUEUE,	  /* so has a completion queue: from start_poll on, as struct ibv_cq_ex has them */
	VERBS_POLLED,	  /* it polls more often than it may be looked at */
};

#define VERBS_FUNCTIONS 24
struct verbs_event {
	u32 kind;
	u32 tgid;
	u32 exec_id;
	u32 pad;
	u64 functions
		[VERBS_FUNCTIONS]; /* of a queue pair those from wr_atomic_cmp_swp on, as struct ibv_qp_ex has them */
};

/* A program that uses verbs. */
struct verbs_program {
	u64 second_ns; /* when the present second of polls began */
	u64 polls;     /* all that were looked at */
	u64 extended;  /* the functions that were told last */
	u64 queues;    /* those of a completion queue */
	u32 in_second;
	u32 window; /* in which it polled too often */
	u32 told;   /* events */
	u32 unread; /* completions of which is not known what they were of */
	u64 direct; /* how often it asked for what one needs to work past libibverbs */
};

/* Whether a program's completions are looked at now, and for which time; written by the agent. */
struct poll_window {
	u32 number;
	u32 is_open;
	u32 most; /* polls a second */
	u32 pad;
};

#endif
