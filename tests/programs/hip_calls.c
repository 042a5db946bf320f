/* Asks HIP for everything that the stand-in has, from several threads.
 *   hip_calls THREADS LAUNCHES
 * Says {"event": "ready"}, waits for a line, works, says {"event": "phase"} and ends. */
#include "hip.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call, expected)                                                                                          \
	do {                                                                                                           \
		if ((call) != (expected)) {                                                                            \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #call);                                     \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)
#define OK(call) CHECK(call, hipSuccess)
#define ROUNDS 16
#define GRAPH_LAUNCHES 9

/* What clang makes of `__global__ void vectoradd(float *, const float *, const float *, int)`: a host function, and the
 * variable by whose address the kernel is launched. */
void _Z24__device_stub__vectoraddPfPKfS1_i(void)
{
}
void *_Z9vectoraddPfPKfS1_i = (void *)_Z24__device_stub__vectoraddPfPKfS1_i;
/* `template <int N> ns::scale(float *)`, as clang 12 left it: launched by the host function itself. */
void _ZN2ns20__device_stub__scaleILi4EEEvPf(void)
{
}

static int threads, launches;
static hipFunction_t from_module;

static void copies(void *device_memory, void *pageable, hipStream_t stream)
{
	void *pinned;
	hipMemcpy3DParms cube = { .srcPtr = { pageable, 64, 64, 4 },
				  .dstPtr = { device_memory, 64, 64, 4 },
				  .extent = { 48, 4, 3 },
				  .kind = hipMemcpyHostToDevice };

	OK(hipMemAllocHost(&pinned, 1 << 16));
	OK(hipMemcpy(device_memory, pageable, 1000, hipMemcpyHostToDevice));
	OK(hipMemcpy(pinned, device_memory, 3000, hipMemcpyDeviceToHost));
	OK(hipMemcpy(pageable, pinned, 70, hipMemcpyHostToHost));
	OK(hipMemcpyAsync(device_memory, pinned, 4096, hipMemcpyHostToDevice, stream));
	OK(hipMemcpyAsync(device_memory, device_memory, 17, hipMemcpyDeviceToDeviceNoCU, stream));
	OK(hipMemcpyAsync(device_memory, pinned, 11, hipMemcpyDefault, stream));
	OK(hipMemcpyWithStream(pageable, device_memory, 900, hipMemcpyDeviceToHost, stream));
	OK(hipMemcpyHtoD(device_memory, pinned, 128));
	OK(hipMemcpyDtoH(pageable, device_memory, 129));
	OK(hipMemcpyDtoDAsync(device_memory, device_memory, 130, stream));
	OK(hipMemcpy2D(device_memory, 512, pageable, 512, 100, 7, hipMemcpyHostToDevice));
	OK(hipMemcpy2DAsync(pinned, 512, device_memory, 512, 33, 5, hipMemcpyDeviceToHost, stream));
	OK(hipMemcpy3D(&cube));
	OK(hipMemcpyToSymbolAsync(&threads, pinned, 4, 0, hipMemcpyHostToDevice, stream));
	OK(hipMemcpyPeer(device_memory, 1, device_memory, 0, 2222));
	OK(hipMemcpyPeerAsync(device_memory, 1, device_memory, 0, 3333, stream));
	/* The marks that calls leave behind must not swallow the next one. */
	OK(hipMemcpy(device_memory, pageable, 2, hipMemcpyHostToDevice));
	OK(hipMemcpyAsync(device_memory, pinned, 2, hipMemcpyHostToDevice, stream));
	OK(hipMemset(device_memory, 0, 77));
	OK(hipMemsetAsync(device_memory, 0, 78, stream));
	OK(hipMemset2D(device_memory, 256, 0, 20, 6));
	OK(hipMemsetD32(device_memory, 0, 9));
	OK(hipMemset3D((hipPitchedPtr){ device_memory, 64, 64, 4 }, 0, (hipExtent){ 50, 4, 3 }));
	OK(hipMemset3DAsync((hipPitchedPtr){ device_memory, 64, 64, 4 }, 0, (hipExtent){ 51, 2, 3 }, stream));
	OK(hipMemsetD2D16Async(device_memory, 64, 0, 13, 3, stream));
	OK(hipMemcpyAtoA(device_memory, 0, device_memory, 0, 444));
	OK(hipMemcpyHtoAAsync(device_memory, 0, pageable, 555, stream));
	OK(hipHostFree(pinned));
}

static void memory(hipStream_t stream)
{
	void *at, *buffer = malloc(5000);
	hipPitchedPtr cube;
	size_t pitch;

	OK(hipMallocPitch(&at, &pitch, 100, 8));
	OK(hipFree(at));
	OK(hipMemAllocPitch(&at, &pitch, 300, 2, 4));
	OK(hipFree(at));
	OK(hipMalloc3D(&cube, (hipExtent){ 100, 6, 5 }));
	OK(hipFree(cube.ptr));
	OK(hipMallocManaged(&at, 1234, 1));
	OK(hipFree(at));
	OK(hipHostMalloc(&at, 2345, 0));
	OK(hipHostFree(at));
	OK(hipHostRegister(buffer, 5000, 0));
	OK(hipHostUnregister(buffer));
	OK(hipMallocAsync(&at, 3456, stream));
	OK(hipFreeAsync(at, stream));
	OK(hipFree(NULL));
	CHECK(hipMalloc(&at, 1UL << 50), hipErrorOutOfMemory);
	free(buffer);
}

static void graphs(hipStream_t stream, void *device_memory, void *pageable)
{
	hipGraph_t captured, made;
	hipGraphExec_t exec;
	hipGraphNode_t node;
	hipKernelNodeParams kernel = { .blockDim = { 32, 1, 1 },
				       .func = &_Z9vectoraddPfPKfS1_i,
				       .gridDim = { 3, 1, 1 } };
	hipMemsetParams fill = { .dst = device_memory, .elementSize = 4, .height = 2, .pitch = 64, .width = 5 };
	hipMemcpy3DParms rows = { .srcPtr = { pageable, 64, 64, 4 },
				  .dstPtr = { device_memory, 64, 64, 4 },
				  .extent = { 10, 4, 1 },
				  .kind = hipMemcpyHostToDevice };

	OK(hipStreamBeginCapture(stream, 0));
	OK(hipLaunchKernel(&_Z9vectoraddPfPKfS1_i, (dim3){ 5, 1, 1 }, (dim3){ 64, 1, 1 }, NULL, 0, stream));
	OK(hipModuleLaunchKernel(from_module, 7, 1, 1, 8, 1, 1, 0, stream, NULL, NULL));
	OK(hipMemcpyAsync(device_memory, device_memory, 50, hipMemcpyDeviceToDevice, stream));
	OK(hipMemcpyPeerAsync(device_memory, 1, device_memory, 0, 60, stream));
	OK(hipMemsetAsync(device_memory, 0, 70, stream));
	OK(hipMemset3DAsync((hipPitchedPtr){ device_memory, 64, 64, 4 }, 0, (hipExtent){ 31, 2, 2 }, stream));
	OK(hipStreamEndCapture(stream, &captured));
	OK(hipGraphInstantiate(&exec, captured, NULL, NULL, 0));
	for (int i = 0; i < GRAPH_LAUNCHES; i++)
		OK(hipGraphLaunch(exec, stream));
	OK(hipGraphExecDestroy(exec));
	OK(hipGraphDestroy(captured));

	OK(hipGraphCreate(&made, 0));
	OK(hipGraphAddKernelNode(&node, made, NULL, 0, &kernel));
	OK(hipGraphAddMemsetNode(&node, made, NULL, 0, &fill));
	OK(hipGraphAddMemcpyNode(&node, made, NULL, 0, &rows));
	OK(hipGraphInstantiate(&exec, made, NULL, NULL, 0));
	OK(hipGraphLaunch(exec, stream));
	OK(hipGraphExecDestroy(exec));
	OK(hipGraphDestroy(made));
}

static void *work(void *argument)
{
	long which = (long)argument;
	hipStream_t stream;
	void *device_memory, *pageable = malloc(1 << 16);

	if (which) { /* the first thread uses the first device without saying so */
		OK(hipSetDevice(which % 2));
		CHECK(hipSetDevice(99), hipErrorInvalidDevice);
	}
	OK(hipStreamCreate(&stream));
	OK(hipMalloc(&device_memory, 1 << 16));
	for (int i = 0; i < launches; i++)
		OK(hipLaunchKernel(&_Z9vectoraddPfPKfS1_i, (dim3){ 1 + i % 9, 2, 3 }, (dim3){ 64, 2, 1 }, NULL, 0,
				   stream));
	for (int i = 0; i < ROUNDS; i++) {
		OK(hipLaunchKernel_spt((void *)_ZN2ns20__device_stub__scaleILi4EEEvPf, (dim3){ 70000, 3, 1 },
				       (dim3){ 1, 1, 128 }, NULL, 0, NULL));
		OK(hipLaunchCooperativeKernel((void *)_ZN2ns20__device_stub__scaleILi4EEEvPf, (dim3){ 4, 1, 1 },
					      (dim3){ 256, 1, 1 }, NULL, 0, stream));
		OK(hipExtLaunchKernel(&_Z9vectoraddPfPKfS1_i, (dim3){ 1, 1, 6 }, (dim3){ 32, 1, 1 }, NULL, 0, stream,
				      NULL, NULL, 0));
		OK(hipModuleLaunchKernel(from_module, 2, 3, 4, 5, 6, 7, 0, stream, NULL, NULL));
		OK(hipExtModuleLaunchKernel(from_module, 1000, 10, 1, 256, 4, 1, 0, stream, NULL, NULL, NULL, NULL, 0));
		copies(device_memory, pageable, stream);
		memory(stream);
		OK(hipStreamSynchronize(stream));
	}
	OK(hipDeviceSynchronize());
	OK(hipFree(device_memory));
	free(pageable);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t workers[64];
	hipModule_t module;
	hipStream_t stream;
	void *left, *pageable = malloc(4096);

	threads = argc > 1 ? atoi(argv[1]) : 2;
	launches = argc > 2 ? atoi(argv[2]) : 100;
	if (threads < 1 || threads > 64)
		return 2;
	__hipRegisterFunction(NULL, &_Z9vectoraddPfPKfS1_i, NULL, "_Z9vectoraddPfPKfS1_i", -1, 0, 0, 0, 0, 0);
	__hipRegisterFunction(NULL, (void *)_ZN2ns20__device_stub__scaleILi4EEEvPf, NULL, "_ZN2ns5scaleILi4EEEvPf", -1,
			      0, 0, 0, 0, 0);
	printf("{\"event\": \"ready\"}\n");
	fflush(stdout);
	getchar();
	OK(hipModuleLoadData(&module, NULL));
	OK(hipModuleGetFunction(&from_module, module, "triton_poi_fused_add_0"));
	for (long i = 0; i < threads; i++)
		pthread_create(&workers[i], NULL, work, (void *)i);
	for (int i = 0; i < threads; i++)
		pthread_join(workers[i], NULL);
	OK(hipStreamCreate(&stream));
	OK(hipMalloc(&left, 4096));
	graphs(stream, left, pageable);
	OK(hipModuleUnload(module));
	/* What is left goes with the device. */
	OK(hipDeviceReset());
	printf("{\"event\": \"phase\"}\n");
	fflush(stdout);
	return 0;
}
