/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Collectives and communicators of NCCL and RCCL: what their calls came to, and who arrived when. */
#ifndef OTEL_GPU_ABI_NCCL_H
#define OTEL_GPU_ABI_NCCL_H

#include "abi/types.h"

/* The attach cookie. Positions are numbers of arguments, 15 for none. */
#define NCCL_FUNCTION(c) ((u32)(c)&63)	     /* row of the hook table */
#define NCCL_COUNT(c) ((u32)((c) >> 6) & 15) /* position of the number of elements */
#define NCCL_DATATYPE(c) ((u32)((c) >> 10) & 15)
#define NCCL_COMM(c) ((u32)((c) >> 14) & 15)
#define NCCL_REDUCTION(c) ((u32)((c) >> 18) & 15)
#define NCCL_ROOT(c) ((u32)((c) >> 22) & 1) /* the argument before the communicator is the root, or the peer */
#define NCCL_RANK_AT(c) (((u64)(c) >> 23 & 0xfffff) * 4)  /* where a communicator has its rank; 0: not known */
#define NCCL_RANKS_AT(c) (((u64)(c) >> 43 & 0xfffff) * 4) /* and the number of its ranks */

/* What a row counts; its sums are given behind each. */
enum nccl_family {
	NCCL_CALLS = 1, /* calls that put work on a stream: bytes, nanoseconds */
	NCCL_INITS,	/* communicators that were made: -, nanoseconds */
	NCCL_ABORTS,	/* and aborted: -, - */
	NCCL_GROUPS,	/* calls that end an outermost group: -, nanoseconds */
	NCCL_ERRORS,	/* calls that failed; the code is in nccl_row_key.reduction: -, - */
	NCCL_DURATIONS, /* calls whose work the host saw done: bytes, nanoseconds since they were made */
};

#define NCCL_DATATYPES 12 /* those that have a size: ncclInt8 to ncclFloat8e5m2 */
#define NCCL_NO_DATATYPE 255
#define NCCL_NO_REDUCTION 255
#define NCCL_CUSTOM_REDUCTION 5 /* of a program's own making, and all behind it */
#define NCCL_UNKNOWN_RANK (-1)
#define NCCL_MOST_RANKS 1000000
#define NCCL_ID_BYTES 128 /* of ncclUniqueId */

struct nccl_row_key {
	u32 tgid;
	u32 exec_id;
	u64 comm;  /* hash of the communicator's id; 0: not known */
	s32 rank;  /* NCCL_UNKNOWN_RANK: not known */
	s32 ranks; /* 0: not known */
	u8 family;
	u8 function;
	u8 datatype;
	u8 reduction;
	u8 bucket; /* of the nanoseconds */
	u8 grouped;
	u8 alone; /* nothing else of NCCL's was on its stream that the host had not seen done */
	u8 pad;
};
_Static_assert(sizeof(struct nccl_row_key) == 32, "nccl_row_key crosses the border");

/* What a rank asked for in one collective: the same on all ranks, or it cannot come to an end. */
struct nccl_signature {
	u64 count;
	s32 root; /* -1: none */
	u8 function;
	u8 datatype;
	u8 reduction;
	u8 pad;
};

struct nccl_comm_key {
	u32 tgid;
	u32 exec_id;
	u64 address;
};
_Static_assert(sizeof(struct nccl_comm_key) == 16, "nccl_comm_key crosses the border");

/* A communicator whose making was seen. */
struct nccl_comm {
	u64 comm;
	s32 rank;
	s32 ranks;
	u64 sequence;	 /* collectives begun, the last one's number */
	u64 entered_ns;	 /* when that was begun */
	u64 returned_ns; /* and when the call of the last one that returned did so */
	struct nccl_signature last;
	u64 began_second; /* of the budget of arrivals, see arrivals.bpf.h */
	u32 in_second;
	u32 mask;
	u32 splits; /* communicators made from it */
	u32 pad;
};
_Static_assert(sizeof(struct nccl_comm) == 80, "nccl_comm crosses the border");

#define NCCL_ARRIVAL_GROUPED 1 /* it is submitted when the thread's group ends, which is told then */
#define NCCL_ARRIVAL_GROUP 2   /* that is it */

/* A rank has arrived at a collective. */
struct nccl_arrival {
	u32 tgid;
	u32 exec_id;
	u64 comm;
	s32 rank;
	s32 ranks;
	u64 sequence;
	u64 entered_ns;
	u64 returned_ns;
	struct nccl_signature signature;
	u32 tid;
	u32 flags;
};
_Static_assert(sizeof(struct nccl_arrival) == 72, "nccl_arrival crosses the border");

#endif
