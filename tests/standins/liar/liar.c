// SPDX-License-Identifier: Apache-2.0
#include "liar.h"
#include <string.h>
#include <unistd.h>

_Thread_local int lie_code;
_Thread_local uint64_t lie_out;
_Thread_local uint64_t lie_bytes[2];

#define SAYS(out) return *(uint64_t *)(out) = lie_out, lie_code
int cuInit(uint flags) { return lie_code; }
int cuDeviceGetUuid_v2(void *uuid, int device) { return memcpy(uuid, lie_bytes, sizeof lie_bytes), lie_code; }
int cuDevicePrimaryCtxRetain(void **context, int device) { SAYS(context); }
int cuCtxCreate_v2(void **context, uint flags, int device) { SAYS(context); }
int cuCtxSetCurrent(void *context) { return lie_code; }
int cuModuleGetFunction(void **function, void *module, const char *name) { SAYS(function); }
int cuModuleUnload(void *module) { return lie_code; }
int cuLaunchKernel(void *function, uint gx, uint gy, uint gz, uint bx, uint by, uint bz, uint shared, void *stream,
                   void **parameters, void **extra) { return lie_code; }
int cuMemAlloc_v2(devptr *pointer, size_t bytes) { SAYS(pointer); }
int cuMemFree_v2(devptr pointer) { return lie_code; }
int cuMemHostRegister_v2(void *pointer, size_t bytes, uint flags) { return lie_code; }
int cuMemcpyHtoDAsync_v2(devptr to, const void *from, size_t bytes, void *stream) { return lie_code; }
int cuMemsetD8Async(devptr to, unsigned char value, size_t bytes, void *stream) { return lie_code; }
int cuEventRecord(void *event, void *stream) { return lie_code; }
int cuStreamSynchronize(void *stream) { return lie_code; }
int cuStreamBeginCapture_v2(void *stream, int mode) { return lie_code; }
int cuStreamEndCapture(void *stream, void **graph) { SAYS(graph); }
int cuGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long flags) { SAYS(exec); }
int cuGraphExecUpdate_v2(void *exec, void *graph, void *result) { return lie_code; }
int cuGraphLaunch(void *exec, void *stream) { return lie_code; }

/* Of a thread that is told so, without end. */
int cuCtxSynchronize(void)
{
    while (lie_code < 0)
        pause();
    return lie_code;
}
