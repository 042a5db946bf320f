/* SPDX-License-Identifier: Apache-2.0
 * liar.h: a CUDA driver that does nothing and says what its program tells it to say. */
#ifndef LIAR_H
#define LIAR_H
#include <stddef.h>
#include <stdint.h>

typedef unsigned uint;
typedef uint64_t devptr;

extern _Thread_local int lie_code;      /* what every function returns */
extern _Thread_local uint64_t lie_out;  /* what stands in out parameters afterwards */
extern _Thread_local uint64_t lie_bytes[2]; /* the UUID of every device */

int cuInit(uint flags);
int cuDeviceGetUuid_v2(void *uuid, int device);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxCreate_v2(void **context, uint flags, int device);
int cuCtxSetCurrent(void *context);
int cuCtxSynchronize(void);
int cuModuleGetFunction(void **function, void *module, const char *name);
int cuModuleUnload(void *module);
int cuLaunchKernel(void *function, uint gx, uint gy, uint gz, uint bx, uint by, uint bz, uint shared, void *stream,
                   void **parameters, void **extra);
int cuMemAlloc_v2(devptr *pointer, size_t bytes);
int cuMemFree_v2(devptr pointer);
int cuMemHostRegister_v2(void *pointer, size_t bytes, uint flags);
int cuMemcpyHtoDAsync_v2(devptr to, const void *from, size_t bytes, void *stream);
int cuMemsetD8Async(devptr to, unsigned char value, size_t bytes, void *stream);
int cuEventRecord(void *event, void *stream);
int cuStreamSynchronize(void *stream);
int cuStreamBeginCapture_v2(void *stream, int mode);
int cuStreamEndCapture(void *stream, void **graph);
int cuGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long flags);
int cuGraphExecUpdate_v2(void *exec, void *graph, void *result);
int cuGraphLaunch(void *exec, void *stream);
#endif
