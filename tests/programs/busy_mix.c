// SPDX-License-Identifier: Apache-2.0
/* busy_mix: what can a program do between giving a device work and knowing that it is done?
 *
 * Threads, each with streams of its own and one that all share, do ROUNDS rounds: some work (launches, graphs, copies,
 * memsets, on one stream or several that wait for each other, on one device or two) and then one of the ways to learn of
 * its end (or none). What is drawn follows from --seed. The kernels are named after how long they take; the mock driver
 * is told by MOCKCUDA_KERNEL_RULES. With --batch NAME:COUNT there is one stream, and a round is that batch and a wait.
 * "ready" before the driver is used, "phase" when all work is done: with what a host that did not always give this
 * program a CPU let it know of its batches. */
#define _GNU_SOURCE
#include "driver.h"
#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { STREAMS = 5, EVENTS = 3, NOT_READY = 600, COPY_BYTES = 1 << 16, MAX_THREADS = 64, WAKE_NS = 300000 };

static const char *const names[] = {"takes_5us", "takes_50us", "takes_500us", "takes_5ms"};
enum { KERNELS = sizeof names / sizeof *names };
static const char image[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
                            ".visible .entry takes_5us()\n{ ret; }\n"
                            ".visible .entry takes_50us()\n{ ret; }\n"
                            ".visible .entry takes_500us()\n{ ret; }\n"
                            ".visible .entry takes_5ms()\n{ ret; }\n";

static struct {
    unsigned threads, rounds, seed, batch;
    const char *batch_kernel;
    bool hold, poll;
} options = {.threads = 1, .rounds = 100, .seed = 1};

struct device {
    void *context, *kernels[KERNELS], *shared;
};
static struct device devices[2];
static int device_count;

struct worker {
    unsigned random;
    struct device *device;
    void *streams[STREAMS]; /* two of its own, the shared one, the legacy default, the thread's default */
    void *events[EVENTS], *graph, *pinned;
    devptr memory;
};

static unsigned draw(struct worker *w, unsigned below)
{
    w->random = w->random * 1664525u + 1013904223u;
    return (w->random >> 8) % below;
}

static void launch(struct worker *w, unsigned kernel, void *stream)
{
    CHECK(cu.cuLaunchKernel(w->device->kernels[kernel], 4, 1, 1, 64, 1, 1, 0, stream, NULL, NULL));
}

/* Short kernels in long batches, long ones alone. */
static void work(struct worker *w, void *stream)
{
    unsigned kind = draw(w, 10), kernel = draw(w, 16);
    kernel = kernel < 7 ? 0 : kernel < 12 ? 1 : kernel < 15 ? 2 : 3;
    switch (kind) {
    case 0:
        CHECK(cu.cuGraphLaunch(w->graph, stream));
        break;
    case 1:
        CHECK(cu.cuMemcpyHtoDAsync_v2(w->memory, w->pinned, COPY_BYTES, stream));
        break;
    case 2:
        CHECK(cu.cuMemsetD8Async(w->memory, 0, COPY_BYTES, stream));
        break;
    default:
        for (unsigned n = 1 + draw(w, kernel < 2 ? 20 : 2); n; n--)
            launch(w, kernel, stream);
    }
}

static void poll(int (*query)(void *), void *what, unsigned pause_us)
{
    int result;
    while ((result = query(what)) == NOT_READY)
        if (pause_us)
            usleep(pause_us);
    CHECK(result);
}

static void learn(struct worker *w, void *stream)
{
    char there[64];
    float milliseconds;
    void *event = w->events[draw(w, EVENTS)];
    switch (draw(w, 12)) {
    case 0:
    case 1:
        CHECK(cu.cuStreamSynchronize(stream));
        break;
    case 2:
        CHECK(cu.cuCtxSynchronize());
        break;
    case 3:
        CHECK(cu.cuEventRecord(event, stream));
        CHECK(cu.cuEventSynchronize(event));
        break;
    case 4:
        CHECK(cu.cuEventRecord(event, stream));
        if (draw(w, 2))
            work(w, stream);
        poll(cu.cuEventQuery, event, draw(w, 2) * 20);
        break;
    case 5:
        poll(cu.cuStreamQuery, stream, draw(w, 2) * 20);
        break;
    case 6:
        CHECK(cu.cuMemcpyDtoH_v2(draw(w, 2) ? there : w->pinned, w->memory, sizeof there));
        break;
    case 7:
        CHECK(cu.cuMemcpyHtoD_v2(w->memory, w->pinned, COPY_BYTES));
        break;
    case 8:
        usleep(draw(w, 1000));
        CHECK(cu.cuStreamSynchronize(stream));
        break;
    case 9:
        CHECK(cu.cuEventRecord(w->events[0], stream));
        work(w, stream);
        CHECK(cu.cuEventRecord(w->events[1], stream));
        CHECK(cu.cuEventSynchronize(w->events[1]));
        CHECK(cu.cuEventElapsedTime(&milliseconds, w->events[0], w->events[1]));
        break;
    case 10: /* an event whose handle is used again */
        CHECK(cu.cuEventDestroy_v2(event));
        for (int i = 0; i < EVENTS; i++)
            if (w->events[i] == event)
                CHECK(cu.cuEventCreate(&w->events[i], 0));
        break;
    default: /* not at all */
        break;
    }
}

static void nothing(void *data) { (void)data; }

static void round_of_work(struct worker *w)
{
    void *stream = w->streams[draw(w, STREAMS)], *other = w->streams[draw(w, STREAMS)];
    if (device_count > 1 && !draw(w, 8)) {
        /* Work of one device that waits for the other's: this one is idle meanwhile. */
        struct device *here = w->device, *there = &devices[here == devices];
        CHECK(cu.cuCtxSetCurrent(there->context));
        CHECK(cu.cuLaunchKernel(there->kernels[2], 4, 1, 1, 64, 1, 1, 0, there->shared, NULL, NULL));
        CHECK(cu.cuEventRecord(w->events[2], there->shared));
        CHECK(cu.cuCtxSetCurrent(here->context));
        CHECK(cu.cuStreamWaitEvent(stream, w->events[2], 0));
    }
    if (options.hold && !draw(w, 16))
        CHECK(cu.cuLaunchHostFunc(stream, nothing, NULL));
    work(w, stream);
    if (!draw(w, 4)) {
        work(w, other);
        CHECK(cu.cuEventRecord(w->events[0], other));
        CHECK(cu.cuStreamWaitEvent(stream, w->events[0], 0));
        work(w, stream);
    }
    learn(w, stream);
    if (!draw(w, 6))
        usleep(draw(w, 2000));
}

static long long now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static long faults(void)
{
    struct rusage used;
    getrusage(RUSAGE_THREAD, &used);
    return used.ru_minflt + used.ru_majflt;
}

/* How long did this thread wait for a CPU? */
static long long delayed_ns(void)
{
    static int file = -1;
    char text[128];
    long long ran, delayed = 0;
    if (file < 0)
        file = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    ssize_t n = pread(file, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = 0;
    sscanf(text, "%lld %lld", &ran, &delayed);
    return delayed;
}

/* Of all batches: how long nobody could have told that the device was idle, and how long anybody could have told that it
 * was busy. */
static long long apart_ns, seen_ns;

static void round_of_batch(struct worker *w)
{
    unsigned kernel = 0;
    long long began = now_ns(), from, until;
    while (kernel < KERNELS - 1 && strcmp(names[kernel], options.batch_kernel))
        kernel++;
    for (unsigned i = 0; i < options.batch; i++)
        launch(w, kernel, w->streams[0]);
    if (options.poll) {
        int result;
        CHECK(cu.cuEventRecord(w->events[0], w->streams[0]));
        long long asked = from = until = now_ns();
        while ((result = cu.cuEventQuery(w->events[0])) == NOT_READY) {
            until = asked; /* unfinished when it was asked, and since the event was recorded */
            asked = now_ns();
        }
        CHECK(result);
    } else {
        /* Of a wait in which its thread waited for memory nobody can tell; nor of its time without a CPU, or waking up. */
        long long delayed = delayed_ns(), faulted = faults();
        from = now_ns();
        CHECK(cu.cuStreamSynchronize(w->streams[0]));
        until = now_ns();
        until = faults() == faulted ? until - (delayed_ns() - delayed) - WAKE_NS : from;
    }
    apart_ns += now_ns() - began;
    seen_ns += until > from ? until - from : 0;
    usleep(100);
}

static void make_graph(struct worker *w)
{
    void *graph;
    CHECK(cu.cuStreamBeginCapture_v2(w->streams[0], 1));
    for (int i = 0; i < 3; i++)
        launch(w, 1, w->streams[0]);
    CHECK(cu.cuStreamEndCapture(w->streams[0], &graph));
    CHECK(cu.cuGraphInstantiateWithFlags(&w->graph, graph, 0));
}

static void *run(void *argument)
{
    struct worker *w = argument;
    CHECK(cu.cuCtxSetCurrent(w->device->context));
    for (int i = 0; i < 2; i++)
        CHECK(cu.cuStreamCreate(&w->streams[i], i));
    w->streams[2] = w->device->shared;
    w->streams[3] = NULL;
    w->streams[4] = (void *)2;
    for (int i = 0; i < EVENTS; i++)
        CHECK(cu.cuEventCreate(&w->events[i], 0));
    CHECK(cu.cuMemAlloc_v2(&w->memory, COPY_BYTES));
    CHECK(cu.cuMemHostAlloc(&w->pinned, COPY_BYTES, 0));
    make_graph(w);
    for (unsigned round = 0; round < options.rounds; round++)
        if (options.batch)
            round_of_batch(w);
        else
            round_of_work(w);
    return NULL;
}

static void open_devices(void)
{
    void *module;
    CHECK(cu.cuInit(0));
    CHECK(cu.cuDeviceGetCount(&device_count));
    if (device_count > 2)
        device_count = 2;
    for (int i = 0; i < device_count; i++) {
        CHECK(cu.cuDevicePrimaryCtxRetain(&devices[i].context, i));
        CHECK(cu.cuCtxSetCurrent(devices[i].context));
        CHECK(cu.cuStreamCreate(&devices[i].shared, 1));
        CHECK(cu.cuModuleLoadData(&module, image));
        for (int k = 0; k < KERNELS; k++)
            CHECK(cu.cuModuleGetFunction(&devices[i].kernels[k], module, names[k]));
    }
}

static void parse(int count, char **words)
{
    static const struct option long_names[] = {
        {"threads", 1, 0, 't'}, {"rounds", 1, 0, 'r'}, {"seed", 1, 0, 's'}, {"batch", 1, 0, 'b'},
        {"hold", 0, 0, 'h'},    {"poll", 0, 0, 'p'},   {0, 0, 0, 0},
    };
    char *colon;
    for (int c; (c = getopt_long(count, words, "", long_names, NULL)) != -1;)
        switch (c) {
        case 't': options.threads = strtoul(optarg, NULL, 0); break;
        case 'r': options.rounds = strtoul(optarg, NULL, 0); break;
        case 's': options.seed = strtoul(optarg, NULL, 0); break;
        case 'h': options.hold = true; break;
        case 'p': options.poll = true; break;
        case 'b':
            if ((colon = strchr(optarg, ':'))) {
                *colon = 0;
                options.batch_kernel = optarg;
                options.batch = strtoul(colon + 1, NULL, 0);
                break;
            }
            /* fall through */
        default:
            fprintf(stderr, "usage: busy_mix [--threads N] [--rounds N] [--seed N] [--hold] [--batch KERNEL:COUNT [--poll]]\n");
            exit(2);
        }
    if (options.threads > MAX_THREADS)
        options.threads = MAX_THREADS;
}

int main(int count, char **words)
{
    static struct worker workers[MAX_THREADS];
    pthread_t threads[MAX_THREADS];
    parse(count, words);
    driver_open();
    printf("{\"event\":\"ready\",\"pid\":%d}\n", getpid());
    fflush(stdout);
    for (int c; (c = getchar()) != '\n' && c != EOF;)
        ;
    open_devices();
    for (unsigned t = 0; t < options.threads; t++) {
        workers[t] = (struct worker){
            .random = options.seed * 7919 + t, .device = &devices[t % (unsigned)device_count]};
        pthread_create(&threads[t], NULL, run, &workers[t]);
    }
    for (unsigned t = 0; t < options.threads; t++)
        pthread_join(threads[t], NULL);
    for (int i = 0; i < device_count; i++) {
        CHECK(cu.cuCtxSetCurrent(devices[i].context));
        CHECK(cu.cuCtxSynchronize());
    }
    printf("{\"event\":\"phase\",\"apart_s\":%.9f,\"seen_s\":%.9f}\n", apart_ns / 1e9, seen_ns / 1e9);
    fflush(stdout);
    return 0;
}
