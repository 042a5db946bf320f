/* A stand-in for libamdhip64.so: executes nothing, moves bytes at once, and counts what it was asked.
 *
 * The counts are written to MOCKHIP_TRUTH when the program ends. Built with -DNESTED its functions call each other
 * through their exported names, as those of ROCm 5.2 do. */
#define _GNU_SOURCE
#include "hip.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_KERNELS 64
#define MAX_NODES 256
#define MAX_LIVE 4096
#define DEVICES 4
#define KINDS 6
#define DEVICE_LIMIT (1UL << 40)

enum { MEM_DEVICE, MEM_HOST, MEM_MANAGED, MEM_REGISTERED, MEM_ASYNC, MEM_TYPES };
static const char *const memory_names[] = { "device", "host", "managed", "registered", "async" };
static const char *const kind_names[] = { "MemcpyHostToHost",	  "MemcpyHostToDevice", "MemcpyDeviceToHost",
					  "MemcpyDeviceToDevice", "MemcpyDefault",	"MemcpyPeer" };
enum { KIND_PEER = 5 };

struct kernel {
	const void *host; /* a program's own kernels are known by it, those of modules by this structure's address */
	char name[256];
	uint64_t launches, blocks, threads, in_graphs;
};
struct graph_node {
	int what; /* 0 kernel, 1 copy, 2 memset */
	struct kernel *kernel;
	int kind;
	uint64_t bytes;
};
struct graph {
	int n;
	struct graph_node nodes[MAX_NODES];
};
struct stream {
	struct graph *capture;
};
struct live {
	void *at;
	size_t size;
	int type, device;
};
struct copies {
	uint64_t count, bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct kernel kernels[MAX_KERNELS];
static int n_kernels;
static struct live live[MAX_LIVE];
static struct copies copied[KINDS], graph_copied[KINDS];
static uint64_t memset_bytes, graph_memset_bytes, graph_launches, waits, out_of_memory, bad_devices;
static uint64_t allocated[MEM_TYPES], freed[MEM_TYPES], by_device[DEVICES];
static __thread int device;

static void print_copies(FILE *f, const char *name, const struct copies *c)
{
	fprintf(f, "\"%s\": {", name);
	for (int i = 0, first = 1; i < KINDS; i++)
		if (c[i].count) {
			fprintf(f, "%s\"%s\": {\"count\": %lu, \"bytes\": %lu}", first ? "" : ", ", kind_names[i],
				c[i].count, c[i].bytes);
			first = 0;
		}
	fprintf(f, "}");
}

static void print_bytes(FILE *f, const char *name, const uint64_t *bytes)
{
	fprintf(f, "\"%s\": {", name);
	for (int i = 0; i < MEM_TYPES; i++)
		fprintf(f, "%s\"%s\": %lu", i ? ", " : "", memory_names[i], bytes[i]);
	fprintf(f, "}");
}

__attribute__((destructor)) static void tell(void)
{
	const char *path = getenv("MOCKHIP_TRUTH");
	FILE *f = path ? fopen(path, "w") : NULL;

	if (!f)
		return;
	fprintf(f, "{\"pid\": %d, \"kernels\": {", getpid());
	for (int i = 0; i < n_kernels; i++)
		fprintf(f, "%s\"%s\": {\"launches\": %lu, \"blocks\": %lu, \"threads\": %lu, \"in_graphs\": %lu}",
			i ? ", " : "", kernels[i].name, kernels[i].launches, kernels[i].blocks, kernels[i].threads,
			kernels[i].in_graphs);
	fprintf(f, "}, ");
	print_copies(f, "copies", copied);
	fprintf(f, ", ");
	print_copies(f, "graph_copies", graph_copied);
	fprintf(f, ", ");
	print_bytes(f, "allocated", allocated);
	fprintf(f, ", ");
	print_bytes(f, "freed", freed);
	fprintf(f,
		", \"memset_bytes\": %lu, \"graph_memset_bytes\": %lu, \"graph_launches\": %lu, \"waits\": %lu, "
		"\"out_of_memory\": %lu, \"bad_devices\": %lu, \"launches_by_device\": [%lu, %lu, %lu, %lu]}\n",
		memset_bytes, graph_memset_bytes, graph_launches, waits, out_of_memory, bad_devices, by_device[0],
		by_device[1], by_device[2], by_device[3]);
	fclose(f);
}

/* ---- kernels ---- */

static struct kernel *new_kernel(const char *name, const void *host)
{
	struct kernel *k = &kernels[n_kernels++];

	if (n_kernels > MAX_KERNELS)
		abort();
	snprintf(k->name, sizeof(k->name), "%s", name);
	k->host = host ? host : k;
	return k;
}

static struct kernel *find_kernel(const void *handle)
{
	for (int i = 0; i < n_kernels; i++)
		if (kernels[i].host == handle)
			return &kernels[i];
	abort();
}

void __hipRegisterFunction(void **modules, const void *host, char *function, const char *name, unsigned limit,
			   void *tid, void *bid, dim3 *block, dim3 *grid, int *warp)
{
	new_kernel(name, host);
}

hipError_t hipModuleLoadData(hipModule_t *module, const void *image)
{
	*module = malloc(1);
	return hipSuccess;
}

hipError_t hipModuleUnload(hipModule_t module)
{
	free(module);
	return hipSuccess;
}

hipError_t hipModuleGetFunction(hipFunction_t *function, hipModule_t module, const char *name)
{
	pthread_mutex_lock(&lock);
	*function = new_kernel(name, NULL);
	pthread_mutex_unlock(&lock);
	return hipSuccess;
}

static void record(struct graph *graph, struct graph_node node)
{
	if (graph->n == MAX_NODES)
		abort();
	graph->nodes[graph->n++] = node;
}

static hipError_t launch(const void *handle, dim3 grid, dim3 block, hipStream_t stream)
{
	struct kernel *k;

	pthread_mutex_lock(&lock);
	k = find_kernel(handle);
	if (stream && stream->capture) {
		record(stream->capture, (struct graph_node){ .what = 0, .kernel = k });
	} else {
		k->launches++;
		k->blocks += (uint64_t)grid.x * grid.y * grid.z;
		k->threads += (uint64_t)block.x * block.y * block.z;
		by_device[device]++;
	}
	pthread_mutex_unlock(&lock);
	return hipSuccess;
}

hipError_t hipLaunchKernel(const void *f, dim3 grid, dim3 block, void **args, size_t shared, hipStream_t stream)
{
	return launch(f, grid, block, stream);
}

hipError_t hipLaunchKernel_spt(const void *f, dim3 grid, dim3 block, void **args, size_t shared, hipStream_t stream)
{
	return launch(f, grid, block, stream);
}

hipError_t hipLaunchCooperativeKernel(const void *f, dim3 grid, dim3 block, void **args, unsigned shared,
				      hipStream_t stream)
{
	return launch(f, grid, block, stream);
}

hipError_t hipExtLaunchKernel(const void *f, dim3 grid, dim3 block, void **args, size_t shared, hipStream_t stream,
			      hipEvent_t start, hipEvent_t stop, int flags)
{
	return launch(f, grid, block, stream);
}

hipError_t hipModuleLaunchKernel(hipFunction_t f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
				 unsigned bz, unsigned shared, hipStream_t stream, void **params, void **extra)
{
	return launch(f, (dim3){ gx, gy, gz }, (dim3){ bx, by, bz }, stream);
}

hipError_t hipExtModuleLaunchKernel(hipFunction_t f, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx, uint32_t by,
				    uint32_t bz, size_t shared, hipStream_t stream, void **params, void **extra,
				    hipEvent_t start, hipEvent_t stop, uint32_t flags)
{
	dim3 grid = { (gx + bx - 1) / bx, (gy + by - 1) / by, (gz + bz - 1) / bz };

	return launch(f, grid, (dim3){ bx, by, bz }, stream);
}

/* ---- devices and memory ---- */

hipError_t hipSetDevice(int which)
{
	if (which < 0 || which >= DEVICES) {
		__atomic_fetch_add(&bad_devices, 1, __ATOMIC_RELAXED);
		return hipErrorInvalidDevice;
	}
	device = which;
	return hipSuccess;
}

static void note_live(void *at, size_t size, int type)
{
	pthread_mutex_lock(&lock);
	for (int i = 0; i < MAX_LIVE; i++)
		if (!live[i].at) {
			live[i] = (struct live){ at, size, type, device };
			allocated[type] += size;
			pthread_mutex_unlock(&lock);
			return;
		}
	abort();
}

static hipError_t forget_live(void *at)
{
	hipError_t result = at ? hipErrorInvalidValue : hipSuccess;

	pthread_mutex_lock(&lock);
	for (int i = 0; at && i < MAX_LIVE; i++)
		if (live[i].at == at) {
			freed[live[i].type] += live[i].size;
			if (live[i].type != MEM_REGISTERED)
				free(at);
			live[i].at = NULL;
			result = hipSuccess;
			break;
		}
	pthread_mutex_unlock(&lock);
	return result;
}

hipError_t hipDeviceReset(void)
{
	pthread_mutex_lock(&lock);
	for (int i = 0; i < MAX_LIVE; i++)
		if (live[i].at && live[i].device == device)
			live[i].at = NULL; /* no longer in use, without having been freed */
	pthread_mutex_unlock(&lock);
	return hipSuccess;
}

static hipError_t allocate(void **at, size_t size, int type)
{
	if (size >= DEVICE_LIMIT) {
		__atomic_fetch_add(&out_of_memory, 1, __ATOMIC_RELAXED);
		return hipErrorOutOfMemory;
	}
	*at = malloc(size);
	note_live(*at, size, type);
	return hipSuccess;
}

hipError_t hipMalloc(void **ptr, size_t size)
{
	return allocate(ptr, size, MEM_DEVICE);
}

hipError_t hipMallocPitch(void **ptr, size_t *pitch, size_t width, size_t height)
{
	*pitch = (width + 255) / 256 * 256;
	return allocate(ptr, *pitch * height, MEM_DEVICE);
}

hipError_t hipMalloc3D(hipPitchedPtr *ptr, hipExtent extent)
{
	ptr->pitch = (extent.width + 255) / 256 * 256;
	ptr->xsize = extent.width;
	ptr->ysize = extent.height;
	return allocate(&ptr->ptr, ptr->pitch * extent.height * extent.depth, MEM_DEVICE);
}

hipError_t hipMallocManaged(void **ptr, size_t size, unsigned flags)
{
	return allocate(ptr, size, MEM_MANAGED);
}

hipError_t hipHostMalloc(void **ptr, size_t size, unsigned flags)
{
	return allocate(ptr, size, MEM_HOST);
}

hipError_t hipHostRegister(void *ptr, size_t size, unsigned flags)
{
	note_live(ptr, size, MEM_REGISTERED);
	return hipSuccess;
}

hipError_t hipMallocAsync(void **ptr, size_t size, hipStream_t stream)
{
	return allocate(ptr, size, MEM_ASYNC);
}

hipError_t hipFree(void *ptr)
{
	return forget_live(ptr);
}

hipError_t hipHostFree(void *ptr)
{
	return forget_live(ptr);
}

hipError_t hipHostUnregister(void *ptr)
{
	return forget_live(ptr);
}

hipError_t hipFreeAsync(void *ptr, hipStream_t stream)
{
	return forget_live(ptr);
}

/* ---- copies and memsets ---- */

static hipError_t copy(int kind, size_t bytes, hipStream_t stream)
{
	if (kind == hipMemcpyDeviceToDeviceNoCU)
		kind = hipMemcpyDeviceToDevice;
	pthread_mutex_lock(&lock);
	if (stream && stream->capture) {
		record(stream->capture, (struct graph_node){ .what = 1, .kind = kind, .bytes = bytes });
	} else {
		copied[kind].count++;
		copied[kind].bytes += bytes;
	}
	pthread_mutex_unlock(&lock);
	return hipSuccess;
}

static hipError_t fill(size_t bytes, hipStream_t stream)
{
	pthread_mutex_lock(&lock);
	if (stream && stream->capture)
		record(stream->capture, (struct graph_node){ .what = 2, .bytes = bytes });
	else
		memset_bytes += bytes;
	pthread_mutex_unlock(&lock);
	return hipSuccess;
}

/* The kind of the outer of two functions, for the truth: what the program asked. */
static __thread int outer_kind = -1;

static int is_on_host(const void *at)
{
	int found = 1;

	pthread_mutex_lock(&lock);
	for (int i = 0; i < MAX_LIVE; i++)
		if (live[i].at && (const char *)at >= (char *)live[i].at && (const char *)at < (char *)live[i].at + live[i].size)
			found = live[i].type == MEM_HOST || live[i].type == MEM_REGISTERED;
	pthread_mutex_unlock(&lock);
	return found;
}

/* The direction that the runtime finds out where it is not told. */
static int found_out(const void *to, const void *from)
{
	if (is_on_host(from))
		return is_on_host(to) ? hipMemcpyHostToHost : hipMemcpyHostToDevice;
	return is_on_host(to) ? hipMemcpyDeviceToHost : hipMemcpyDeviceToDevice;
}

static int asked(int kind, const void *to, const void *from)
{
	int outer = outer_kind;

	outer_kind = -1;
	if (outer >= 0)
		return outer;
	return kind == hipMemcpyDefault ? found_out(to, from) : kind;
}

hipError_t hipMemcpy(void *to, const void *from, size_t size, int kind)
{
	return copy(asked(kind, to, from), size, NULL);
}

hipError_t hipMemcpyAsync(void *to, const void *from, size_t size, int kind, hipStream_t stream)
{
	return copy(asked(kind, to, from), size, stream);
}

#ifdef NESTED
#define ON_TO(kind, call) (outer_kind = (kind), (call))
#define COPY_SYNC(kind) ON_TO(kind, hipMemcpy(to, from, size, hipMemcpyDefault))
#define COPY_ASYNC(kind, to) ON_TO(kind, hipMemcpyAsync((void *)(to), from, size, hipMemcpyDefault, stream))
hipError_t hipMemAllocHost(void **ptr, size_t size)
{
	return hipHostMalloc(ptr, size, 0);
}
hipError_t hipMemAllocPitch(hipDeviceptr_t *ptr, size_t *pitch, size_t width, size_t height, unsigned element)
{
	return hipMallocPitch(ptr, pitch, width, height);
}
#else
#define COPY_SYNC(kind) copy(kind, size, NULL)
#define COPY_ASYNC(kind, to) copy(kind, size, stream)
hipError_t hipMemAllocHost(void **ptr, size_t size)
{
	return allocate(ptr, size, MEM_HOST);
}
hipError_t hipMemAllocPitch(hipDeviceptr_t *ptr, size_t *pitch, size_t width, size_t height, unsigned element)
{
	*pitch = (width + 255) / 256 * 256;
	return allocate(ptr, *pitch * height, MEM_DEVICE);
}
#endif

hipError_t hipMemcpyPeer(void *to, int to_device, const void *from, int from_device, size_t size)
{
	return COPY_SYNC(KIND_PEER);
}

hipError_t hipMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t size,
			      hipStream_t stream)
{
	return COPY_ASYNC(KIND_PEER, to);
}

hipError_t hipMemcpyToSymbolAsync(const void *symbol, const void *from, size_t size, size_t offset, int kind,
				  hipStream_t stream)
{
	return COPY_ASYNC(kind, symbol);
}

hipError_t hipMemcpyWithStream(void *to, const void *from, size_t size, int kind, hipStream_t stream)
{
	return copy(kind, size, stream);
}

hipError_t hipMemcpyHtoD(hipDeviceptr_t to, void *from, size_t size)
{
	return copy(hipMemcpyHostToDevice, size, NULL);
}

hipError_t hipMemcpyDtoH(void *to, hipDeviceptr_t from, size_t size)
{
	return copy(hipMemcpyDeviceToHost, size, NULL);
}

hipError_t hipMemcpyDtoDAsync(hipDeviceptr_t to, hipDeviceptr_t from, size_t size, hipStream_t stream)
{
	return copy(hipMemcpyDeviceToDevice, size, stream);
}

hipError_t hipMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
		       int kind)
{
	return copy(kind, width * height, NULL);
}

hipError_t hipMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
			    int kind, hipStream_t stream)
{
	return copy(kind, width * height, stream);
}

hipError_t hipMemcpy3D(const hipMemcpy3DParms *p)
{
	return copy(p->kind, p->extent.width * p->extent.height * p->extent.depth, NULL);
}

hipError_t hipMemset(void *to, int value, size_t size)
{
	return fill(size, NULL);
}

hipError_t hipMemsetAsync(void *to, int value, size_t size, hipStream_t stream)
{
	return fill(size, stream);
}

hipError_t hipMemset2D(void *to, size_t pitch, int value, size_t width, size_t height)
{
	return fill(width * height, NULL);
}

hipError_t hipMemset3D(hipPitchedPtr to, int value, hipExtent extent)
{
	return fill(extent.width * extent.height * extent.depth, NULL);
}

hipError_t hipMemset3DAsync(hipPitchedPtr to, int value, hipExtent extent, hipStream_t stream)
{
	return fill(extent.width * extent.height * extent.depth, stream);
}

hipError_t hipMemsetD2D16Async(hipDeviceptr_t to, size_t pitch, unsigned short value, size_t width, size_t height,
			       hipStream_t stream)
{
	return fill(2 * width * height, stream);
}

hipError_t hipMemcpyAtoA(void *to, size_t to_offset, void *from, size_t from_offset, size_t size)
{
	return copy(hipMemcpyDeviceToDevice, size, NULL);
}

hipError_t hipMemcpyHtoAAsync(void *to, size_t offset, const void *from, size_t size, hipStream_t stream)
{
	return copy(hipMemcpyHostToDevice, size, stream);
}

hipError_t hipMemsetD32(hipDeviceptr_t to, int value, size_t count)
{
	return fill(4 * count, NULL);
}

/* ---- streams and graphs ---- */

hipError_t hipStreamCreate(hipStream_t *stream)
{
	*stream = calloc(1, sizeof(**stream));
	return hipSuccess;
}

static hipError_t wait_a_little(void)
{
	usleep(100);
	__atomic_fetch_add(&waits, 1, __ATOMIC_RELAXED);
	return hipSuccess;
}

hipError_t hipStreamSynchronize(hipStream_t stream)
{
	return wait_a_little();
}

hipError_t hipDeviceSynchronize(void)
{
	return wait_a_little();
}

hipError_t hipStreamBeginCapture(hipStream_t stream, int mode)
{
	stream->capture = calloc(1, sizeof(struct graph));
	return hipSuccess;
}

hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t *graph)
{
	*graph = stream->capture;
	stream->capture = NULL;
	return hipSuccess;
}

hipError_t hipGraphCreate(hipGraph_t *graph, unsigned flags)
{
	*graph = calloc(1, sizeof(**graph));
	return hipSuccess;
}

static hipError_t add(hipGraphNode_t *node, hipGraph_t graph, struct graph_node what)
{
	record(graph, what);
	*node = &graph->nodes[graph->n - 1];
	return hipSuccess;
}

hipError_t hipGraphAddKernelNode(hipGraphNode_t *node, hipGraph_t graph, const hipGraphNode_t *dependencies, size_t n,
				 const hipKernelNodeParams *params)
{
	return add(node, graph, (struct graph_node){ .what = 0, .kernel = find_kernel(params->func) });
}

hipError_t hipGraphAddMemsetNode(hipGraphNode_t *node, hipGraph_t graph, const hipGraphNode_t *dependencies, size_t n,
				 const hipMemsetParams *params)
{
	return add(
		node, graph,
		(struct graph_node){ .what = 2, .bytes = params->elementSize * params->width * (params->height ?: 1) });
}

hipError_t hipGraphAddMemcpyNode(hipGraphNode_t *node, hipGraph_t graph, const hipGraphNode_t *dependencies, size_t n,
				 const hipMemcpy3DParms *p)
{
	return add(node, graph,
		   (struct graph_node){
			   .what = 1, .kind = p->kind, .bytes = p->extent.width * p->extent.height * p->extent.depth });
}

hipError_t hipGraphInstantiate(hipGraphExec_t *exec, hipGraph_t graph, hipGraphNode_t *failed, char *log, size_t size)
{
	*exec = malloc(sizeof(**exec));
	**exec = *graph;
	return hipSuccess;
}

hipError_t hipGraphLaunch(hipGraphExec_t exec, hipStream_t stream)
{
	pthread_mutex_lock(&lock);
	graph_launches++;
	for (int i = 0; i < exec->n; i++) {
		struct graph_node *node = &exec->nodes[i];
		if (node->what == 0) {
			node->kernel->in_graphs++;
		} else if (node->what == 1) {
			graph_copied[node->kind].count++;
			graph_copied[node->kind].bytes += node->bytes;
		} else {
			graph_memset_bytes += node->bytes;
		}
	}
	pthread_mutex_unlock(&lock);
	return hipSuccess;
}

hipError_t hipGraphDestroy(hipGraph_t graph)
{
	free(graph);
	return hipSuccess;
}

hipError_t hipGraphExecDestroy(hipGraphExec_t exec)
{
	free(exec);
	return hipSuccess;
}
