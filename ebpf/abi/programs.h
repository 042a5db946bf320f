/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A program, what it has in tables, and what went wrong for it. */
#ifndef OTEL_GPU_ABI_PROGRAMS_H
#define OTEL_GPU_ABI_PROGRAMS_H

#include "abi/rows.h"
#include "abi/types.h"

/* A program: what a process runs from exec to exec, or to its end. */
struct program_key {
	u32 tgid;
	u32 exec_id;
};
_Static_assert(sizeof(struct program_key) == 8, "program_key crosses the border");

#define OWNER_AT                                                                                                       \
	8 /* where values that are kept by thread, and groups of tensors, have the program_key of whose they are */

/* What went wrong in the kernel, one counter each. */
enum loss {
	LOSS_ROWS_FULL,	     /* counted in the overflow rows instead of the table */
	LOSS_OVERFLOW_FULL,  /* counted in the program's totals only */
	LOSS_CALLS_FULL,     /* a call's return could not be awaited */
	LOSS_LIVE_FULL,	     /* an allocation, or a mapping of one, could not be remembered */
	LOSS_READ_FAILED,    /* the target's memory was not readable */
	LOSS_CAPTURES_FULL,  /* a capturing stream or event could not be remembered */
	LOSS_EVENTS_FULL,    /* the ring buffer was full */
	LOSS_BUSY_FULL,	     /* a device's busy time could not be followed */
	LOSS_PINNED_FULL,    /* page-locked memory could not be remembered */
	LOSS_CONTEXTS_FULL,  /* on which device a thread works could not be remembered */
	LOSS_GRAPHS_FULL,    /* what an executable graph holds could not be remembered */
	LOSS_NAMES_FULL,     /* which kernel a handle is could not be remembered */
	LOSS_PROGRAMS_FULL,  /* there was no room for the program: nothing of the call was counted */
	LOSS_IMPLAUSIBLE,    /* a size that no memory has was taken for none */
	LOSS_REQUESTS_FULL,  /* a request, a connection or a context could not be followed, or whose work was whose */
	LOSS_RDMA_FULL,	     /* a queue pair, its work, its memory or a call of it could not be remembered */
	LOSS_NCCL_ROWS_FULL, /* a call of NCCL was counted without its communicator */
	LOSS_NCCL_OVERFLOW_FULL, /* a call of NCCL was not counted */
	LOSS_NCCL_COMMS_FULL,	 /* a communicator could not be remembered */
	LOSS_ARRIVALS_FULL,	 /* that a rank arrived at a collective could not be told */
	LOSS_ARRIVALS_LEFT_OUT,	 /* it was beyond what is told of a communicator in a second */
	LOSS_NCCL_PENDING_FULL,	 /* when a call's work was done could not be found out */
	LOSS_RANGES_FULL,	 /* where a device's memory lies could not be remembered */
	LOSS_COUNT,
};

/* The tables that programs share, see lib/shares.bpf.h. */
enum table {
	TABLE_ROWS,
	TABLE_OVERFLOW,
	TABLE_THREADS,
	TABLE_LIVE,
	TABLE_MAPPED,
	TABLE_PINNED,
	TABLE_BUSY,
	TABLE_PERIOD_KINDS,
	TABLE_RECORDED,
	TABLE_CAPTURING,
	TABLE_CAPTURED_KERNELS,
	TABLE_GRAPHS,
	TABLE_CONTEXTS,
	TABLE_PRIMARIES,
	TABLE_KERNELS,
	TABLE_SAMPLED_THREADS,
	TABLE_OFF_CPU_WAITS,
	TABLE_PERIOD_SAMPLERS,
	TABLE_TENSORS,
	TABLE_TENSOR_GROUPS,
	TABLE_REQUESTS,
	TABLE_CONNECTIONS,
	TABLE_REQUEST_THREADS,
	TABLE_PYTHON_CONTEXTS,
	TABLE_QUEUE_ITEMS,
	TABLE_ENGINES,
	TABLE_STEPS,
	TABLE_MESSAGES,
	TABLE_STREAMS,
	TABLE_QUEUE_PAIRS,
	TABLE_GONE_PAIRS,
	TABLE_WORK_RINGS,
	TABLE_RDMA_ROWS,
	TABLE_MEMORY_REGIONS,
	TABLE_VERBS_CALLS,
	TABLE_VERBS_PROGRAMS,
	TABLE_NCCL_ROWS,
	TABLE_NCCL_OVERFLOW,
	TABLE_NCCL_COMMS,
	TABLE_NCCL_THREADS,
	TABLE_TLS_SESSIONS,
	TABLE_HTTP2_CONNECTIONS,
	TABLE_EXCHANGES,
	TABLE_NCCL_STREAMS,
	TABLE_NCCL_WORKS,
	TABLE_NCCL_RECORDED,
	TABLE_COMPLETION_QUEUES,
	TABLE_RANGES,
	TABLE_COUNT,
};

/* The first total of each family: what a program's calls come to when not even the overflow rows have room. A family has one
 * for each row_key.kind; those of HIP are behind those of CUDA. */
enum total {
	TOTAL_LAUNCH,
	TOTAL_GRAPH_LAUNCH,
	TOTAL_COPY,
	TOTAL_MEMSET = TOTAL_COPY + COPY_KINDS,
	TOTAL_ALLOC,
	TOTAL_FREE = TOTAL_ALLOC + MEMORY_TYPES,
	TOTAL_WAIT = TOTAL_FREE + MEMORY_TYPES,
	TOTAL_ERROR,
	TOTAL_IDLE,
	TOTAL_ELAPSED,
	TOTALS_OF_API,
	TOTAL_COUNT = 2 * TOTALS_OF_API,
};

/* How much of a ring buffer a program fills, see may_send(). */
struct ring_use {
	u64 began;  /* where in the ring its present stretch begins */
	u64 before; /* bytes that it sent in the stretch before */
	u64 sent;   /* and in this one */
};

/* A program that has entries in tables. */
struct program {
	u64 start_ns;	/* when its process began, by CLOCK_BOOTTIME */
	u64 executions; /* how often that had called exec */
	u64 ended_ns;	/* CLOCK_MONOTONIC; 0 while it runs */
	u64 unloads;	/* how often it unloaded something, whose handles may be other kernels' since */
	char comm[16];
	u32 captures; /* that go on */
	u32 reused;   /* handles that became other kernels' */
	u8 is_announced;
	u8 holds_graphs;  /* it built graphs in which work waits for the host */
	u8 hides_memory;  /* it has some of which it is not known where it lies */
	u8 places_memory; /* virtual memory or pools of it may lie elsewhere than on a device */
	u8 seen_whole;	  /* the first that was seen of it is its first call of the driver */
	u8 pad[7];
	u32 parent;	     /* its process's parent when it showed itself; 0 when that is not to be seen from here */
	u32 captured;	     /* captures that ended since NCCL is followed */
	u32 connecting;	     /* calls of NCCL in progress, each of which may connect its communicator */
	u64 connecting_comm; /* the sum of their communicators: the one's where there is one */
	u64 nccl_code;	     /* an address in NCCL's code */
	u32 used[(TABLE_COUNT + 1) / 2 * 2]; /* by table; what follows is aligned */
	u64 lost[LOSS_COUNT];
	u64 profile_lost[LOSS_COUNT]; /* likewise, of profile.bpf.c */
	struct ring_use events;
	struct ring_use samples;
	struct ring_use arrivals;
	struct ring_use frames;
	u64 range_levels; /* a bit for each that is used, see cuda/ranges.bpf.h */
	struct row totals[TOTAL_COUNT];
};

/* What a program has by handle: a context, or a graph or kernel in its place. */
struct context_key {
	u32 tgid;
	u32 exec_id;
	u64 context;
};

/* What is known of a handle that was named or launched. */
struct kernel {
	u64 mark; /* tells its names apart; where none was told: UNNAMED, and the program's unloads by then */
	u32 generation;
	u32 pad;
};

/* Which program runs under a pid now. */
struct running {
	u32 tgid;
	u32 exec_id;
	u64 start_ns;
	u64 executions;
};
_Static_assert(sizeof(struct running) == 24, "running crosses the border");

#endif
