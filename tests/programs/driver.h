/* SPDX-License-Identifier: Apache-2.0
 * driver.h: the CUDA driver API as programs without cuda.h use it: found by dlopen and dlsym, called by its ABI. */
#ifndef DRIVER_H
#define DRIVER_H
#include <stddef.h>
#include <stdint.h>

typedef uint64_t devptr;
typedef unsigned int uint;

/* CUDA_MEMCPY2D_v2 and CUDA_MEMCPY3D_v2 (and _PEER, whose contexts lie where the reserved words are). */
enum memory_type { MEMORY_HOST = 1, MEMORY_DEVICE = 2, MEMORY_ARRAY = 3, MEMORY_UNIFIED = 4 };

struct copy2d {
    size_t src_x, src_y;
    uint src_type;
    const void *src_host;
    devptr src_device;
    void *src_array;
    size_t src_pitch;
    size_t dst_x, dst_y;
    uint dst_type;
    void *dst_host;
    devptr dst_device;
    void *dst_array;
    size_t dst_pitch;
    size_t width_bytes, height;
};
_Static_assert(sizeof(struct copy2d) == 128, "CUDA_MEMCPY2D_v2");

struct copy3d {
    size_t src_x, src_y, src_z, src_lod;
    uint src_type;
    const void *src_host;
    devptr src_device;
    void *src_array, *src_context;
    size_t src_pitch, src_height;
    size_t dst_x, dst_y, dst_z, dst_lod;
    uint dst_type;
    void *dst_host;
    devptr dst_device;
    void *dst_array, *dst_context;
    size_t dst_pitch, dst_height;
    size_t width_bytes, height, depth;
};
_Static_assert(sizeof(struct copy3d) == 200, "CUDA_MEMCPY3D_v2");

struct launch_config { /* CUlaunchConfig */
    uint grid[3], block[3], shared_bytes;
    void *stream;
    void *attributes;
    uint attribute_count;
};
_Static_assert(sizeof(struct launch_config) == 56, "CUlaunchConfig");

struct pool_properties { /* CUmemPoolProps */
    int allocation_type, handle_types, location_type, location_id;
    void *security;
    size_t max_size;
    unsigned char reserved[56];
};

struct allocation_properties { /* CUmemAllocationProp */
    int type, handle_types, location_type, location_id;
    void *metadata;
    unsigned char flags[8];
};

struct access { /* CUmemAccessDesc */
    int location_type, location_id, flags;
};

#define LAUNCH_ARGUMENTS void *function, uint gx, uint gy, uint gz, uint bx, uint by, uint bz, uint shared_bytes, void *stream, void **parameters
#define DRIVER_FUNCTIONS(X)                                                                                            \
    X(cuInit, (uint flags))                                                                                            \
    X(cuDeviceGet, (int *device, int ordinal))                                                                         \
    X(cuDeviceGetCount, (int *count))                                                                                  \
    X(cuDevicePrimaryCtxRetain, (void **context, int device))                                                          \
    X(cuCtxSetCurrent, (void *context))                                                                                \
    X(cuCtxSynchronize, (void))                                                                                        \
    X(cuModuleLoadData, (void **module, const void *image))                                                            \
    X(cuModuleUnload, (void *module))                                                                                  \
    X(cuModuleGetFunction, (void **function, void *module, const char *name))                                          \
    X(cuStreamCreate, (void **stream, uint flags))                                                                     \
    X(cuStreamDestroy_v2, (void *stream))                                                                              \
    X(cuStreamSynchronize, (void *stream))                                                                             \
    X(cuStreamSynchronize_ptsz, (void *stream))                                                                        \
    X(cuStreamBeginCapture_v2, (void *stream, int mode))                                                               \
    X(cuStreamEndCapture, (void *stream, void **graph))                                                                \
    X(cuEventCreate, (void **event, uint flags))                                                                       \
    X(cuEventRecord, (void *event, void *stream))                                                                      \
    X(cuEventSynchronize, (void *event))                                                                               \
    X(cuEventQuery, (void *event))                                                                                     \
    X(cuEventElapsedTime, (float *milliseconds, void *begin, void *end))                                               \
    X(cuStreamQuery, (void *stream))                                                                                   \
    X(cuStreamWaitEvent, (void *stream, void *event, uint flags))                                                      \
    X(cuLaunchHostFunc, (void *stream, void (*function)(void *), void *data))                                          \
    X(cuEventDestroy_v2, (void *event))                                                                                \
    X(cuLaunchKernel, (LAUNCH_ARGUMENTS, void **extra))                                                                \
    X(cuLaunchKernel_ptsz, (LAUNCH_ARGUMENTS, void **extra))                                                           \
    X(cuLaunchKernelEx, (const struct launch_config *config, void *function, void **parameters, void **extra))         \
    X(cuLaunchKernelEx_ptsz, (const struct launch_config *config, void *function, void **parameters, void **extra))    \
    X(cuLaunchCooperativeKernel, (LAUNCH_ARGUMENTS))                                                                   \
    X(cuLaunchCooperativeKernel_ptsz, (LAUNCH_ARGUMENTS))                                                              \
    X(cuGraphInstantiateWithFlags, (void **executable, void *graph, unsigned long long flags))                         \
    X(cuGraphLaunch, (void *executable, void *stream))                                                                 \
    X(cuGraphLaunch_ptsz, (void *executable, void *stream))                                                            \
    X(cuGraphExecDestroy, (void *executable))                                                                          \
    X(cuGraphDestroy, (void *graph))                                                                                   \
    X(cuMemAlloc_v2, (devptr * pointer, size_t bytes))                                                                 \
    X(cuMemAllocPitch_v2, (devptr * pointer, size_t *pitch, size_t width, size_t height, uint element))                \
    X(cuMemAllocManaged, (devptr * pointer, size_t bytes, uint flags))                                                 \
    X(cuMemFree_v2, (devptr pointer))                                                                                  \
    X(cuMemHostAlloc, (void **pointer, size_t bytes, uint flags))                                                      \
    X(cuMemAllocHost_v2, (void **pointer, size_t bytes))                                                               \
    X(cuMemFreeHost, (void *pointer))                                                                                  \
    X(cuMemHostRegister_v2, (void *pointer, size_t bytes, uint flags))                                                 \
    X(cuMemHostUnregister, (void *pointer))                                                                            \
    X(cuMemPoolCreate, (void **pool, const struct pool_properties *properties))                                        \
    X(cuMemPoolDestroy, (void *pool))                                                                                  \
    X(cuMemAllocAsync, (devptr * pointer, size_t bytes, void *stream))                                                 \
    X(cuMemAllocAsync_ptsz, (devptr * pointer, size_t bytes, void *stream))                                            \
    X(cuMemAllocFromPoolAsync, (devptr * pointer, size_t bytes, void *pool, void *stream))                             \
    X(cuMemFreeAsync, (devptr pointer, void *stream))                                                                  \
    X(cuMemFreeAsync_ptsz, (devptr pointer, void *stream))                                                             \
    X(cuMemGetAllocationGranularity, (size_t * bytes, const struct allocation_properties *properties, int option))     \
    X(cuMemAddressReserve, (devptr * pointer, size_t bytes, size_t alignment, devptr at, unsigned long long flags))    \
    X(cuMemAddressFree, (devptr pointer, size_t bytes))                                                                \
    X(cuMemCreate, (uint64_t * handle, size_t bytes, const struct allocation_properties *p, unsigned long long flags)) \
    X(cuMemMap, (devptr pointer, size_t bytes, size_t offset, uint64_t handle, unsigned long long flags))              \
    X(cuMemSetAccess, (devptr pointer, size_t bytes, const struct access *access, size_t count))                       \
    X(cuMemUnmap, (devptr pointer, size_t bytes))                                                                      \
    X(cuMemRelease, (uint64_t handle))                                                                                 \
    X(cuMemcpy, (devptr to, devptr from, size_t bytes))                                                                \
    X(cuMemcpyAsync, (devptr to, devptr from, size_t bytes, void *stream))                                             \
    X(cuMemcpyHtoD_v2, (devptr to, const void *from, size_t bytes))                                                    \
    X(cuMemcpyHtoD_v2_ptds, (devptr to, const void *from, size_t bytes))                                               \
    X(cuMemcpyHtoDAsync_v2, (devptr to, const void *from, size_t bytes, void *stream))                                 \
    X(cuMemcpyDtoH_v2, (void *to, devptr from, size_t bytes))                                                          \
    X(cuMemcpyDtoHAsync_v2, (void *to, devptr from, size_t bytes, void *stream))                                       \
    X(cuMemcpyDtoHAsync_v2_ptsz, (void *to, devptr from, size_t bytes, void *stream))                                  \
    X(cuMemcpyDtoD_v2, (devptr to, devptr from, size_t bytes))                                                         \
    X(cuMemcpyDtoDAsync_v2, (devptr to, devptr from, size_t bytes, void *stream))                                      \
    X(cuMemcpyPeer, (devptr to, void *to_context, devptr from, void *from_context, size_t bytes))                      \
    X(cuMemcpyPeerAsync, (devptr to, void *to_context, devptr from, void *from_context, size_t bytes, void *stream))   \
    X(cuMemcpy2D_v2, (const struct copy2d *copy))                                                                      \
    X(cuMemcpy2DUnaligned_v2, (const struct copy2d *copy))                                                             \
    X(cuMemcpy2DAsync_v2, (const struct copy2d *copy, void *stream))                                                   \
    X(cuMemcpy3D_v2, (const struct copy3d *copy))                                                                      \
    X(cuMemcpy3DAsync_v2, (const struct copy3d *copy, void *stream))                                                   \
    X(cuMemcpy3DPeer, (const struct copy3d *copy))                                                                     \
    X(cuMemcpy3DPeerAsync, (const struct copy3d *copy, void *stream))                                                  \
    X(cuMemsetD8_v2, (devptr to, unsigned char value, size_t count))                                                   \
    X(cuMemsetD16_v2, (devptr to, unsigned short value, size_t count))                                                 \
    X(cuMemsetD32_v2, (devptr to, uint value, size_t count))                                                           \
    X(cuMemsetD32_v2_ptds, (devptr to, uint value, size_t count))                                                      \
    X(cuMemsetD2D8_v2, (devptr to, size_t pitch, unsigned char value, size_t width, size_t height))                    \
    X(cuMemsetD2D16_v2, (devptr to, size_t pitch, unsigned short value, size_t width, size_t height))                  \
    X(cuMemsetD2D32_v2, (devptr to, size_t pitch, uint value, size_t width, size_t height))                            \
    X(cuMemsetD8Async, (devptr to, unsigned char value, size_t count, void *stream))                                   \
    X(cuMemsetD16Async, (devptr to, unsigned short value, size_t count, void *stream))                                 \
    X(cuMemsetD32Async, (devptr to, uint value, size_t count, void *stream))                                           \
    X(cuMemsetD8Async_ptsz, (devptr to, unsigned char value, size_t count, void *stream))                              \
    X(cuMemsetD2D32Async, (devptr to, size_t pitch, uint value, size_t width, size_t height, void *stream))

struct driver {
#define X(name, arguments) int(*name) arguments;
    DRIVER_FUNCTIONS(X)
#undef X
};

extern struct driver cu;

/* Maps libcuda.so.1 and finds every function above; ends the program with a message when it cannot. */
void driver_open(void);

/* Ends the program when a driver call fails. */
#define CHECK(call) driver_check((call), #call)
void driver_check(int result, const char *call);
#endif
