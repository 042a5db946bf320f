// SPDX-License-Identifier: Apache-2.0
/* A program on the driver API, which it finds by dlopen.
 *   launch N          N launches                                  -> ns, launches
 *   pair N            N allocations, each freed at once           -> ns, pairs
 *   pace RATE MS      launches at a steady rate, for so long      -> ns, launches
 *   storm THREADS N   N launches on each of so many threads       -> ns, launches
 *   hold N            N allocations, which stay                   -> ns, allocations
 *   churn THREADS N   N allocations and frees on each thread      -> ns, pairs
 *   reopen            the driver unmapped, and mapped again       -> ns, 0
 *   exec              itself in its place                         -> 0, 0
 * Without a device (the real driver on a machine without a GPU) launches fail, after the prologue that is measured. */
#include "rounds.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum { KERNELS = 32, MAX_THREADS = 64, TICK_NS = 1000000 };

static int (*cuInit)(unsigned), (*cuDevicePrimaryCtxRetain)(void **, int), (*cuCtxSetCurrent)(void *);
static int (*cuModuleLoadData)(void **, const void *), (*cuModuleGetFunction)(void **, void *, const char *);
static int (*cuStreamCreate)(void **, unsigned);
static int (*cuMemAlloc_v2)(uint64_t *, size_t), (*cuMemFree_v2)(uint64_t);
static int (*cuLaunchKernel)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                             void **);

static const char image[] = ".version 8.0\n.target sm_90\n.address_size 64\n";
static void *library, *context, *functions[KERNELS], *stream;

static void *find(const char *name)
{
    void *address = dlsym(library, name);
    if (!address) {
        fprintf(stderr, "libcuda.so.1 has no %s\n", name);
        exit(2);
    }
    return address;
}

static void open_driver(void)
{
    void *module;
    char name[16];

    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
#define FIND(name) *(void **)&name = find(#name)
    FIND(cuInit);
    FIND(cuDevicePrimaryCtxRetain);
    FIND(cuCtxSetCurrent);
    FIND(cuModuleLoadData);
    FIND(cuModuleGetFunction);
    FIND(cuStreamCreate);
    FIND(cuMemAlloc_v2);
    FIND(cuMemFree_v2);
    FIND(cuLaunchKernel);
    if (cuInit(0))
        return;
    if (cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) || cuModuleLoadData(&module, image) ||
        cuStreamCreate(&stream, 0))
        exit(1);
    for (int i = 0; i < KERNELS; i++) {
        snprintf(name, sizeof name, "kernel%d", i);
        if (cuModuleGetFunction(&functions[i], module, name))
            exit(1);
    }
}

/* Several kernels and grids, as real programs have: every launch finds another row of the agent's table. */
static void launch(uint64_t n, void *on)
{
    for (uint64_t i = 0; i < n; i++)
        cuLaunchKernel(functions[i % KERNELS], 1 + i % 4, 1, 1, 128, 1, 1, 0, on, NULL, NULL);
}

static uint64_t pair(uint64_t n)
{
    uint64_t address, done = 0;
    for (uint64_t i = 0; i < n; i++)
        done += !cuMemAlloc_v2(&address, 4096) && !cuMemFree_v2(address);
    return done;
}

/* What is due is launched at every tick; behind schedule, without a pause. */
static uint64_t pace(uint64_t rate, uint64_t ms)
{
    uint64_t began = now_ns(), end = began + ms * 1000000, done = 0, now;
    while ((now = now_ns()) < end) {
        uint64_t due = (now - began) / 1000 * rate / 1000000;
        uint64_t most = rate / 50 + 1; /* looks at the clock even when the machine is slower than the rate */
        uint64_t batch = due > done ? due - done : 0;
        batch = batch < most ? batch : most;
        launch(batch, stream);
        done += batch;
        if (batch < most)
            nanosleep(&(struct timespec){0, TICK_NS}, NULL);
    }
    return done;
}

static void *storm_thread(void *n)
{
    void *own;
    if (cuCtxSetCurrent(context) || cuStreamCreate(&own, 0))
        exit(1);
    launch((uint64_t)n, own);
    return NULL;
}

static uint64_t on_threads(void *(*work)(void *), uint64_t threads, uint64_t n)
{
    pthread_t ids[MAX_THREADS];
    threads = threads < MAX_THREADS ? threads : MAX_THREADS;
    for (uint64_t i = 0; i < threads; i++)
        if (pthread_create(&ids[i], NULL, work, (void *)n))
            exit(1);
    for (uint64_t i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    return threads * n;
}

enum { HELD_BYTES = 512, BATCH = 64 };

static uint64_t hold(uint64_t n)
{
    uint64_t address;
    for (uint64_t i = 0; i < n; i++)
        if (cuMemAlloc_v2(&address, HELD_BYTES))
            exit(1);
    return n;
}

/* Several live at a time, so that their addresses change. */
static void *churn_thread(void *n)
{
    uint64_t addresses[BATCH];
    if (cuCtxSetCurrent(context))
        exit(1);
    for (uint64_t done = 0; done < (uint64_t)n; done += BATCH) {
        for (int i = 0; i < BATCH; i++)
            if (cuMemAlloc_v2(&addresses[i], HELD_BYTES))
                exit(1);
        for (int i = BATCH; i--;)
            if (cuMemFree_v2(addresses[i]))
                exit(1);
    }
    return NULL;
}

static uint64_t reopen(void)
{
    if (dlclose(library))
        exit(1);
    open_driver();
    return 0;
}

int main(int count, char **words)
{
    struct order order;
    (void)count;

    open_driver();
    answer(0, 0);
    while (next_order(&order)) {
        uint64_t began = now_ns(), calls = order.a;
        if (!strcmp(order.what, "launch"))
            launch(order.a, stream);
        else if (!strcmp(order.what, "pair"))
            calls = pair(order.a);
        else if (!strcmp(order.what, "pace"))
            calls = pace(order.a, order.b);
        else if (!strcmp(order.what, "storm"))
            calls = on_threads(storm_thread, order.a, order.b);
        else if (!strcmp(order.what, "hold"))
            calls = hold(order.a);
        else if (!strcmp(order.what, "churn"))
            calls = on_threads(churn_thread, order.a, order.b / BATCH * BATCH);
        else if (!strcmp(order.what, "reopen"))
            calls = reopen();
        else if (!strcmp(order.what, "exec"))
            return execv("/proc/self/exe", words);
        else
            return 2;
        answer(now_ns() - began, calls);
    }
    return 0;
}
