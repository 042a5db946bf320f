/* SPDX-License-Identifier: Apache-2.0
 * Loaded by deep.py: launches in a loop of C, from wherever Python called, and C between two pieces of Python. */
#include <stdint.h>
#include <time.h>

typedef int (*driver_launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
                             void **, void **);

/* Of this thread: what else the machine runs is not the launches' cost. */
static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void work(uint64_t rounds)
{
    for (volatile uint64_t i = 0; i < rounds; i++)
        ;
}

/* CPU time that so many launches took, each after some work of its own. */
uint64_t launch_many(driver_launch launch, void *function, uint64_t calls, uint64_t rounds_of_work)
{
    uint64_t start = cpu_ns();

    for (uint64_t i = 0; i < calls; i++) {
        work(rounds_of_work);
        launch(function, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0);
    }
    return cpu_ns() - start;
}

void call_back(void (*f)(void))
{
    f();
    __asm__ volatile("");
}
