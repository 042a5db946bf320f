/* SPDX-License-Identifier: Apache-2.0
 * tally.h: what a program did, counted by itself, so that two witnesses (it and the mock driver) stand against the
 * agent. One tally per thread, added up at the end of a phase and printed as one line of JSON. */
#ifndef TALLY_H
#define TALLY_H
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { KERNELS = 5 };
extern const char *const kernel_names[KERNELS];

enum copy_kind { HTOD, DTOH, DTOD, DEFAULT, PEER, COPY_KINDS };
enum host_type { NO_HOST, PAGEABLE, PINNED, HOST_TYPES };
enum memory { DEVICE, HOST, MANAGED, REGISTERED, ASYNC, VIRTUAL, MEMORIES };
enum sync_call { STREAM_SYNC, STREAM_SYNC_PTSZ, EVENT_SYNC, CONTEXT_SYNC, SYNC_CALLS };

struct amount {
    uint64_t count, bytes;
};

/* Only 64-bit counters: tally_add() relies on it. */
struct tally {
    struct {
        uint64_t launches, grid_blocks, block_threads;
    } kernels[KERNELS];
    uint64_t captured, graph_launches, graph_kernels;
    struct amount copies[COPY_KINDS][HOST_TYPES];
    struct amount memsets;
    struct amount allocated[MEMORIES], freed[MEMORIES];
    uint64_t syncs[SYNC_CALLS];
    uint64_t failed_allocs, failed_frees;
};

void tally_add(struct tally *sum, const struct tally *part);

/* Prints one line: {"event": EVENT, "phase": PHASE, ...every counter}. */
void tally_print(const struct tally *tally, const char *event, int phase);

static inline void tally_copy(struct tally *tally, enum copy_kind kind, enum host_type host, size_t bytes)
{
    tally->copies[kind][host].count++;
    tally->copies[kind][host].bytes += bytes;
}

static inline void amount_add(struct amount *amount, size_t bytes)
{
    amount->count++;
    amount->bytes += bytes;
}
#endif
