// SPDX-License-Identifier: Apache-2.0
/* late_kernels: what does a program launch that loads its own kernels, as JIT compilers do, before anyone looks?
 *
 * One module of PTX with several kernels and some with one each; every kernel is launched in every phase, each as often
 * as no other. With "one", only the first is launched; with "replace" the first module is unloaded before the third phase, and another one loaded, whose
 * kernels may get the same handles.
 *
 *   late_kernels phases kernels [one | replace] */
#include "driver.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 64, ALONE = 2 };

static const char head[] = ".version 8.0\n.target sm_90\n.address_size 64\n";
static char text[MOST * 96 + sizeof(head)];

static void *load(const char *prefix, int first, int count, void **functions)
{
    void *module;
    char name[64], *end = text + sprintf(text, "%s", head);

    for (int k = first; k < first + count; k++)
        end += sprintf(end, ".visible .entry %s_%d(.param .u64 %s_%d_param_0)\n{ ret; }\n", prefix, k, prefix, k);
    CHECK(cu.cuModuleLoadData(&module, text));
    for (int k = first; k < first + count; k++) {
        snprintf(name, sizeof(name), "%s_%d", prefix, k);
        CHECK(cu.cuModuleGetFunction(&functions[k], module, name));
    }
    memset(text, 0, sizeof(text));
    return module;
}

static void launch(void **functions, int count)
{
    void *parameter = NULL, *parameters[] = {&parameter};

    for (int k = 0; k < count; k++)
        for (int i = 0; i <= k; i++)
            CHECK(cu.cuLaunchKernel(functions[k], 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL));
}

int main(int count, char **arguments)
{
    int phases = count > 1 ? atoi(arguments[1]) : 1, kernels = count > 2 ? atoi(arguments[2]) : 8;
    void *context, *module, *functions[MOST] = {0};
    char line[16];

    if (kernels < 1 || kernels > MOST - ALONE)
        return 2;
    driver_open();
    CHECK(cu.cuInit(0));
    CHECK(cu.cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cu.cuCtxSetCurrent(context));
    module = load("together", 0, kernels, functions);
    for (int k = kernels; k < kernels + ALONE; k++)
        load("alone", k, 1, functions);
    for (int phase = 0; phase < phases; phase++) {
        printf("{\"event\": \"ready\", \"pid\": %d, \"phase\": %d}\n", getpid(), phase);
        fflush(stdout);
        if (!fgets(line, sizeof(line), stdin))
            return 1;
        if (count > 3 && !strcmp(arguments[3], "replace") && phase == 2) {
            CHECK(cu.cuModuleUnload(module));
            load("replaced", 0, kernels, functions);
        }
        launch(functions, count > 3 && !strcmp(arguments[3], "one") ? 1 : kernels + ALONE);
        CHECK(cu.cuCtxSynchronize());
        printf("{\"event\": \"phase\", \"pid\": %d, \"phase\": %d}\n", getpid(), phase);
        fflush(stdout);
    }
    return 0;
}
