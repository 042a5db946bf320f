// SPDX-License-Identifier: Apache-2.0
#include "driver.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

struct driver cu;

static void *find(void *library, const char *name)
{
    void *address = dlsym(library, name);
    if (!address) {
        fprintf(stderr, "libcuda.so.1 has no %s\n", name);
        exit(2);
    }
    return address;
}

void driver_open(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
#define X(name, arguments) cu.name = (int(*) arguments)find(library, #name);
    DRIVER_FUNCTIONS(X)
#undef X
}

void driver_check(int result, const char *call)
{
    if (result == 0)
        return;
    fprintf(stderr, "%s failed: %d\n", call, result);
    exit(1);
}
