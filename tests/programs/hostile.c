// SPDX-License-Identifier: Apache-2.0
/* hostile: what does an observer keep of a program that does too much of everything, on a driver of its own that lies?
 *
 *   hostile WHAT N [WHAT N ...]
 *
 * Says "ready", waits for a line on standard input, does each WHAT N times, says what that was, and goes on living until
 * the next line:
 *
 *   handles, shapes, streams     launches: of as many kernels, with as many grids, on as many streams
 *   names, renames               kernels that get a name; one that gets as many names
 *   events, contexts, graphs     that are recorded, made and made current, instantiated; graphs are launched too
 *   updates                      changes of one graph, each launched
 *   captures                     that begin, and never end
 *   errors, devices, uuids       that the driver speaks of
 *   live, pinned                 allocations, and ranges of host memory, that stay
 *   copies, fills                of 2^62 bytes each
 *   threads                      that are killed within a call, with their process
 *   waits                        threads that end within a call, in a process that goes on
 *   forks                        processes that launch up to three times, and end */
#include "liar.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const uint64_t BASE = 0x7f0000000000, NO_SIZE = 1ULL << 62;
enum { SIZE = 512, AT_ONCE = 200, STACK = 16384 };

static uint64_t launched, allocated, failed, graphs_launched;
static pthread_barrier_t barrier;

static void launch(uint64_t kernel, uint64_t stream, uint x, uint y, uint threads)
{
    cuLaunchKernel((void *)kernel, x, y, 1, threads, 1, 1, 0, (void *)stream, NULL, NULL);
    launched++;
}

static void *wait_for_ever(void *leaves)
{
    pthread_barrier_wait(&barrier);
    if (leaves) {
        /* As a thread that is cancelled, or leaves by an exception. */
        pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    }
    lie_code = -1;
    cuCtxSynchronize();
    return NULL;
}

/* As many threads as are asked for within the same call, in groups; each group ends there. */
static void threads(uint64_t n, int die_with_process)
{
    pthread_t ids[AT_ONCE];
    pthread_attr_t small;

    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, STACK + PTHREAD_STACK_MIN);
    for (uint64_t done = 0; done < n; done += AT_ONCE) {
        pid_t child = die_with_process ? fork() : 0;
        if (!child) {
            pthread_barrier_init(&barrier, NULL, AT_ONCE + 1);
            for (int i = 0; i < AT_ONCE; i++)
                if (pthread_create(&ids[i], &small, wait_for_ever, die_with_process ? NULL : &barrier))
                    exit(1);
            pthread_barrier_wait(&barrier);
            /* Long enough for all of them to be where they stay. */
            usleep(20000);
            if (die_with_process)
                _exit(0);
            for (int i = 0; i < AT_ONCE; i++)
                pthread_cancel(ids[i]);
            for (int i = 0; i < AT_ONCE; i++)
                pthread_join(ids[i], NULL);
            continue;
        }
        waitpid(child, NULL, 0);
    }
}

static void capture(uint64_t i)
{
    cuStreamBeginCapture_v2((void *)(BASE + i * 16), 0);
}

static void graph(uint64_t i)
{
    void *exec;
    lie_out = BASE + i * 16;
    cuGraphInstantiateWithFlags(&exec, (void *)BASE, 0);
    cuGraphLaunch(exec, NULL);
    graphs_launched++;
}

static void update(uint64_t i)
{
    char result[64];
    cuGraphExecUpdate_v2((void *)BASE, (void *)(BASE + 8), result);
    cuGraphLaunch((void *)BASE, NULL);
    graphs_launched++;
}

static void name(uint64_t handle, uint64_t i)
{
    char text[64];
    void *function;
    snprintf(text, sizeof text, "kernel_%lu", i);
    lie_out = handle;
    cuModuleGetFunction(&function, (void *)0x1000, text);
}

static void context(uint64_t i, int device)
{
    void *made;
    lie_out = BASE + i * 16;
    cuCtxCreate_v2(&made, 0, device);
    cuCtxSetCurrent(made);
}

static void child(uint64_t i)
{
    uint64_t n = i % 3 + 1;
    pid_t child = fork();

    if (!child) {
        for (uint64_t k = 0; k < n; k++)
            launch(BASE, 0, 1, 1, 32);
        _exit(0);
    }
    if (child < 0 || waitpid(child, NULL, 0) != child)
        exit(1);
    launched += n;
}

static void act(const char *what, uint64_t i)
{
    if (!strcmp(what, "handles"))
        launch(BASE + i * 16, 0, 1, 1, 32);
    else if (!strcmp(what, "shapes"))
        launch(BASE + i % 64 * 16, 0, 1U << i % 31, 1U << i / 31 % 31, 1U << i / 961 % 31);
    else if (!strcmp(what, "streams"))
        launch(BASE, BASE + i * 16, 1, 1, 32);
    else if (!strcmp(what, "names"))
        name(BASE + i * 16, i);
    else if (!strcmp(what, "renames")) {
        name(BASE, i);
        launch(BASE, 0, 1, 1, 32);
    } else if (!strcmp(what, "events"))
        cuEventRecord((void *)(BASE + i * 16), NULL);
    else if (!strcmp(what, "contexts"))
        context(i, 0);
    else if (!strcmp(what, "devices")) {
        context(i, (int)i);
        launch(BASE, 0, 1, 1, 32);
    } else if (!strcmp(what, "uuids")) {
        char uuid[16];
        lie_bytes[0] = i + 1;
        cuDeviceGetUuid_v2(uuid, (int)(i % 70));
    } else if (!strcmp(what, "graphs"))
        graph(i);
    else if (!strcmp(what, "updates"))
        update(i);
    else if (!strcmp(what, "captures"))
        capture(i);
    else if (!strcmp(what, "errors")) {
        lie_code = (int)(i * 2654435761u) | 1;
        cuMemFree_v2(BASE);
        lie_code = 0;
        failed++;
    } else if (!strcmp(what, "live")) {
        devptr pointer;
        lie_out = BASE + i * SIZE;
        cuMemAlloc_v2(&pointer, SIZE);
        allocated += SIZE;
    } else if (!strcmp(what, "pinned"))
        cuMemHostRegister_v2((void *)(BASE + i * 8192 + 1), 4094, 0);
    else if (!strcmp(what, "forks"))
        child(i);
    else if (!strcmp(what, "copies"))
        cuMemcpyHtoDAsync_v2(BASE, (void *)BASE, NO_SIZE, NULL);
    else if (!strcmp(what, "fills"))
        cuMemsetD8Async(BASE, 0, NO_SIZE, NULL);
    else {
        fprintf(stderr, "hostile cannot do %s\n", what);
        exit(2);
    }
}

int main(int count, char **arguments)
{
    char line[16];

    cuInit(0);
    printf("{\"event\":\"ready\",\"pid\":%d}\n", getpid());
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        return 1;
    for (int at = 1; at + 1 < count; at += 2) {
        uint64_t n = strtoull(arguments[at + 1], NULL, 0);
        if (!strcmp(arguments[at], "threads") || !strcmp(arguments[at], "waits"))
            threads(n, arguments[at][0] == 't');
        else
            for (uint64_t i = 0; i < n; i++)
                act(arguments[at], i);
    }
    printf("{\"event\":\"phase\",\"launches\":%lu,\"graph_launches\":%lu,\"allocated\":%lu,\"errors\":%lu}\n",
           launched, graphs_launched, allocated, failed);
    fflush(stdout);
    (void)!fgets(line, sizeof line, stdin);
    return 0;
}
