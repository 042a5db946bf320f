// SPDX-License-Identifier: Apache-2.0
/* launch_storm: how many launches, copies, allocations and waits did threads of a driver-API program make?
 *
 * Each phase runs THREADS threads, each making LAUNCHES launches over several kernels, streams, dimensions and entries,
 * then ROUNDS rounds of memory_mix, GRAPHS launches of a captured graph and ERRORS failing calls. One JSON line before
 * a phase ("ready"), one after it ("phase"), one at the end ("done", the sum of all). With --gate each phase waits for
 * a line on standard input, so that an observer can be attached at a known place. */
#include "driver.h"
#include "memory_mix.h"
#include "tally.h"
#include <getopt.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

enum { STREAMS = 3, GRAPH_NODES = 3, MAX_THREADS = 256 };

static struct {
    unsigned threads, phases, rounds, graphs, errors;
    unsigned long launches;
    double late_dlopen, settle, pause;
    bool gate;
} options = {.threads = 1, .phases = 1, .launches = 1000};

const char *const kernel_names[KERNELS] = {
    "axpy_f32", "reduce_sum", "gemm_tile_128x128", "_Z4fillIfEvPT_S0_", "softmax_rows",
};
/* The mock driver reads names only; the bodies are never compiled. */
static const char image[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
                            ".visible .entry axpy_f32()\n{ ret; }\n"
                            ".visible .entry reduce_sum()\n{ ret; }\n"
                            ".visible .entry gemm_tile_128x128()\n{ ret; }\n"
                            ".visible .entry _Z4fillIfEvPT_S0_()\n{ ret; }\n"
                            ".visible .entry softmax_rows()\n{ ret; }\n";

/* Grids and blocks at and around powers of two; the third's grid product does not fit into 32 bits. */
static const struct shape {
    uint grid[3], block[3];
} shapes[] = {
    {{1, 1, 1}, {1, 1, 1}},         {{2, 3, 4}, {64, 2, 1}},       {{65537, 65535, 2}, {32, 1, 1}},
    {{4096, 1, 1}, {256, 1, 1}},    {{4097, 1, 1}, {1024, 1, 1}},  {{7, 5, 3}, {8, 8, 8}},
    {{2147483647, 1, 1}, {96, 1, 1}},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void *contexts[2], *functions[KERNELS];

static void launch(struct tally *tally, unsigned long i, void *streams[STREAMS + 1])
{
    /* No two kernels as often as each other, lest a mix-up of names go unseen. */
    static const unsigned char turns[] = {0, 0, 1, 0, 2, 1, 0, 3, 0, 4, 2, 0, 1, 0, 2, 1, 0, 3, 1};
    unsigned kernel = turns[i % sizeof turns];
    const struct shape *s = &shapes[(i / 3 + kernel) % SHAPES];
    void *function = functions[kernel], *stream = streams[i % (STREAMS + 1)], *no_parameters[1] = {0};
    const uint *g = s->grid, *b = s->block;
    struct launch_config config = {{g[0], g[1], g[2]}, {b[0], b[1], b[2]}, 0, stream, NULL, 0};
    switch (i % 64) {
    case 61:
        CHECK(cu.cuLaunchKernelEx(&config, function, no_parameters, NULL));
        break;
    case 62:
        CHECK(cu.cuLaunchKernelEx_ptsz(&config, function, no_parameters, NULL));
        break;
    case 60:
        CHECK(cu.cuLaunchCooperativeKernel(function, g[0], g[1], g[2], b[0], b[1], b[2], 0, stream, no_parameters));
        break;
    case 59:
        CHECK(cu.cuLaunchCooperativeKernel_ptsz(function, g[0], g[1], g[2], b[0], b[1], b[2], 0, stream,
                                                no_parameters));
        break;
    case 63:
        CHECK(cu.cuLaunchKernel_ptsz(function, g[0], g[1], g[2], b[0], b[1], b[2], 0, NULL, no_parameters, NULL));
        break;
    default:
        CHECK(cu.cuLaunchKernel(function, g[0], g[1], g[2], b[0], b[1], b[2], 0, stream, no_parameters, NULL));
    }
    tally->kernels[kernel].launches++;
    tally->kernels[kernel].grid_blocks += (uint64_t)g[0] * g[1] * g[2];
    tally->kernels[kernel].block_threads += (uint64_t)b[0] * b[1] * b[2];
}

static void replay_graph(struct tally *tally, unsigned times)
{
    void *stream, *graph, *executable;
    CHECK(cu.cuStreamCreate(&stream, 0));
    CHECK(cu.cuStreamBeginCapture_v2(stream, 0));
    for (int i = 0; i < GRAPH_NODES; i++) {
        CHECK(cu.cuLaunchKernel(functions[i], 8, 1, 1, 128, 1, 1, 0, stream, NULL, NULL));
        tally->captured++;
    }
    CHECK(cu.cuStreamEndCapture(stream, &graph));
    CHECK(cu.cuGraphInstantiateWithFlags(&executable, graph, 0));
    for (unsigned i = 0; i < times; i++) {
        if (i % 2)
            CHECK(cu.cuGraphLaunch_ptsz(executable, stream));
        else
            CHECK(cu.cuGraphLaunch(executable, stream));
        tally->graph_launches++;
        tally->graph_kernels += GRAPH_NODES;
    }
    CHECK(cu.cuGraphExecDestroy(executable));
    CHECK(cu.cuGraphDestroy(graph));
    CHECK(cu.cuStreamDestroy_v2(stream));
}

static void *run_thread(void *argument)
{
    struct tally *tally = argument;
    void *streams[STREAMS + 1] = {0};
    CHECK(cu.cuCtxSetCurrent(contexts[0]));
    for (int i = 0; i < STREAMS; i++)
        CHECK(cu.cuStreamCreate(&streams[i], i % 2));
    for (unsigned long i = 0; i < options.launches; i++)
        launch(tally, i, streams);
    for (unsigned round = 0; round < options.rounds; round++)
        memory_mix(tally, round, contexts);
    for (int i = 0; i < STREAMS; i++)
        CHECK(cu.cuStreamDestroy_v2(streams[i]));
    return NULL;
}

static void run_phase(struct tally *sum)
{
    static struct tally tallies[MAX_THREADS];
    pthread_t threads[MAX_THREADS];
    for (unsigned t = 0; t < options.threads; t++) {
        tallies[t] = (struct tally){0};
        pthread_create(&threads[t], NULL, run_thread, &tallies[t]);
    }
    for (unsigned t = 0; t < options.threads; t++) {
        pthread_join(threads[t], NULL);
        tally_add(sum, &tallies[t]);
    }
    if (options.graphs)
        replay_graph(sum, options.graphs);
    for (unsigned i = 0; i < options.errors; i++)
        memory_errors(sum);
}

static void open_driver(void)
{
    int devices;
    void *module;
    driver_open();
    /* Before the first call: an observer that follows mappings has this long to attach. */
    usleep((useconds_t)(options.settle * 1e6));
    CHECK(cu.cuInit(0));
    CHECK(cu.cuDeviceGetCount(&devices));
    for (int i = 0; i < 2; i++)
        CHECK(cu.cuDevicePrimaryCtxRetain(&contexts[i], i < devices ? i : 0));
    CHECK(cu.cuCtxSetCurrent(contexts[0]));
    CHECK(cu.cuModuleLoadData(&module, image));
    for (int k = 0; k < KERNELS; k++)
        CHECK(cu.cuModuleGetFunction(&functions[k], module, kernel_names[k]));
}

static void parse(int count, char **words)
{
    static const struct option names[] = {
        {"threads", 1, 0, 't'}, {"launches", 1, 0, 'n'}, {"phases", 1, 0, 'p'},      {"memory", 1, 0, 'm'},
        {"graphs", 1, 0, 'g'},  {"errors", 1, 0, 'e'},   {"late-dlopen", 1, 0, 'l'}, {"settle", 1, 0, 's'},
        {"pause", 1, 0, 'w'},   {"gate", 0, 0, 'G'},     {0, 0, 0, 0},
    };
    for (int c; (c = getopt_long(count, words, "", names, NULL)) != -1;)
        switch (c) {
        case 't': options.threads = strtoul(optarg, NULL, 0); break;
        case 'n': options.launches = strtoul(optarg, NULL, 0); break;
        case 'p': options.phases = strtoul(optarg, NULL, 0); break;
        case 'm': options.rounds = strtoul(optarg, NULL, 0); break;
        case 'g': options.graphs = strtoul(optarg, NULL, 0); break;
        case 'e': options.errors = strtoul(optarg, NULL, 0); break;
        case 'l': options.late_dlopen = strtod(optarg, NULL); break;
        case 's': options.settle = strtod(optarg, NULL); break;
        case 'w': options.pause = strtod(optarg, NULL); break;
        case 'G': options.gate = true; break;
        default:
            fprintf(stderr, "usage: launch_storm [--threads N] [--launches N] [--phases N] [--memory ROUNDS] [--graphs N]\n"
                            "    [--errors N] [--late-dlopen S] [--settle S] [--pause S] [--gate]\n");
            exit(2);
        }
    if (options.threads > MAX_THREADS)
        options.threads = MAX_THREADS;
}

int main(int count, char **words)
{
    struct tally total = {0};
    parse(count, words);
    usleep((useconds_t)(options.late_dlopen * 1e6));
    open_driver();
    for (unsigned phase = 0; phase < options.phases; phase++) {
        struct tally tally = {0};
        printf("{\"event\":\"ready\",\"pid\":%d,\"phase\":%u}\n", getpid(), phase);
        fflush(stdout);
        if (options.gate)
            for (int c; (c = getchar()) != '\n' && c != EOF;)
                ;
        run_phase(&tally);
        tally_print(&tally, "phase", phase);
        tally_add(&total, &tally);
        usleep((useconds_t)(options.pause * 1e6));
    }
    tally_print(&total, "done", options.phases);
    return 0;
}
