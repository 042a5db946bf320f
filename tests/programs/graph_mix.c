// SPDX-License-Identifier: Apache-2.0
/* graph_mix: what do CUDA graphs execute that were made and changed in every way the driver knows?
 *
 * Prints "ready", waits for a line on standard input, captures, builds, clones, updates and launches, and prints
 * "phase". What was executed is the mock driver's truth to tell. The argument says how often the captured graph is
 * launched; all other graphs are launched a few times, each as often as no other.
 *
 *   graph_mix [launches] */
#include "driver.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { KERNELS = 14, BYTES = 4096, NODE_KERNEL = 0, NODE_MEMSET = 2, NODE_CHILD = 4 };

struct kernel_node { /* CUDA_KERNEL_NODE_PARAMS_v2 */
    void *function;
    uint grid[3], block[3], shared_bytes;
    void **parameters, **extra;
    void *kernel, *context;
};
_Static_assert(sizeof(struct kernel_node) == 72, "CUDA_KERNEL_NODE_PARAMS_v2");

struct memset_node { /* CUDA_MEMSET_NODE_PARAMS */
    devptr to;
    size_t pitch;
    uint value, element_bytes;
    size_t width, height;
};
_Static_assert(sizeof(struct memset_node) == 40, "CUDA_MEMSET_NODE_PARAMS");

struct any_node { /* CUgraphNodeParams */
    int type, reserved[3];
    union {
        struct kernel_node kernel;
        struct memset_node memset;
        void *child;
        char bytes[240];
    };
};
_Static_assert(sizeof(struct any_node) == 256, "CUgraphNodeParams");

#define ADD void **node, void *graph, void **dependencies, size_t count
#define GRAPH_FUNCTIONS(X)                                                                                             \
    X(cuGraphCreate, (void **graph, uint flags))                                                                       \
    X(cuGraphClone, (void **clone, void *graph))                                                                       \
    X(cuGraphAddKernelNode, (ADD, const struct kernel_node *parameters))                                               \
    X(cuGraphAddKernelNode_v2, (ADD, const struct kernel_node *parameters))                                            \
    X(cuGraphAddMemcpyNode, (ADD, const struct copy3d *copy, void *context))                                           \
    X(cuGraphAddMemsetNode, (ADD, const struct memset_node *parameters, void *context))                                \
    X(cuGraphAddChildGraphNode, (ADD, void *child))                                                                    \
    X(cuGraphAddNode, (ADD, struct any_node *parameters))                                                              \
    X(cuGraphAddNode_v2, (void **node, void *graph, void **dependencies, void *edges, size_t count, struct any_node *p)) \
    X(cuGraphDestroyNode, (void *node))                                                                                \
    X(cuGraphKernelNodeSetParams_v2, (void *node, const struct kernel_node *parameters))                               \
    X(cuGraphMemsetNodeSetParams, (void *node, const struct memset_node *parameters))                                  \
    X(cuGraphExecUpdate_v2, (void *executable, void *graph, void *result))                                             \
    X(cuGraphExecKernelNodeSetParams_v2, (void *executable, void *node, const struct kernel_node *parameters))         \
    X(cuGraphExecMemsetNodeSetParams, (void *executable, void *node, const struct memset_node *p, void *context))      \
    X(cuGraphExecMemcpyNodeSetParams, (void *executable, void *node, const struct copy3d *copy, void *context))        \
    X(cuGraphExecChildGraphNodeSetParams, (void *executable, void *node, void *child))                                 \
    X(cuGraphNodeSetEnabled, (void *executable, void *node, uint enabled))

static struct {
#define X(name, arguments) int(*name) arguments;
    GRAPH_FUNCTIONS(X)
#undef X
} graphs;

static void *functions[KERNELS], *context, *stream, *pinned;
static devptr device, other;

static void find_graph_functions(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
#define X(name, arguments)                                                                                             \
    if (!(graphs.name = (int(*) arguments)dlsym(library, #name))) {                                                    \
        fprintf(stderr, "libcuda.so.1 has no " #name "\n");                                                            \
        exit(2);                                                                                                       \
    }
    GRAPH_FUNCTIONS(X)
#undef X
}

static struct kernel_node kernel(int k)
{
    return (struct kernel_node){.function = functions[k], .grid = {k + 1, 2, 1}, .block = {32, 1, 1}};
}

static struct memset_node fill(size_t width)
{
    return (struct memset_node){.to = device, .pitch = BYTES, .element_bytes = 4, .width = width, .height = 1};
}

static struct copy3d between(size_t bytes)
{
    return (struct copy3d){.src_type = MEMORY_DEVICE, .src_device = device, .dst_type = MEMORY_DEVICE,
                           .dst_device = other, .width_bytes = bytes, .height = 1, .depth = 1};
}

static void *instantiate(void *graph)
{
    void *executable;
    CHECK(cu.cuGraphInstantiateWithFlags(&executable, graph, 0));
    return executable;
}

static void launch(void *executable, int times)
{
    for (int i = 0; i < times; i++)
        CHECK(cu.cuGraphLaunch(executable, stream));
}

static void launch_once_made(void *graph, int times)
{
    void *executable = instantiate(graph);
    launch(executable, times);
    CHECK(cu.cuGraphExecDestroy(executable));
}

static void captured(int times)
{
    void *graph;
    CHECK(cu.cuStreamBeginCapture_v2(stream, 0));
    for (int k = 0; k < 3; k++)
        CHECK(cu.cuLaunchKernel(functions[k], k + 1, 1, 1, 64, 1, 1, 0, stream, NULL, NULL));
    CHECK(cu.cuLaunchKernel(functions[0], 9, 1, 1, 64, 1, 1, 0, stream, NULL, NULL));
    CHECK(cu.cuMemcpyHtoDAsync_v2(device, pinned, 1000, stream));
    CHECK(cu.cuMemsetD32Async(device, 1, 25, stream));
    CHECK(cu.cuStreamEndCapture(stream, &graph));
    launch_once_made(graph, times);
    CHECK(cu.cuGraphDestroy(graph));
}

/* A graph of a kernel, a memset, a copy and a child with two kernels. */
struct built {
    void *graph, *kernel, *memset, *copy, *child;
};

static struct built build(int first)
{
    struct built b;
    void *child, *nodes[2];
    struct kernel_node k = kernel(first), inner = kernel(first + 1);
    struct memset_node set = fill(10);
    struct copy3d copy = between(300);
    CHECK(graphs.cuGraphCreate(&b.graph, 0));
    CHECK(graphs.cuGraphCreate(&child, 0));
    CHECK(graphs.cuGraphAddKernelNode(&nodes[0], child, NULL, 0, &inner));
    CHECK(graphs.cuGraphAddKernelNode_v2(&nodes[1], child, nodes, 1, &inner));
    CHECK(graphs.cuGraphAddKernelNode_v2(&b.kernel, b.graph, NULL, 0, &k));
    CHECK(graphs.cuGraphAddMemsetNode(&b.memset, b.graph, &b.kernel, 1, &set, context));
    CHECK(graphs.cuGraphAddMemcpyNode(&b.copy, b.graph, &b.memset, 1, &copy, context));
    CHECK(graphs.cuGraphAddChildGraphNode(&b.child, b.graph, &b.copy, 1, child));
    CHECK(cu.cuGraphDestroy(child));
    return b;
}

static void explicit_nodes(void)
{
    void *clone;
    struct built b = build(3);
    launch_once_made(b.graph, 100);
    CHECK(graphs.cuGraphClone(&clone, b.graph));
    struct kernel_node changed = kernel(5);
    struct memset_node wider = fill(20);
    CHECK(graphs.cuGraphKernelNodeSetParams_v2(b.kernel, &changed));
    CHECK(graphs.cuGraphMemsetNodeSetParams(b.memset, &wider));
    launch_once_made(b.graph, 13);
    launch_once_made(clone, 7);
    CHECK(graphs.cuGraphDestroyNode(b.child));
    launch_once_made(b.graph, 5);
    CHECK(cu.cuGraphDestroy(clone));
    CHECK(cu.cuGraphDestroy(b.graph));
}

static void changed_after_instantiation(void)
{
    struct built one = build(5), two = build(7);
    void *executable = instantiate(one.graph), *child, *node;
    struct kernel_node changed = kernel(9);
    struct memset_node wider = fill(30);
    struct copy3d longer = between(500);
    char result[24];
    launch(executable, 11);
    CHECK(graphs.cuGraphExecKernelNodeSetParams_v2(executable, one.kernel, &changed));
    launch(executable, 17);
    CHECK(graphs.cuGraphExecMemsetNodeSetParams(executable, one.memset, &wider, context));
    CHECK(graphs.cuGraphExecMemcpyNodeSetParams(executable, one.copy, &longer, context));
    launch(executable, 19);
    CHECK(graphs.cuGraphNodeSetEnabled(executable, one.memset, 0));
    CHECK(graphs.cuGraphNodeSetEnabled(executable, one.kernel, 0));
    launch(executable, 23);
    CHECK(graphs.cuGraphNodeSetEnabled(executable, one.kernel, 1));
    launch(executable, 29);
    CHECK(graphs.cuGraphExecUpdate_v2(executable, two.graph, result));
    launch(executable, 31);
    CHECK(graphs.cuGraphNodeSetEnabled(executable, one.memset, 1));
    launch(executable, 37);
    CHECK(graphs.cuGraphCreate(&child, 0));
    CHECK(graphs.cuGraphAddKernelNode(&node, child, NULL, 0, &changed));
    CHECK(graphs.cuGraphExecChildGraphNodeSetParams(executable, one.child, child));
    launch(executable, 41);
    CHECK(cu.cuGraphExecDestroy(executable));
    CHECK(cu.cuGraphDestroy(one.graph));
    CHECK(cu.cuGraphDestroy(two.graph));
    CHECK(cu.cuGraphDestroy(child));
}

static void any_nodes(void)
{
    void *graph, *outer, *nodes[3];
    struct any_node k = {.type = NODE_KERNEL, .kernel = kernel(10)}, set = {.type = NODE_MEMSET, .memset = fill(40)};
    CHECK(graphs.cuGraphCreate(&graph, 0));
    CHECK(graphs.cuGraphCreate(&outer, 0));
    CHECK(graphs.cuGraphAddNode(&nodes[0], graph, NULL, 0, &k));
    CHECK(graphs.cuGraphAddNode_v2(&nodes[1], graph, nodes, NULL, 1, &set));
    struct any_node child = {.type = NODE_CHILD, .child = graph};
    CHECK(graphs.cuGraphAddNode(&nodes[2], outer, NULL, 0, &child));
    launch_once_made(outer, 43);
    /* A library's kernel: the function is left out and the kernel stands behind. */
    struct kernel_node library = kernel(11);
    library.kernel = library.function, library.function = NULL;
    CHECK(graphs.cuGraphAddKernelNode_v2(&nodes[0], graph, NULL, 0, &library));
    launch_once_made(graph, 47);
    CHECK(cu.cuGraphDestroy(outer));
    CHECK(cu.cuGraphDestroy(graph));
}

/* A graph that is launched on a stream being captured becomes a child of the captured one, as it is then. */
static void launched_while_captured(void)
{
    void *inner, *outer, *node, *executable, *nested;
    struct kernel_node one = kernel(12), then = kernel(13);
    struct memset_node set = fill(50);
    CHECK(graphs.cuGraphCreate(&inner, 0));
    CHECK(graphs.cuGraphAddKernelNode(&node, inner, NULL, 0, &one));
    CHECK(graphs.cuGraphAddMemsetNode(&nested, inner, NULL, 0, &set, context));
    executable = instantiate(inner);
    CHECK(cu.cuStreamBeginCapture_v2(stream, 0));
    launch(executable, 2);
    CHECK(cu.cuLaunchKernel(functions[13], 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
    CHECK(cu.cuStreamEndCapture(stream, &outer));
    CHECK(graphs.cuGraphExecKernelNodeSetParams_v2(executable, node, &then));
    nested = instantiate(outer);
    launch(nested, 53);
    CHECK(cu.cuGraphDestroy(outer));
    CHECK(cu.cuStreamBeginCapture_v2(stream, 0));
    launch(nested, 1);
    launch(executable, 1);
    CHECK(cu.cuStreamEndCapture(stream, &outer));
    launch_once_made(outer, 59);
    CHECK(cu.cuGraphDestroy(outer));
    CHECK(cu.cuGraphExecDestroy(nested));
    CHECK(cu.cuGraphExecDestroy(executable));
    CHECK(cu.cuGraphDestroy(inner));
}

int main(int count, char **words)
{
    char image[4096], name[16];
    int at = snprintf(image, sizeof image, ".version 8.0\n.target sm_90\n.address_size 64\n");
    void *module;
    for (int k = 0; k < KERNELS; k++)
        at += snprintf(image + at, sizeof image - at, ".visible .entry graphed_%d()\n{ ret; }\n", k);
    driver_open();
    find_graph_functions();
    usleep(500000); /* an observer that follows mappings attaches now */
    CHECK(cu.cuInit(0));
    CHECK(cu.cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cu.cuCtxSetCurrent(context));
    CHECK(cu.cuModuleLoadData(&module, image));
    for (int k = 0; k < KERNELS; k++) {
        snprintf(name, sizeof name, "graphed_%d", k);
        CHECK(cu.cuModuleGetFunction(&functions[k], module, name));
    }
    CHECK(cu.cuStreamCreate(&stream, 0));
    CHECK(cu.cuMemAlloc_v2(&device, BYTES));
    CHECK(cu.cuMemAlloc_v2(&other, BYTES));
    CHECK(cu.cuMemHostAlloc(&pinned, BYTES, 0));
    printf("{\"event\":\"ready\",\"pid\":%d,\"phase\":0}\n", getpid());
    fflush(stdout);
    for (int c; (c = getchar()) != '\n' && c != EOF;)
        ;
    captured(count > 1 ? atoi(words[1]) : 10000);
    explicit_nodes();
    changed_after_instantiation();
    any_nodes();
    launched_while_captured();
    CHECK(cu.cuStreamSynchronize(stream));
    printf("{\"event\":\"phase\",\"pid\":%d,\"phase\":0}\n", getpid());
    return 0;
}
