/* SPDX-License-Identifier: Apache-2.0
 * rounds.h: what a measured program is asked on standard input, and what it answers: one line each, so that one process
 * lives through every round and only the probes change between them. */
#ifndef ROUNDS_H
#define ROUNDS_H
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static inline uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

struct order {
    char what[16];
    uint64_t a, b;
};

/* The next order; 0 at the end of the input. */
static inline int next_order(struct order *order)
{
    char line[128];
    unsigned long a = 0, b = 0;

    if (!fgets(line, sizeof line, stdin))
        return 0;
    order->what[0] = 0;
    if (sscanf(line, "%15s %lu %lu", order->what, &a, &b) < 1)
        return 0;
    order->a = a;
    order->b = b;
    return 1;
}

static inline void answer(uint64_t ns, uint64_t calls)
{
    printf("%lu %lu\n", (unsigned long)ns, (unsigned long)calls);
    fflush(stdout);
}
#endif
