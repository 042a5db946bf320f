/* SPDX-License-Identifier: Apache-2.0
 * native_shapes: functions whose frames have every shape that compilers give them. Each situation is a chain of shapes
 * that ends in a launch; the program writes down the return addresses of each, and prints them after it.
 * Usage: native_shapes; reads a line, makes every situation once, prints {"event": "phase", "stacks": {...}}.
 *        native_shapes spin SECONDS: one chain of all shapes that ends in a loop, without a driver, for samples of the CPU;
 *        prints {"event": "spinning", "stack": [...]} first.
 *        native_shapes clock SECONDS, native_shapes calls SECONDS: the same of a loop that asks what time it is, or that
 *        calls a small function of another file.
 *        native_shapes late LIBRARY: as without arguments, but opens the library then, and launches from it for a second.
 *        native_shapes many NUMBER: as without arguments, with so many executable mappings of its own file. */
#define _GNU_SOURCE
#include "trail.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

__thread uint64_t trail[MAX_TRAIL];
__thread int trail_depth;
static __thread const next *chain;
static __thread int position;

typedef int (*driver_launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
                             void **, void **);
static driver_launch launch;
static int (*set_current)(void *);
static void *context, *module, *kernel;
static uint64_t taken[MAX_TRAIL];
static int taken_depth;
static volatile int zero, one = 1;
static volatile uint64_t spins;
static volatile double seconds;

SHAPE void launch_it(void)
{
    ENTER();
    memcpy(taken, trail, sizeof(taken));
    taken_depth = trail_depth;
    if (launch(kernel, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL))
        abort();
    LEAVE();
}

static void print_trail(const uint64_t *addresses, int depth)
{
    for (int i = depth; i-- > 0;)
        printf("%s%llu", i == depth - 1 ? "" : ", ", (unsigned long long)addresses[i]);
}

static void say_where(void)
{
    printf("{\"event\": \"spinning\", \"stack\": [");
    print_trail(trail, trail_depth);
    printf("]}\n");
    fflush(stdout);
}

SHAPE void spin(void)
{
    ENTER();
    say_where();
    for (time_t end = time(NULL) + (time_t)seconds; time(NULL) < end;)
        for (int i = 0; i < 1000000; i++)
            spins++;
    LEAVE();
}

/* Mostly in the vDSO. */
SHAPE void ask_the_clock(void)
{
    struct timespec now;

    ENTER();
    say_where();
    for (time_t end = time(NULL) + (time_t)seconds; time(NULL) < end;)
        for (int i = 0; i < 100000; i++)
            clock_gettime(CLOCK_MONOTONIC, &now);
    LEAVE();
}

#ifdef WITH_LATE
int small(int x);
void from_library(void);

/* Often in the stub that leads to the other file. */
SHAPE void call_small(void)
{
    int x = 0;

    ENTER();
    say_where();
    for (time_t end = time(NULL) + (time_t)seconds; time(NULL) < end;)
        for (int i = 0; i < 1000000; i++)
            x = small(x);
    spins = (uint64_t)x;
    LEAVE();
}
#endif

SHAPE void go_on(void)
{
    ENTER();
    chain[position++]();
    position--;
    LEAVE();
}

SHAPE void plain(void)
{
    ENTER();
    go_on();
    LEAVE();
}

SHAPE void large(void)
{
    volatile char bytes[200000] __attribute__((unused));

    ENTER();
    bytes[zero] = 1;
    go_on();
    bytes[zero] = 2;
    LEAVE();
}

SHAPE void variable(void)
{
    ENTER();
    volatile char bytes[zero + 100];
    bytes[zero] = 1;
    go_on();
    bytes[zero] = 2;
    LEAVE();
}

SHAPE void realigned(void)
{
    ENTER();
    volatile char bytes[100] __attribute__((aligned(64)));
    bytes[zero] = 1;
    go_on();
    bytes[zero] = 2;
    LEAVE();
}

SHAPE void realigned_and_variable(void)
{
    ENTER();
    volatile char bytes[100] __attribute__((aligned(128)));
    volatile char more[zero + 50];
    bytes[zero] = more[zero] = 1;
    go_on();
    bytes[zero] = more[zero] = 2;
    LEAVE();
}

/* Rules are remembered before the epilogue in the middle, and restored behind it. */
SHAPE void returns_early(void)
{
    uint64_t a = spins, b = seconds > 0, c = zero;

    ENTER();
    if (zero) {
        LEAVE();
        return;
    }
    go_on();
    spins = a + b * c;
    LEAVE();
}

SHAPE int takes_many(int a, int b, int c, int d, int e, int f, int g, int h, int i, int j)
{
    ENTER();
    go_on();
    LEAVE();
    return a + b + c + d + e + f + g + h + i + j;
}

SHAPE void gives_many(void)
{
    ENTER();
    if (takes_many(1, 2, 3, 4, 5, 6, 7, 8, zero, one) != 37)
        abort();
    LEAVE();
}

/* The compiler moves what is unlikely into a part of its own, elsewhere. */
__attribute__((cold, noinline)) static void unlikely(void)
{
    ENTER();
    go_on();
    LEAVE();
}

SHAPE int split(void)
{
    int n = zero;

    ENTER();
    if (__builtin_expect(one, 0)) {
        unlikely();
        n += one;
    }
    LEAVE();
    return n + zero;
}

static void into_split(void)
{
    ENTER();
    if (split() != 1)
        abort();
    LEAVE();
}

/* The call is the last instruction: its return address is the next function's first. */
static __thread jmp_buf back;

__attribute__((noreturn, noinline, noclone)) void never_returns(void)
{
    ENTER();
    go_on();
    LEAVE();
    longjmp(back, 1);
}

__attribute__((noreturn, noinline, noclone)) void ends_with_a_call(void)
{
    ENTER();
    never_returns();
}

SHAPE void calls_what_never_returns(void)
{
    int depth, here;

    ENTER();
    depth = trail_depth;
    here = position;
    if (!setjmp(back))
        ends_with_a_call();
    trail_depth = depth;
    position = here;
    LEAVE();
}

static int compare(const void *a, const void *b)
{
    ENTER();
    if (one) {
        one = 0;
        go_on();
        one = 1;
    }
    LEAVE();
    return *(const char *)a - *(const char *)b;
}

SHAPE void through_libc(void)
{
    char bytes[2] = {2, 1};

    ENTER();
    CALL_OUTSIDE();
    qsort(bytes, 2, 1, compare);
    CAME_BACK();
    LEAVE();
}

static void *thread_main(void *of)
{
    const next *const *arguments = of;

    chain = *arguments;
    position = (int)(intptr_t)arguments[1];
    if (set_current)
        set_current(context);
    ENTER();
    go_on();
    LEAVE();
    return NULL;
}

SHAPE void in_thread(void)
{
    const void *arguments[2] = {chain, (void *)(intptr_t)position};
    pthread_t thread;

    ENTER();
    if (pthread_create(&thread, NULL, thread_main, arguments) || pthread_join(thread, NULL))
        abort();
    LEAVE();
}

/* The frame that was interrupted stands where it stood: at the faulting instruction itself. */
static void on_fault(int number, siginfo_t *info, void *context)
{
    ucontext_t *interrupted = context;

    trail[trail_depth++] = interrupted->uc_mcontext.gregs[REG_RIP];
    ENTER();
    go_on();
    interrupted->uc_mcontext.gregs[REG_RIP] += 2;
    LEAVE();
    trail_depth--;
}

static void fault(int flags)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER | flags};

    sigaction(SIGILL, &action, NULL);
}

SHAPE void faults(void)
{
    ENTER();
    fault(0);
    __asm__ volatile("ud2");
    LEAVE();
}

SHAPE void faults_onto_another_stack(void)
{
    static __thread char stack[1 << 18];
    stack_t other = {.ss_sp = stack, .ss_size = sizeof(stack)}, before;

    ENTER();
    sigaltstack(&other, &before);
    fault(SA_ONSTACK);
    __asm__ volatile("ud2");
    sigaltstack(&before, NULL);
    LEAVE();
}

#ifdef __GLIBC__
static ucontext_t outside, inside;

static void coroutine(void)
{
    ENTER();
    go_on();
    LEAVE();
}

SHAPE void in_coroutine(void)
{
    static char stack[1 << 18];

    ENTER();
    getcontext(&inside);
    inside.uc_stack.ss_sp = stack;
    inside.uc_stack.ss_size = sizeof(stack);
    inside.uc_link = &outside;
    makecontext(&inside, coroutine, 0);
    swapcontext(&outside, &inside);
    LEAVE();
}
#endif

#ifdef WITH_LATE
int late(void);

SHAPE void binds_late(void)
{
    ENTER();
    CALL_OUTSIDE();
    if (late() != 7)
        abort();
    CAME_BACK();
    LEAVE();
}
#endif

#ifdef WITH_CXX
void catches(void), cleans_up(void), throws_through(void);
#endif

static const struct {
    const char *name;
    next links[16];
} situations[] = {
#define SITUATION(name, ...) {#name, {__VA_ARGS__, launch_it}},
    SITUATION(plain, plain) SITUATION(large, large) SITUATION(variable, variable) SITUATION(realigned, realigned)
    SITUATION(realigned_and_variable, realigned_and_variable) SITUATION(returns_early, returns_early)
    SITUATION(gives_many, gives_many) SITUATION(split, into_split) SITUATION(noreturn, calls_what_never_returns)
    SITUATION(through_libc, through_libc) SITUATION(thread, in_thread) SITUATION(signal, faults)
    SITUATION(signal_on_other_stack, faults_onto_another_stack) SITUATION(signal_in_signal, faults, plain, faults)
#ifdef __GLIBC__
    SITUATION(coroutine, in_coroutine, plain)
#endif
#ifdef WITH_LATE
    SITUATION(late_binding, binds_late)
#endif
#ifdef WITH_CXX
    SITUATION(catches, catches) SITUATION(cleans_up, cleans_up) SITUATION(throws_through, throws_through)
#endif
    SITUATION(all, large, realigned, variable, gives_many, returns_early, faults, realigned_and_variable, into_split,
              through_libc, calls_what_never_returns, plain)
};
enum { SITUATIONS = sizeof(situations) / sizeof(*situations) };

static const next clock_chain[] = {plain, ask_the_clock};
#ifdef WITH_LATE
static const next calls_chain[] = {plain, call_small};
#endif
static const next everything[] = {large, realigned, variable, gives_many, returns_early, faults,
                                  realigned_and_variable, into_split, through_libc, plain, spin};

static void *symbol(void *library, const char *name)
{
    void *found = dlsym(library, name);

    if (!found)
        abort();
    return found;
}

static int (*function_of)(void **, void *, const char *);

static void open_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    set_current = (int (*)(void *))symbol(library, "cuCtxSetCurrent");
    if (((int (*)(unsigned))symbol(library, "cuInit"))(0) ||
        ((int (*)(void **, int))symbol(library, "cuDevicePrimaryCtxRetain"))(&context, 0) || set_current(context) ||
        ((int (*)(void **, const void *))symbol(library, "cuModuleLoadData"))(&module, ".version 8.0"))
        abort();
    launch = (driver_launch)symbol(library, "cuLaunchKernel");
    function_of = (int (*)(void **, void *, const char *))symbol(library, "cuModuleGetFunction");
    printf("{\"event\": \"ready\"}\n");
    fflush(stdout);
}

static int printed;

/* Launches a kernel of that name at the end of the chain, and prints where. */
SHAPE void take(const char *name, const next *links)
{
    ENTER();
    chain = links;
    position = 0;
    if (function_of(&kernel, module, name)) /* here, so that its name is seen */
        abort();
    go_on();
    printf("%s\"%s\": [", printed++ ? ", " : "", name);
    print_trail(taken, taken_depth);
    printf("]");
    LEAVE();
}

SHAPE void make_situations(void)
{
    ENTER();
    for (int i = 0; i < SITUATIONS; i++)
        take(situations[i].name, situations[i].links);
    LEAVE();
}

/* From the very moment on at which the library is mapped. */
SHAPE void launch_from(const char *path)
{
    next links[] = {NULL, launch_it};
    char name[16];

    ENTER();
    for (int i = 0; i < 100; i++) {
        if (!i)
            links[0] = (next)symbol(dlopen(path, RTLD_NOW), "from_library");
        snprintf(name, sizeof(name), "late_%d", i);
        take(name, links);
        usleep(10000);
    }
    LEAVE();
}

/* Neighbours show the same part of the file, so that they do not become one. */
static void map_many(int number, const char *path)
{
    int file = open(path, O_RDONLY);

    for (int i = 0; i < number; i++)
        if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0) == MAP_FAILED)
            abort();
}

int main(int argc, char **argv)
{
    const char *what = argc > 2 ? argv[1] : "", *of = argc > 2 ? argv[2] : "";
    const next *loop = !strcmp(what, "spin") ? everything : !strcmp(what, "clock") ? clock_chain : NULL;

    ENTER();
#ifdef WITH_LATE
    if (!strcmp(what, "calls"))
        loop = calls_chain;
#endif
    if (loop) {
        seconds = atof(of);
        chain = loop;
        go_on();
        return 0;
    }
    if (!strcmp(what, "many"))
        map_many(atoi(of), argv[0]);
    open_driver();
    while (getchar() == '\n') {
        printf("{\"event\": \"phase\", \"stacks\": {");
        printed = 0;
        if (!strcmp(what, "late"))
            launch_from(of);
        else
            make_situations();
        printf("}}\n");
        fflush(stdout);
    }
    LEAVE();
    return 0;
}
