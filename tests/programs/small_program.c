// SPDX-License-Identifier: Apache-2.0
/* small_program DRIVER LAUNCHES [late]: loads a driver, and makes that many launches when it is told to by a line; when
 * it is late, it waits for a line before it loads the driver too. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef int launch_function(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
                            void **, void **);

static void say(const char *event)
{
    printf("{\"event\": \"%s\"}\n", event);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    if (argc == 4) {
        say("waiting");
        getchar();
    }
    void *driver = argc >= 3 ? dlopen(argv[1], RTLD_NOW) : NULL;
    launch_function *launch = driver ? (launch_function *)dlsym(driver, "cuLaunchKernel") : NULL;
    if (!launch) {
        fprintf(stderr, "usage: small_program DRIVER LAUNCHES [late]: %s\n", dlerror());
        return 2;
    }
    say("ready");
    getchar();
    for (long left = atol(argv[2]); left > 0; left--)
        launch(&left, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
    say("phase");
    /* Until the next line the process can still be asked. */
    getchar();
    return 0;
}
