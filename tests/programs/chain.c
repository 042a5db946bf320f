// SPDX-License-Identifier: Apache-2.0
/* chain: who counts what, when one process runs several programs, and one number several processes?
 *
 *   chain LAUNCHES                     launches so often, and ends
 *   chain LAUNCHES exec PROGRAM ...    and becomes the next program, given with its arguments
 *   chain LAUNCHES spawn PROGRAM ...   has posix_spawn start the next one before, and waits for it afterwards
 *   chain LAUNCHES thread PROGRAM ...  has another of its threads become the next one
 *   chain PID as PROGRAM ...           starts the next one under this number, and waits for it; launches nothing */
#define _GNU_SOURCE
#include "liar.h"
#include <linux/sched.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void launch(unsigned long n)
{
    for (unsigned long i = 0; i < n; i++)
        cuLaunchKernel((void *)0x7f0000001000, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
}

static void *become(void *arguments)
{
    execv(*(char **)arguments, arguments);
    perror("exec");
    exit(1);
}

/* One child after another may have the same number, if the one before is gone. */
static int run_as(pid_t number, char **arguments)
{
    struct clone_args how = {.exit_signal = SIGCHLD, .set_tid = (uintptr_t)&number, .set_tid_size = 1};
    pid_t child = (pid_t)syscall(SYS_clone3, &how, sizeof how);
    int status;

    if (child < 0) {
        perror("clone3");
        return 77;
    }
    if (!child)
        become(arguments);
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int main(int count, char **arguments)
{
    const char *how = count > 3 ? arguments[2] : "";
    char **next = arguments + 3;
    unsigned long n = count > 1 ? strtoul(arguments[1], NULL, 0) : 0;
    pthread_t thread;
    pid_t child = 0;

    if (!strcmp(how, "as"))
        return run_as((pid_t)n, next);
    cuInit(0);
    if (!strcmp(how, "spawn") && posix_spawn(&child, *next, NULL, NULL, next, environ))
        return 1;
    launch(n);
    if (!strcmp(how, "exec"))
        become(next);
    if (!strcmp(how, "thread") && !pthread_create(&thread, NULL, become, next))
        pause();
    return child && waitpid(child, NULL, 0) != child;
}
