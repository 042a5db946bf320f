/* The part of HIP's C interface that the stand-in has: names and calling convention as in hip_runtime_api.h. */
#ifndef STANDIN_HIP_H
#define STANDIN_HIP_H
#include <stddef.h>
#include <stdint.h>

typedef int hipError_t;
enum { hipSuccess = 0, hipErrorInvalidValue = 1, hipErrorOutOfMemory = 2, hipErrorInvalidDevice = 101 };
enum { hipMemcpyHostToHost, hipMemcpyHostToDevice, hipMemcpyDeviceToHost, hipMemcpyDeviceToDevice, hipMemcpyDefault };
enum { hipMemcpyDeviceToDeviceNoCU = 1024 };

typedef struct {
	uint32_t x, y, z;
} dim3;
typedef struct stream *hipStream_t;
typedef struct event *hipEvent_t;
typedef struct graph *hipGraph_t;
typedef struct graph *hipGraphExec_t;
typedef struct graph_node *hipGraphNode_t;
typedef struct module *hipModule_t;
typedef struct kernel *hipFunction_t;
typedef void *hipDeviceptr_t;
typedef struct {
	void *ptr;
	size_t pitch, xsize, ysize;
} hipPitchedPtr;
typedef struct {
	size_t x, y, z;
} hipPos;
typedef struct {
	size_t width, height, depth;
} hipExtent;
typedef struct {
	void *srcArray;
	hipPos srcPos;
	hipPitchedPtr srcPtr;
	void *dstArray;
	hipPos dstPos;
	hipPitchedPtr dstPtr;
	hipExtent extent;
	int kind;
} hipMemcpy3DParms;
typedef struct {
	dim3 blockDim;
	void **extra;
	void *func;
	dim3 gridDim;
	void **kernelParams;
	unsigned sharedMemBytes;
} hipKernelNodeParams;
typedef struct {
	void *dst;
	unsigned elementSize;
	size_t height, pitch;
	unsigned value;
	size_t width;
} hipMemsetParams;

#define API extern __attribute__((visibility("default")))
/* What clang's start-up code calls for each kernel of a program. */
API void __hipRegisterFunction(void **modules, const void *host, char *device, const char *name, unsigned limit,
			       void *tid, void *bid, dim3 *block, dim3 *grid, int *warp);

API hipError_t hipSetDevice(int device);
API hipError_t hipDeviceReset(void);
API hipError_t hipModuleLoadData(hipModule_t *module, const void *image);
API hipError_t hipModuleUnload(hipModule_t module);
API hipError_t hipModuleGetFunction(hipFunction_t *function, hipModule_t module, const char *name);

API hipError_t hipLaunchKernel(const void *f, dim3 grid, dim3 block, void **args, size_t shared, hipStream_t stream);
API hipError_t hipLaunchKernel_spt(const void *f, dim3 grid, dim3 block, void **args, size_t shared,
				   hipStream_t stream);
API hipError_t hipLaunchCooperativeKernel(const void *f, dim3 grid, dim3 block, void **args, unsigned shared,
					  hipStream_t stream);
API hipError_t hipExtLaunchKernel(const void *f, dim3 grid, dim3 block, void **args, size_t shared, hipStream_t stream,
				  hipEvent_t start, hipEvent_t stop, int flags);
API hipError_t hipModuleLaunchKernel(hipFunction_t f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
				     unsigned bz, unsigned shared, hipStream_t stream, void **params, void **extra);
API hipError_t hipExtModuleLaunchKernel(hipFunction_t f, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx,
					uint32_t by, uint32_t bz, size_t shared, hipStream_t stream, void **params,
					void **extra, hipEvent_t start, hipEvent_t stop, uint32_t flags);

API hipError_t hipMalloc(void **ptr, size_t size);
API hipError_t hipMallocPitch(void **ptr, size_t *pitch, size_t width, size_t height);
API hipError_t hipMemAllocPitch(hipDeviceptr_t *ptr, size_t *pitch, size_t width, size_t height, unsigned element);
API hipError_t hipMalloc3D(hipPitchedPtr *ptr, hipExtent extent);
API hipError_t hipMallocManaged(void **ptr, size_t size, unsigned flags);
API hipError_t hipHostMalloc(void **ptr, size_t size, unsigned flags);
API hipError_t hipMemAllocHost(void **ptr, size_t size);
API hipError_t hipHostRegister(void *ptr, size_t size, unsigned flags);
API hipError_t hipMallocAsync(void **ptr, size_t size, hipStream_t stream);
API hipError_t hipFree(void *ptr);
API hipError_t hipHostFree(void *ptr);
API hipError_t hipHostUnregister(void *ptr);
API hipError_t hipFreeAsync(void *ptr, hipStream_t stream);

API hipError_t hipMemcpy(void *to, const void *from, size_t size, int kind);
API hipError_t hipMemcpyAsync(void *to, const void *from, size_t size, int kind, hipStream_t stream);
API hipError_t hipMemcpyWithStream(void *to, const void *from, size_t size, int kind, hipStream_t stream);
API hipError_t hipMemcpyHtoD(hipDeviceptr_t to, void *from, size_t size);
API hipError_t hipMemcpyDtoH(void *to, hipDeviceptr_t from, size_t size);
API hipError_t hipMemcpyDtoDAsync(hipDeviceptr_t to, hipDeviceptr_t from, size_t size, hipStream_t stream);
API hipError_t hipMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
			   int kind);
API hipError_t hipMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
				size_t height, int kind, hipStream_t stream);
API hipError_t hipMemcpy3D(const hipMemcpy3DParms *p);
API hipError_t hipMemcpyToSymbolAsync(const void *symbol, const void *from, size_t size, size_t offset, int kind,
				      hipStream_t stream);
API hipError_t hipMemcpyPeer(void *to, int to_device, const void *from, int from_device, size_t size);
API hipError_t hipMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t size,
				  hipStream_t stream);
API hipError_t hipMemset(void *to, int value, size_t size);
API hipError_t hipMemsetAsync(void *to, int value, size_t size, hipStream_t stream);
API hipError_t hipMemset2D(void *to, size_t pitch, int value, size_t width, size_t height);
API hipError_t hipMemset3D(hipPitchedPtr to, int value, hipExtent extent);
API hipError_t hipMemset3DAsync(hipPitchedPtr to, int value, hipExtent extent, hipStream_t stream);
API hipError_t hipMemsetD2D16Async(hipDeviceptr_t to, size_t pitch, unsigned short value, size_t width, size_t height,
				   hipStream_t stream);
API hipError_t hipMemcpyAtoA(void *to, size_t to_offset, void *from, size_t from_offset, size_t size);
API hipError_t hipMemcpyHtoAAsync(void *to, size_t offset, const void *from, size_t size, hipStream_t stream);
API hipError_t hipMemsetD32(hipDeviceptr_t to, int value, size_t count);

API hipError_t hipStreamCreate(hipStream_t *stream);
API hipError_t hipStreamSynchronize(hipStream_t stream);
API hipError_t hipDeviceSynchronize(void);
API hipError_t hipStreamBeginCapture(hipStream_t stream, int mode);
API hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t *graph);
API hipError_t hipGraphCreate(hipGraph_t *graph, unsigned flags);
API hipError_t hipGraphAddKernelNode(hipGraphNode_t *node, hipGraph_t graph, const hipGraphNode_t *dependencies,
				     size_t n, const hipKernelNodeParams *params);
API hipError_t hipGraphAddMemsetNode(hipGraphNode_t *node, hipGraph_t graph, const hipGraphNode_t *dependencies,
				     size_t n, const hipMemsetParams *params);
API hipError_t hipGraphAddMemcpyNode(hipGraphNode_t *node, hipGraph_t graph, const hipGraphNode_t *dependencies,
				     size_t n, const hipMemcpy3DParms *params);
API hipError_t hipGraphInstantiate(hipGraphExec_t *exec, hipGraph_t graph, hipGraphNode_t *failed, char *log,
				   size_t size);
API hipError_t hipGraphLaunch(hipGraphExec_t exec, hipStream_t stream);
API hipError_t hipGraphDestroy(hipGraph_t graph);
API hipError_t hipGraphExecDestroy(hipGraphExec_t exec);
#endif
