// SPDX-License-Identifier: Apache-2.0
/* linked: a program that is linked against the driver, as whatever is preloaded sees it.
 *
 * Prints "ready", waits for a line on standard input, launches, copies, allocates and frees, and prints "phase" with how many
 * launches were accepted; what was executed is the mock driver's truth to tell.
 *
 *   linked LAUNCHES */
#include "driver.h"
#include <stdio.h>
#include <stdlib.h>

int cuInit(uint flags);
int cuDeviceGet(int *device, int ordinal);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxSetCurrent(void *context);
int cuCtxSynchronize(void);
int cuModuleLoadData(void **module, const void *image);
int cuModuleGetFunction(void **function, void *module, const char *name);
int cuMemAlloc_v2(devptr *pointer, size_t bytes);
int cuMemFree_v2(devptr pointer);
int cuMemcpyHtoD_v2(devptr to, const void *from, size_t bytes);
int cuMemcpyDtoH_v2(void *to, devptr from, size_t bytes);
int cuLaunchKernel(LAUNCH_ARGUMENTS, void **extra);

enum { BYTES = 10 << 20, TOO_MUCH = 65 << 20, COPIED = 4096 };

static void check(int result, const char *what)
{
    if (!result)
        return;
    fprintf(stderr, "%s: %d\n", what, result);
    exit(2);
}

int main(int count, char **arguments)
{
    int launches = count > 1 ? atoi(arguments[1]) : 100, accepted = 0, device;
    void *context, *module, *function, *held = calloc(1, COPIED);
    devptr memory, more = 0;

    check(cuInit(0), "cuInit");
    check(cuDeviceGet(&device, 0), "cuDeviceGet");
    check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    check(cuModuleLoadData(&module, "a module"), "cuModuleLoadData");
    check(cuModuleGetFunction(&function, module, "a_kernel"), "cuModuleGetFunction");
    puts("{\"event\": \"ready\"}");
    fflush(stdout);
    getchar();
    check(cuMemAlloc_v2(&memory, BYTES), "cuMemAlloc");
    if (!cuMemAlloc_v2(&more, TOO_MUCH))
        check(cuMemFree_v2(more), "cuMemFree");
    for (int i = 0; i < launches; i++)
        accepted += !cuLaunchKernel(function, 1 + i % 7, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
    for (int i = 0; i < 7; i++)
        check(cuMemcpyHtoD_v2(memory, held, COPIED), "cuMemcpyHtoD");
    check(cuMemcpyDtoH_v2(held, memory, COPIED), "cuMemcpyDtoH");
    check(cuCtxSynchronize(), "cuCtxSynchronize");
    check(cuMemFree_v2(memory), "cuMemFree");
    printf("{\"event\": \"phase\", \"accepted\": %d}\n", accepted);
    fflush(stdout);
    return 0;
}
