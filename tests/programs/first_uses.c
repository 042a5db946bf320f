// SPDX-License-Identifier: Apache-2.0
/* first_uses: what if several threads use the same thing for the first time, all at once?
 *
 * THREADS threads meet before every round, and then each captures the round's kernel, launches it, and records the
 * round's event. "ready" before the driver is used, "phase" when all is done. */
#include "driver.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 4, ROUNDS = 200, ENTRY_BYTES = 64 };

static char image[128 + ROUNDS * ENTRY_BYTES];
static void *context, *kernels[ROUNDS], *events[ROUNDS];
static pthread_barrier_t round_begins;

static void launch(void *kernel, void *stream)
{
    CHECK(cu.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
}

static void *run(void *unused)
{
    void *stream, *graph;
    CHECK(cu.cuCtxSetCurrent(context));
    CHECK(cu.cuStreamCreate(&stream, 1));
    for (int i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(&round_begins);
        CHECK(cu.cuStreamBeginCapture_v2(stream, 1));
        launch(kernels[i], stream);
        CHECK(cu.cuStreamEndCapture(stream, &graph));
        launch(kernels[i], stream);
        CHECK(cu.cuEventRecord(events[i], stream));
        CHECK(cu.cuStreamSynchronize(stream));
    }
    return unused;
}

int main(void)
{
    pthread_t threads[THREADS];
    char *end = image + sprintf(image, ".version 8.0\n.target sm_90\n.address_size 64\n");
    void *module;
    char name[16];
    driver_open();
    printf("{\"event\":\"ready\",\"pid\":%d}\n", getpid());
    fflush(stdout);
    for (int c; (c = getchar()) != '\n' && c != EOF;)
        ;
    CHECK(cu.cuInit(0));
    CHECK(cu.cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cu.cuCtxSetCurrent(context));
    for (int i = 0; i < ROUNDS; i++)
        end += sprintf(end, ".visible .entry first_%d()\n{ ret; }\n", i);
    CHECK(cu.cuModuleLoadData(&module, image));
    for (int i = 0; i < ROUNDS; i++) {
        snprintf(name, sizeof name, "first_%d", i);
        CHECK(cu.cuModuleGetFunction(&kernels[i], module, name));
        CHECK(cu.cuEventCreate(&events[i], 0));
    }
    pthread_barrier_init(&round_begins, NULL, THREADS);
    for (int t = 0; t < THREADS; t++)
        pthread_create(&threads[t], NULL, run, NULL);
    for (int t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    printf("{\"event\":\"phase\"}\n");
    fflush(stdout);
    return 0;
}
