// SPDX-License-Identifier: Apache-2.0
/* threads blocking|relay|unseen: a server without Python. Its requests `/work/ID/TIMES/HOW` launch so many kernels, with a grid of ID.
 *
 * `blocking`: a thread for each connection reads and works. `relay`: threads wait for connections with epoll, and whoever is
 * free reads a request, or works for one that another thread has read, as runtimes of Go, Rust and Java do it. `unseen`: the
 * same, with system calls that no library makes. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WORKERS 4
#define TASKS 1024

static int (*set_context)(void *);
static int (*launch_kernel)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                            void **);
static void *context, *kernel;
static atomic_long launched;

static const char IMAGE[] = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry serve()\n{ ret; }\n";

static void start(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *module;
    int (*init)(unsigned) = dlsym(driver, "cuInit");
    int (*retain)(void **, int) = dlsym(driver, "cuDevicePrimaryCtxRetain");
    int (*load)(void **, const void *) = dlsym(driver, "cuModuleLoadData");
    int (*get)(void **, void *, const char *) = dlsym(driver, "cuModuleGetFunction");

    set_context = dlsym(driver, "cuCtxSetCurrent");
    launch_kernel = dlsym(driver, "cuLaunchKernel");
    if (init(0) || retain(&context, 0) || set_context(context) || load(&module, IMAGE) || get(&kernel, module, "serve"))
        abort();
}

/* Reads one request; 0 at the end. */
static int receive(int connection, unsigned *id, unsigned *times)
{
    static __thread char head[4096];
    size_t size = 0;

    while (size < sizeof(head) - 1) {
        ssize_t more = recv(connection, head + size, sizeof(head) - 1 - size, 0);
        if (more <= 0)
            return 0;
        size += more;
        head[size] = 0;
        if (strstr(head, "\r\n\r\n"))
            return sscanf(head, "GET /work/%u/%u/", id, times) == 2;
    }
    return 0;
}

static void answer(int connection, unsigned id, unsigned times)
{
    static const char DONE[] = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone";

    set_context(context);
    for (unsigned n = 0; n < times; n++) {
        launch_kernel(kernel, id, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
        atomic_fetch_add(&launched, 1);
    }
    if (send(connection, DONE, sizeof(DONE) - 1, MSG_NOSIGNAL) < 0)
        close(connection);
}

static void *serve(void *argument)
{
    int connection = (long)argument;
    unsigned id, times;

    while (receive(connection, &id, &times))
        answer(connection, id, times);
    close(connection);
    return NULL;
}

static struct task {
    int connection;
    unsigned id, times; /* 0: it is to be read */
} tasks[TASKS];
static unsigned first, last;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
static int waiting, is_unseen;

static void put(struct task task)
{
    pthread_mutex_lock(&lock);
    tasks[last++ % TASKS] = task;
    pthread_cond_signal(&more);
    pthread_mutex_unlock(&lock);
}

static void *work(void *argument)
{
    (void)argument;
    for (;;) {
        pthread_mutex_lock(&lock);
        while (first == last)
            pthread_cond_wait(&more, &lock);
        struct task task = tasks[first++ % TASKS];
        pthread_mutex_unlock(&lock);
        if (task.id) {
            answer(task.connection, task.id, task.times);
            struct epoll_event again = { EPOLLIN | EPOLLONESHOT, { .fd = task.connection } };
            epoll_ctl(waiting, EPOLL_CTL_MOD, task.connection, &again);
        } else if (receive(task.connection, &task.id, &task.times)) {
            put(task);
        } else {
            close(task.connection);
        }
    }
}

static int wait_for(struct epoll_event *events, int most)
{
    return is_unseen ? (int)syscall(SYS_epoll_wait, waiting, events, most, -1) : epoll_wait(waiting, events, most, -1);
}

static void relay(int listening)
{
    struct epoll_event events[64], heard = { EPOLLIN, { .fd = listening } };
    pthread_t thread;

    waiting = epoll_create1(0);
    epoll_ctl(waiting, EPOLL_CTL_ADD, listening, &heard);
    for (int n = 0; n < WORKERS; n++)
        pthread_create(&thread, NULL, work, NULL);
    for (;;) {
        int count = wait_for(events, 64);
        for (int n = 0; n < count; n++) {
            if (events[n].data.fd != listening) {
                put((struct task){ events[n].data.fd, 0, 0 });
                continue;
            }
            int connection = accept(listening, NULL, NULL);
            struct epoll_event made = { EPOLLIN | EPOLLONESHOT, { .fd = connection } };
            epoll_ctl(waiting, EPOLL_CTL_ADD, connection, &made);
        }
    }
}

static void end(int number)
{
    char text[64];
    (void)number;
    int size = snprintf(text, sizeof(text), "{\"event\": \"end\", \"launches\": %ld}\n", (long)launched);
    if (write(1, text, size) < 0)
        _exit(1);
    _exit(0);
}

int main(int argc, char **argv)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof(address);
    int listening = socket(AF_INET, SOCK_STREAM, 0);
    pthread_t thread;

    start();
    signal(SIGTERM, end);
    bind(listening, (struct sockaddr *)&address, size);
    listen(listening, 64);
    getsockname(listening, (struct sockaddr *)&address, &size);
    printf("{\"event\": \"ready\", \"port\": %d}\n", ntohs(address.sin_port));
    fflush(stdout);
    is_unseen = argc > 1 && !strcmp(argv[1], "unseen");
    if (argc > 1 && strcmp(argv[1], "blocking"))
        relay(listening);
    for (;;) {
        long connection = accept(listening, NULL, NULL);
        pthread_create(&thread, NULL, serve, (void *)connection);
        pthread_detach(thread);
    }
}
