// SPDX-License-Identifier: Apache-2.0
/* callbacks THREADS ROUNDS [late | static | everything]: which callback makes which launches?
 *
 * Says "ready" and waits for a line; runs ROUNDS of every situation in each thread; says at the end what each callback did,
 * and how many launches were nobody's. With `late` it says "inside" amid a callback first, and waits for a line there; with
 * `everything` callbacks of each kind do all that can be told of them, once a line. */
#include "rclcpp.h"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <pthread.h>
#include <stdexcept>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace rclcpp;

static const char image[] = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry work()\n{ ret; }\n";

#define DRIVER(X)                                                                                                      \
    X(cuInit, (unsigned flags))                                                                                        \
    X(cuDevicePrimaryCtxRetain, (void **context, int device))                                                          \
    X(cuCtxSetCurrent, (void *context))                                                                                \
    X(cuCtxSynchronize, (void))                                                                                        \
    X(cuModuleLoadData, (void **module, const void *image))                                                            \
    X(cuModuleGetFunction, (void **function, void *module, const char *name))                                          \
    X(cuMemAlloc_v2, (uint64_t *pointer, size_t bytes))                                                                \
    X(cuMemcpyHtoD_v2, (uint64_t to, const void *from, size_t bytes))                                                  \
    X(cuMemcpyDtoH_v2, (void *to, uint64_t from, size_t bytes))                                                        \
    X(cuMemcpyDtoD_v2, (uint64_t to, uint64_t from, size_t bytes))                                                     \
    X(cuGraphCreate, (void **graph, unsigned flags))                                                                   \
    X(cuGraphInstantiateWithFlags, (void **executable, void *graph, unsigned long long flags))                         \
    X(cuGraphLaunch, (void *executable, void *stream))                                                                 \
    X(cuLaunchKernel, (void *function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **))

#define DECLARE(name, arguments) static int(*name) arguments;
DRIVER(DECLARE)

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        if (int failed = (call)) {                                                                                     \
            fprintf(stderr, "%s: %d\n", #call, failed);                                                                \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static void *context, *kernel, *graph;
static uint64_t memory;

static void load()
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver)
        exit((fprintf(stderr, "%s\n", dlerror()), 1));
#define FIND(name, arguments) CHECK(!(name = reinterpret_cast<int(*) arguments>(dlsym(driver, #name))));
    DRIVER(FIND)
    void *module, *made;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoadData(&module, image));
    CHECK(cuModuleGetFunction(&kernel, module, "work"));
    CHECK(cuMemAlloc_v2(&memory, 1 << 20));
    CHECK(cuGraphCreate(&made, 0));
    CHECK(cuGraphInstantiateWithFlags(&graph, made, 0));
}

/* What a callback did, as it says itself. */
struct Did {
    const char *kind;
    std::string name;
    int launches;
    bool has_thrown;
};
static std::mutex lock;
static std::vector<Did> all;
static int nobodys, beyond;

static void launch(int times)
{
    CHECK(cuCtxSetCurrent(context));
    for (int i = 0; i < times; i++)
        CHECK(cuLaunchKernel(kernel, times, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
}

static void launch_for_nobody(int times)
{
    launch(times);
    std::lock_guard<std::mutex> locked(lock);
    nobodys += times;
}

static void did(const char *kind, const std::string &name, int launches, bool has_thrown = false)
{
    std::lock_guard<std::mutex> locked(lock);
    all.push_back({kind, name, launches, has_thrown});
}

template <class Entity> AnyExecutable due(std::shared_ptr<Entity> AnyExecutable::*which, std::shared_ptr<Entity> entity)
{
    AnyExecutable made;
    made.*which = std::move(entity);
    made.callback_group = std::make_shared<CallbackGroup>();
    return made;
}

static void publish(const std::string &name, int message)
{
    CHECK(rmw_publish(standin_entity(name.c_str()), &message, nullptr));
}

static AnyExecutable message_to(const std::string &name, std::function<void(int)> callback, int message = 1)
{
    publish(name, message);
    return due(&AnyExecutable::subscription, std::make_shared<SubscriptionBase>(name, std::move(callback)));
}

static AnyExecutable timer(std::function<void()> callback)
{
    return due(&AnyExecutable::timer, std::make_shared<TimerBase>(std::move(callback)));
}

/* Deeper in the stack than a callback's frame was, over what that has left there. */
__attribute__((noinline)) static void work_deep_in_the_stack(int times)
{
    volatile char room[16384];
    asm volatile("" : : "r"(room) : "memory");
    launch_for_nobody(times);
    asm volatile("" : : "r"(room) : "memory");
}

/* Runs what is due, and goes on when a callback throws. */
static void spin(Executor &executor, bool is_static)
{
    for (;;) {
        try {
            is_static ? executor.spin_some_static() : executor.spin_some();
            return;
        } catch (const std::runtime_error &) {
            launch_for_nobody(3);
            work_deep_in_the_stack(2);
        }
    }
}

static void nest(Executor &own, int level, int deepest)
{
    own.add(timer([&own, level, deepest] {
        launch(level);
        if (level < deepest) {
            nest(own, level + 1, deepest);
            own.spin_some();
        }
        launch(1);
        if (level > 8) { /* CALLBACKS_DEEP */
            std::lock_guard<std::mutex> locked(lock);
            beyond += level + 1;
        } else {
            did("timer", "", level + 1);
        }
    }));
}

static void one_round(int thread, int round, bool is_static)
{
    Executor executor;
    std::string id = "/t" + std::to_string(thread) + "/r" + std::to_string(round);
    int times = (thread * 7 + round) % 11 + 1;

    for (int i = 0; i < 3; i++)
        executor.add(message_to(id + "/plain", [=](int message) {
            launch(times + message);
            CHECK(cuMemcpyHtoD_v2(memory, &message, sizeof message));
            did("subscription", id + "/plain", times + message);
        }, i));
    executor.add(message_to(id + "/idle", [=](int) { did("subscription", id + "/idle", 0); }));
    /* Nothing has come. */
    executor.add(due(&AnyExecutable::subscription, std::make_shared<SubscriptionBase>(id + "/silent", [](int) { abort(); })));
    executor.add(message_to(id + "/throws", [=](int) {
        launch(times);
        did("subscription", id + "/throws", times, true);
        throw std::runtime_error("by design");
    }));
    publish(id + "/service", times);
    executor.add(due(&AnyExecutable::service, std::make_shared<ServiceBase>(id + "/service", [=](int request) {
        launch(request);
        CHECK(cuCtxSynchronize());
        did("service", id + "/service", request);
    })));
    publish(id + "/client", times);
    executor.add(due(&AnyExecutable::client, std::make_shared<ClientBase>(id + "/client", [=](int response) {
        launch(response + 1);
        did("client", id + "/client", response + 1);
    })));
    spin(executor, is_static);
    launch_for_nobody(times);
    work_deep_in_the_stack(1);
    if (is_static)
        return;

    executor.add(due(&AnyExecutable::waitable, std::make_shared<Waitable>([=] {
        launch(times + 40);
        did("waitable", "", times + 40);
    })));
    executor.add(timer([=] {
        launch(times + 60);
        did("timer", "", times + 60);
    }));
    /* A callback that runs an executor, whose callbacks throw. */
    executor.add(timer([=] {
        Executor inner;
        launch(1);
        inner.add(message_to(id + "/inner", [=](int) {
            launch(times + 2);
            did("subscription", id + "/inner", times + 2);
        }));
        inner.add(message_to(id + "/inner/throws", [=](int) {
            launch(times + 5);
            did("subscription", id + "/inner/throws", times + 5, true);
            throw std::runtime_error("by design");
        }));
        try {
            inner.spin_some();
        } catch (const std::runtime_error &) {
            launch(2);
        }
        launch(times);
        did("timer", "", 3 + times);
    }));
    /* And one that starts a thread, which works for it. */
    executor.add(message_to(id + "/thread", [=](int) {
        launch(1);
        std::thread([=] { launch(times); }).join();
        did("subscription", id + "/thread", 1 + times);
    }));
    spin(executor, false);
    nest(executor, 1, 11);
    spin(executor, false);
    launch_for_nobody(2);
}

static void work_on_everything(const char *how)
{
    char bytes[64] = {};
    CHECK(cuCtxSetCurrent(context));
    for (int i = 0; i < 6; i++) {
        CHECK(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
        CHECK(cuGraphLaunch(graph, nullptr));
        CHECK(cuMemcpyHtoD_v2(memory, bytes, sizeof bytes));
        CHECK(cuMemcpyDtoD_v2(memory + 4096, memory, sizeof bytes));
        CHECK(cuMemcpyDtoH_v2(bytes, memory, sizeof bytes));
        CHECK(cuCtxSynchronize());
    }
    if (!strcmp(how, "throws"))
        throw std::runtime_error("by design");
    if (!strcmp(how, "ends"))
        pthread_exit(nullptr);
}

/* A callback of each kind that says what it is about; `how` it is left is told to the thread. */
static void *run_everything(void *how_and_kind)
{
    auto asked = std::unique_ptr<std::pair<const char *, int>>(static_cast<std::pair<const char *, int> *>(how_and_kind));
    const char *how = asked->first;
    auto callback = [how](int) { work_on_everything(how); };
    Executor executor;
    switch (asked->second) {
    case 0:
        executor.add(message_to("/everything", callback));
        break;
    case 1:
        publish("/everything/service", 1);
        executor.add(due(&AnyExecutable::service, std::make_shared<ServiceBase>("/everything/service", callback)));
        break;
    case 2:
        publish("/everything/client", 1);
        executor.add(due(&AnyExecutable::client, std::make_shared<ClientBase>("/everything/client", callback)));
        break;
    default:
        executor.add(timer([how] { work_on_everything(how); }));
    }
    try {
        executor.spin_some();
    } catch (const std::runtime_error &) {
    }
    return nullptr;
}

static void wait_for_a_line()
{
    fflush(stdout);
    for (char c = 0; c != '\n';)
        if (read(0, &c, 1) != 1)
            exit(0);
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : 1, rounds = argc > 2 ? atoi(argv[2]) : 1;
    bool is_late = argc > 3 && !strcmp(argv[3], "late"), is_static = argc > 3 && !strcmp(argv[3], "static");

    load();
    if (is_late) {
        Executor executor;
        executor.add(timer([] {
            launch(5);
            printf("{\"event\": \"inside\"}\n");
            wait_for_a_line();
            /* Somebody looks on by now. */
            Executor inner;
            launch_for_nobody(4);
            inner.add(message_to("/inside", [](int) {
                launch(6);
                did("subscription", "/inside", 6);
            }));
            inner.spin_some();
            launch_for_nobody(3);
        }));
        executor.spin_some();
        one_round(0, 0, false);
    } else if (argc > 3 && !strcmp(argv[3], "everything")) {
        printf("{\"event\": \"ready\"}\n");
        for (;;) {
            wait_for_a_line();
            for (const char *how : {"returns", "throws", "ends"})
                for (int kind = 0; kind < 4; kind++) {
                    pthread_t thread;
                    CHECK(pthread_create(&thread, nullptr, run_everything, new std::pair<const char *, int>(how, kind)));
                    CHECK(pthread_join(thread, nullptr));
                }
        }
    } else {
        printf("{\"event\": \"ready\"}\n");
        wait_for_a_line();
        std::vector<std::thread> running;
        for (int t = 0; t < threads; t++)
            running.emplace_back([=] {
                for (int r = 0; r < rounds; r++)
                    one_round(t, r, is_static);
            });
        for (auto &thread : running)
            thread.join();
    }
    printf("{\"event\": \"phase\", \"nobodys\": %d, \"beyond\": %d, \"callbacks\": [", nobodys, beyond);
    const char *separator = "";
    for (const Did &d : all) {
        printf("%s[\"%s\", \"%s\", %d, %s]", separator, d.kind, d.name.c_str(), d.launches, d.has_thrown ? "true" : "false");
        separator = ", ";
    }
    printf("]}\n");
    wait_for_a_line();
}
