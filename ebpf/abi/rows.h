/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is counted: a row of the count table, and what its key says. */
#ifndef OTEL_GPU_ABI_ROWS_H
#define OTEL_GPU_ABI_ROWS_H

#include "abi/types.h"

/* What a row counts; row.sum_a and row.sum_b are given behind each. */
enum family {
	FAMILY_LAUNCH = 1,   /* kernels: blocks in the grid, threads in a block */
	FAMILY_GRAPH_LAUNCH, /* graph launches: - , - */
	FAMILY_COPY,	     /* copies: bytes, - */
	FAMILY_MEMSET,	     /* memsets: bytes, - */
	FAMILY_ALLOC,	     /* allocations: bytes, - */
	FAMILY_FREE,	     /* frees: bytes, - */
	FAMILY_WAIT,	     /* blocking calls: nanoseconds, - */
	FAMILY_ERROR,	     /* failed calls; row_key.subject is the code: - , - */
	FAMILY_IDLE,	     /* gaps in which a device had nothing to do: nanoseconds, - */
	FAMILY_ELAPSED,	     /* times between events, as the driver measured them: nanoseconds, - */
	FAMILY_COUNT,
};

/* Copy kinds, in row_key.kind. The first five are cudaMemcpyKind. */
enum copy_kind {
	COPY_HOST_TO_HOST,
	COPY_HOST_TO_DEVICE,
	COPY_DEVICE_TO_HOST,
	COPY_DEVICE_TO_DEVICE,
	COPY_DEFAULT,
	COPY_PEER,
	COPY_KINDS,
};

/* Host memory on the host's side of a copy, in row_key.detail. */
enum host_memory {
	HOST_MEMORY_NONE,
	HOST_MEMORY_PAGEABLE,
	HOST_MEMORY_PINNED,
};

/* Memory types, in row_key.kind of allocations and frees. */
enum memory_type {
	MEMORY_DEVICE,
	MEMORY_HOST,
	MEMORY_MANAGED,
	MEMORY_REGISTERED,
	MEMORY_ASYNC,
	MEMORY_VIRTUAL,
	MEMORY_UNKNOWN, /* freed, but its allocation is not known */
	MEMORY_TYPES,
};

/* How a free came about, in row_key.detail. */
enum free_cause {
	FREE_CALLED,
	FREE_IMPLICIT,	/* the address came back from the driver while we held it for live */
	FREE_UNTRACKED, /* of an unknown allocation, for which there may have been no room */
};

/* What became of an allocation, in row_key.detail. */
enum allocation {
	ALLOCATION_LIVES,
	ALLOCATION_UNTRACKED, /* there was no room to remember it: it is in no sum of what lives */
};

/* Set in row_key.kind, and in kinds everywhere else, for what was asked of HIP and not of CUDA. */
#define KIND_HIP 0x80

#define DEVICE_UNKNOWN 0xff
#define ORDINALS 64	 /* devices of one program that are told apart; further ones are unknown */
#define ERROR_CODES 4096 /* larger ones are none of CUDA's or HIP's; they count as 0, which is no error */
#define BUCKET_ZERO 0	 /* the value was 0 */
#define BUCKET_NONE 0xff /* there is no such value */

/* One row of the count table. Buckets are OTLP's exponential histogram at scale 0, plus 2:
 * 1 holds the value 1, b holds (2^(b-2), 2^(b-1)]. */
struct row_key {
	u32 tgid;
	u32 exec_id;  /* tells apart the programs that ran under one pid, see tell_apart() */
	u64 subject;  /* kernel handle, graph, error code */
	u16 function; /* row of the hook table; of launches the handle's generation, see generation_of() */
	u8 family;
	u8 device;
	u8 kind;
	u8 detail;
	u8 bucket_a;
	u8 bucket_b;
};
_Static_assert(sizeof(struct row_key) == 24, "row_key crosses the border");

struct row {
	u64 count;
	u64 sum_a;
	u64 sum_b;
};
_Static_assert(sizeof(struct row) == 24, "row crosses the border");

/* A row of the count table, on one CPU. Most kernels are launched with one shape, and an atomic addition takes as long as
 * all that is looked up: calls with the two values that came first are counted by one, and not in `others`. */
struct counted_row {
	struct row others;
	u64 alike;
	u64 usual; /* VALUES of those; 0: none yet */
};
_Static_assert(sizeof(struct counted_row) == 40, "counted_row crosses the border");

/* Both values of a call in one number, where they fit; 0 where they do not, or are 0. */
#define VALUE_B_BITS 16
#define VALUES(a, b) ((a) >> (64 - VALUE_B_BITS) || (b) >> VALUE_B_BITS ? 0 : (a) << VALUE_B_BITS | (b))

#endif
