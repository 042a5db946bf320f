// SPDX-License-Identifier: Apache-2.0
#include "memory_mix.h"
#include "driver.h"
#include <stdlib.h>

/* Around the powers of two, where histogram buckets end, and beyond what one page or one call's register holds. */
static const size_t sizes[] = {1, 2, 3, 4096, 4097, 65536, 1000003, 1 << 20};
enum { SIZES = sizeof sizes / sizeof *sizes, LARGEST = 1 << 20, ROWS = 7, SLICES = 3, PITCH = 1024 };

struct buffers {
    devptr device, other, managed, pitched, far;
    void *pinned, *pinned_too, *registered, *pageable;
    size_t pitch;
};

static void allocate(struct tally *tally, struct buffers *b, size_t size, void *contexts[2])
{
    size_t row = size % 600 + 1;
    CHECK(cu.cuMemAlloc_v2(&b->device, LARGEST));
    amount_add(&tally->allocated[DEVICE], LARGEST);
    CHECK(cu.cuMemAlloc_v2(&b->other, LARGEST + size));
    amount_add(&tally->allocated[DEVICE], LARGEST + size);
    CHECK(cu.cuMemAllocPitch_v2(&b->pitched, &b->pitch, row, ROWS, 4));
    amount_add(&tally->allocated[DEVICE], b->pitch * ROWS);
    CHECK(cu.cuMemAllocManaged(&b->managed, LARGEST, 1));
    amount_add(&tally->allocated[MANAGED], LARGEST);
    CHECK(cu.cuMemHostAlloc(&b->pinned, LARGEST, 0));
    CHECK(cu.cuMemAllocHost_v2(&b->pinned_too, size));
    amount_add(&tally->allocated[HOST], LARGEST);
    amount_add(&tally->allocated[HOST], size);
    b->pageable = malloc(LARGEST);
    b->registered = malloc(LARGEST);
    CHECK(cu.cuMemHostRegister_v2(b->registered, LARGEST, 0));
    amount_add(&tally->allocated[REGISTERED], LARGEST);
    b->far = 0;
    if (contexts[0] != contexts[1]) {
        CHECK(cu.cuCtxSetCurrent(contexts[1]));
        CHECK(cu.cuMemAlloc_v2(&b->far, LARGEST));
        amount_add(&tally->allocated[DEVICE], LARGEST);
        CHECK(cu.cuCtxSetCurrent(contexts[0]));
    }
}

static void release(struct tally *tally, struct buffers *b, size_t size)
{
    CHECK(cu.cuMemFree_v2(b->device));
    amount_add(&tally->freed[DEVICE], LARGEST);
    CHECK(cu.cuMemFree_v2(b->other));
    amount_add(&tally->freed[DEVICE], LARGEST + size);
    CHECK(cu.cuMemFree_v2(b->pitched));
    amount_add(&tally->freed[DEVICE], b->pitch * ROWS);
    CHECK(cu.cuMemFree_v2(b->managed));
    amount_add(&tally->freed[MANAGED], LARGEST);
    CHECK(cu.cuMemFreeHost(b->pinned));
    CHECK(cu.cuMemFreeHost(b->pinned_too));
    amount_add(&tally->freed[HOST], LARGEST);
    amount_add(&tally->freed[HOST], size);
    CHECK(cu.cuMemHostUnregister(b->registered));
    amount_add(&tally->freed[REGISTERED], LARGEST);
    free(b->pageable);
    free(b->registered);
    if (b->far) {
        CHECK(cu.cuMemFree_v2(b->far));
        amount_add(&tally->freed[DEVICE], LARGEST);
    }
}

static void copy_linear(struct tally *tally, const struct buffers *b, size_t n, void *stream)
{
    CHECK(cu.cuMemcpyHtoD_v2(b->device, b->pageable, n));
    CHECK(cu.cuMemcpyHtoD_v2_ptds(b->device, b->pageable, n));
    CHECK(cu.cuMemcpyHtoDAsync_v2(b->device, b->pageable, n, stream));
    for (int i = 0; i < 3; i++)
        tally_copy(tally, HTOD, PAGEABLE, n);
    CHECK(cu.cuMemcpyHtoD_v2(b->device, b->pinned, n));
    CHECK(cu.cuMemcpyHtoDAsync_v2(b->device, b->registered, n, stream));
    for (int i = 0; i < 2; i++)
        tally_copy(tally, HTOD, PINNED, n);

    CHECK(cu.cuMemcpyDtoH_v2(b->pageable, b->device, n));
    tally_copy(tally, DTOH, PAGEABLE, n);
    CHECK(cu.cuMemcpyDtoH_v2(b->registered, b->device, n));
    CHECK(cu.cuMemcpyDtoHAsync_v2(b->pinned, b->device, n, stream));
    CHECK(cu.cuMemcpyDtoHAsync_v2_ptsz(b->pinned, b->device, n, NULL));
    for (int i = 0; i < 3; i++)
        tally_copy(tally, DTOH, PINNED, n);

    CHECK(cu.cuMemcpyDtoD_v2(b->other, b->device, n));
    CHECK(cu.cuMemcpyDtoDAsync_v2(b->managed, b->device, n, stream));
    for (int i = 0; i < 2; i++)
        tally_copy(tally, DTOD, NO_HOST, n);

    CHECK(cu.cuMemcpy(b->device, (devptr)(uintptr_t)b->pageable, n));
    /* Whoever came late cannot know that this is no older memory of a device. */
    tally_copy(tally, DEFAULT, NO_HOST, n);
    CHECK(cu.cuMemcpyAsync((devptr)(uintptr_t)b->pinned, b->device, n, stream));
    tally_copy(tally, DTOH, PINNED, n);
}

static void copy_peer(struct tally *tally, const struct buffers *b, size_t n, void *contexts[2], void *stream)
{
    if (!b->far)
        return;
    CHECK(cu.cuMemcpyPeer(b->far, contexts[1], b->device, contexts[0], n));
    CHECK(cu.cuMemcpyPeerAsync(b->device, contexts[0], b->far, contexts[1], n, stream));
    for (int i = 0; i < 2; i++)
        tally_copy(tally, PEER, NO_HOST, n);
    struct copy3d copy = {
        .src_type = MEMORY_DEVICE, .src_device = b->device, .src_context = contexts[0], .src_pitch = PITCH,
        .src_height = ROWS, .dst_type = MEMORY_DEVICE, .dst_device = b->far, .dst_context = contexts[1],
        .dst_pitch = PITCH, .dst_height = ROWS, .width_bytes = n % 900 + 1, .height = ROWS, .depth = SLICES,
    };
    CHECK(cu.cuMemcpy3DPeer(&copy));
    CHECK(cu.cuMemcpy3DPeerAsync(&copy, stream));
    for (int i = 0; i < 2; i++)
        tally_copy(tally, PEER, NO_HOST, copy.width_bytes * copy.height * copy.depth);
}

static void copy_shaped(struct tally *tally, const struct buffers *b, size_t n, void *stream)
{
    struct copy2d plane = {
        .src_type = MEMORY_HOST, .src_host = b->pageable, .src_pitch = PITCH, .dst_type = MEMORY_DEVICE,
        .dst_device = b->device, .dst_pitch = PITCH, .width_bytes = n % 700 + 1, .height = ROWS,
    };
    size_t bytes = plane.width_bytes * plane.height;
    CHECK(cu.cuMemcpy2D_v2(&plane));
    tally_copy(tally, HTOD, PAGEABLE, bytes);
    plane.src_type = MEMORY_DEVICE, plane.src_device = b->other;
    CHECK(cu.cuMemcpy2DAsync_v2(&plane, stream));
    tally_copy(tally, DTOD, NO_HOST, bytes);
    plane.dst_type = MEMORY_HOST, plane.dst_host = b->pinned;
    CHECK(cu.cuMemcpy2DUnaligned_v2(&plane));
    tally_copy(tally, DTOH, PINNED, bytes);

    struct copy3d box = {
        .src_type = MEMORY_HOST, .src_host = b->pinned, .src_pitch = PITCH, .src_height = ROWS,
        .dst_type = MEMORY_DEVICE, .dst_device = b->device, .dst_pitch = PITCH, .dst_height = ROWS,
        .width_bytes = n % 800 + 1, .height = ROWS, .depth = SLICES,
    };
    bytes = box.width_bytes * box.height * box.depth;
    CHECK(cu.cuMemcpy3D_v2(&box));
    tally_copy(tally, HTOD, PINNED, bytes);
    box.src_type = MEMORY_DEVICE, box.src_device = b->other;
    box.dst_type = MEMORY_HOST, box.dst_host = b->pageable;
    CHECK(cu.cuMemcpy3DAsync_v2(&box, stream));
    tally_copy(tally, DTOH, PAGEABLE, bytes);
}

static void set(struct tally *tally, const struct buffers *b, size_t n, void *stream)
{
    size_t few = n % 1000 + 1;
    CHECK(cu.cuMemsetD8_v2(b->device, 1, n));
    CHECK(cu.cuMemsetD8Async(b->device, 2, n, stream));
    CHECK(cu.cuMemsetD8Async_ptsz(b->device, 3, n, NULL));
    for (int i = 0; i < 3; i++)
        amount_add(&tally->memsets, n);
    CHECK(cu.cuMemsetD16_v2(b->device, 4, few));
    CHECK(cu.cuMemsetD16Async(b->device, 5, few, stream));
    for (int i = 0; i < 2; i++)
        amount_add(&tally->memsets, few * 2);
    CHECK(cu.cuMemsetD32_v2(b->device, 6, few));
    CHECK(cu.cuMemsetD32_v2_ptds(b->device, 7, few));
    CHECK(cu.cuMemsetD32Async(b->device, 8, few, stream));
    for (int i = 0; i < 3; i++)
        amount_add(&tally->memsets, few * 4);
    size_t width = n % 120 + 1;
    CHECK(cu.cuMemsetD2D8_v2(b->device, PITCH, 9, width, ROWS));
    amount_add(&tally->memsets, width * ROWS);
    CHECK(cu.cuMemsetD2D16_v2(b->device, PITCH, 10, width, ROWS));
    amount_add(&tally->memsets, width * ROWS * 2);
    CHECK(cu.cuMemsetD2D32_v2(b->device, PITCH, 11, width, ROWS));
    CHECK(cu.cuMemsetD2D32Async(b->device, PITCH, 12, width, ROWS, stream));
    for (int i = 0; i < 2; i++)
        amount_add(&tally->memsets, width * ROWS * 4);
}

static void pools(struct tally *tally, size_t n, void *stream)
{
    devptr pointers[3];
    struct pool_properties properties = {.allocation_type = 1, .location_type = 1};
    void *pool;
    CHECK(cu.cuMemPoolCreate(&pool, &properties));
    CHECK(cu.cuMemAllocAsync(&pointers[0], n, stream));
    CHECK(cu.cuMemAllocAsync_ptsz(&pointers[1], n, NULL));
    CHECK(cu.cuMemAllocFromPoolAsync(&pointers[2], n, pool, stream));
    CHECK(cu.cuMemFreeAsync(pointers[0], stream));
    CHECK(cu.cuMemFreeAsync_ptsz(pointers[1], NULL));
    CHECK(cu.cuMemFreeAsync(pointers[2], stream));
    CHECK(cu.cuMemPoolDestroy(pool));
    for (int i = 0; i < 3; i++) {
        amount_add(&tally->allocated[ASYNC], n);
        amount_add(&tally->freed[ASYNC], n);
    }
}

static void virtual_memory(struct tally *tally)
{
    struct allocation_properties properties = {.type = 1, .location_type = 1};
    struct access access = {.location_type = 1, .flags = 3};
    size_t bytes;
    devptr pointer;
    uint64_t handle;
    CHECK(cu.cuMemGetAllocationGranularity(&bytes, &properties, 0));
    CHECK(cu.cuMemAddressReserve(&pointer, bytes, 0, 0, 0));
    CHECK(cu.cuMemCreate(&handle, bytes, &properties, 0));
    amount_add(&tally->allocated[VIRTUAL], bytes);
    CHECK(cu.cuMemMap(pointer, bytes, 0, handle, 0));
    CHECK(cu.cuMemSetAccess(pointer, bytes, &access, 1));
    CHECK(cu.cuMemUnmap(pointer, bytes));
    CHECK(cu.cuMemRelease(handle));
    amount_add(&tally->freed[VIRTUAL], bytes);
    CHECK(cu.cuMemAddressFree(pointer, bytes));
}

static void synchronise(struct tally *tally, void *stream)
{
    void *event;
    CHECK(cu.cuEventCreate(&event, 0));
    CHECK(cu.cuEventRecord(event, stream));
    CHECK(cu.cuEventSynchronize(event));
    CHECK(cu.cuEventDestroy_v2(event));
    CHECK(cu.cuStreamSynchronize(stream));
    CHECK(cu.cuStreamSynchronize_ptsz(NULL));
    CHECK(cu.cuCtxSynchronize());
    for (int s = 0; s < SYNC_CALLS; s++)
        tally->syncs[s]++;
}

void memory_mix(struct tally *tally, unsigned round, void *contexts[2])
{
    size_t size = sizes[round % SIZES];
    struct buffers buffers;
    void *stream;
    CHECK(cu.cuStreamCreate(&stream, 0));
    allocate(tally, &buffers, size, contexts);
    copy_linear(tally, &buffers, size, stream);
    copy_peer(tally, &buffers, size, contexts, stream);
    copy_shaped(tally, &buffers, size, stream);
    set(tally, &buffers, size, stream);
    pools(tally, size, stream);
    virtual_memory(tally);
    synchronise(tally, stream);
    release(tally, &buffers, size);
    CHECK(cu.cuStreamDestroy_v2(stream));
}

void memory_errors(struct tally *tally)
{
    devptr pointer;
    if (cu.cuMemAlloc_v2(&pointer, (size_t)1 << 60) == 2)
        tally->failed_allocs++;
    if (cu.cuMemFree_v2(0x1234) == 1)
        tally->failed_frees++;
}
