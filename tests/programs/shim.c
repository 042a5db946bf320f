// SPDX-License-Identifier: Apache-2.0
/* shim: a library that exports what a CUDA driver exports, and hands the calls on to the driver.
 *
 * SHIM_THREAD=1     launches are handed on by another thread
 * SHIM_REFUSES=N    of every N launches one is refused, and so is every one of more than 64 MiB of memory
 * SHIM_TWICE=1      every launch is handed on twice
 * SHIM_PROCS=1      the driver's functions are found by its cuGetProcAddress
 *
 * With REAL, a path, it takes the driver's place and opens that one; without it, it is preloaded before the driver. */
#define _GNU_SOURCE
#include "driver.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OUT_OF_MEMORY = 2, NOT_PERMITTED = 800 };

static void *from_driver(const char *name)
{
    static int (*find)(const char *, void **, int, uint64_t, int *);
    void *library = RTLD_NEXT, *found = NULL;
    int status;

#ifdef REAL
    library = dlopen(REAL, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
#endif
    if (getenv("SHIM_PROCS")) {
        if (!find)
            find = (int (*)(const char *, void **, int, uint64_t, int *))dlsym(library, "cuGetProcAddress_v2");
        /* Who asks for a name gets its newest version. */
        char plain[64];
        snprintf(plain, sizeof(plain), "%.*s", (int)strcspn(name, "_"), name);
        if (!find(plain, &found, 12000, 0, &status))
            return found;
    }
    return dlsym(library, name);
}

#define FORWARD(name, declared, passed)                                                                                \
    int name declared                                                                                                  \
    {                                                                                                                  \
        static int(*next) declared;                                                                                    \
        if (!next)                                                                                                     \
            next = (int(*) declared)from_driver(#name);                                                                \
        return next passed;                                                                                            \
    }

FORWARD(cuInit, (uint flags), (flags))
FORWARD(cuDeviceGet, (int *device, int ordinal), (device, ordinal))
FORWARD(cuDevicePrimaryCtxRetain, (void **context, int device), (context, device))
FORWARD(cuDevicePrimaryCtxRelease_v2, (int device), (device))
FORWARD(cuCtxSetCurrent, (void *context), (context))
FORWARD(cuCtxSynchronize, (void), ())
FORWARD(cuModuleLoadData, (void **module, const void *image), (module, image))
FORWARD(cuModuleGetFunction, (void **function, void *module, const char *name), (function, module, name))
FORWARD(cuMemFree_v2, (devptr pointer), (pointer))
FORWARD(cuMemcpyHtoD_v2, (devptr to, const void *from, size_t bytes), (to, from, bytes))
FORWARD(cuMemcpyDtoH_v2, (void *to, devptr from, size_t bytes), (to, from, bytes))

int cuMemAlloc_v2(devptr *pointer, size_t bytes)
{
    static int (*next)(devptr *, size_t);

    if (!next)
        next = (int (*)(devptr *, size_t))from_driver("cuMemAlloc_v2");
    return getenv("SHIM_REFUSES") && bytes > 64 << 20 ? OUT_OF_MEMORY : next(pointer, bytes);
}

typedef int (*launch_function)(LAUNCH_ARGUMENTS, void **extra);

static launch_function next_launch;

struct launch {
    void *function, *stream, **parameters, **extra;
    uint grid[3], block[3], shared_bytes;
    int result;
};

static int hand_on(struct launch *l)
{
    return next_launch(l->function, l->grid[0], l->grid[1], l->grid[2], l->block[0], l->block[1], l->block[2],
                       l->shared_bytes, l->stream, l->parameters, l->extra);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct launch *waiting;
static void *context_of_threads;

static void *work(void *unused)
{
    int (*set_current)(void *) = (int (*)(void *))from_driver("cuCtxSetCurrent");
    struct launch *l;

    (void)unused;
    set_current(context_of_threads);
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!waiting)
            pthread_cond_wait(&changed, &lock);
        l = waiting;
        l->result = hand_on(l);
        waiting = NULL;
        pthread_cond_broadcast(&changed);
    }
    return NULL;
}

static int hand_to_thread(struct launch *l)
{
    static int is_started;
    pthread_t thread;

    pthread_mutex_lock(&lock);
    if (!is_started) {
        int (*current)(void **) = (int (*)(void **))from_driver("cuCtxGetCurrent");
        current(&context_of_threads);
        is_started = !pthread_create(&thread, NULL, work, NULL);
    }
    waiting = l;
    pthread_cond_broadcast(&changed);
    while (waiting == l)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return l->result;
}

int cuLaunchKernel(LAUNCH_ARGUMENTS, void **extra)
{
    struct launch l = {function, stream, parameters, extra, {gx, gy, gz}, {bx, by, bz}, shared_bytes, 0};
    const char *refuses = getenv("SHIM_REFUSES");
    static unsigned long calls;

    if (!next_launch)
        next_launch = (launch_function)from_driver("cuLaunchKernel");
    if (refuses && calls++ % atoi(refuses) == 0)
        return NOT_PERMITTED;
    if (getenv("SHIM_TWICE"))
        hand_on(&l);
    return getenv("SHIM_THREAD") ? hand_to_thread(&l) : hand_on(&l);
}
