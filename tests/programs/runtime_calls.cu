// SPDX-License-Identifier: Apache-2.0
// runtime_calls: what does a program on NVIDIA's runtime make of the driver? Launches of several kinds, copies, memsets,
// allocations and waits through the runtime API, in the runtime's own words. Like launch_storm it waits for a line on
// standard input before each phase and prints what it did as JSON; how the runtime's calls arrive at the driver is the
// mock driver's truth to tell.
//
//   runtime_calls [phases [launches [settle seconds]]]     launches: of each kernel and phase
#include <cooperative_groups.h>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <unistd.h>

namespace shop {
__global__ void axpy(int n, float a, const float *x, float *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] += a * x[i];
}
} // namespace shop

template <class T> __global__ void fill(T *p, T value)
{
    p[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

static __global__ void scale(int *p)
{
    p[threadIdx.x] *= 2;
}

__global__ void cooperate(int *p)
{
    cooperative_groups::this_grid().sync();
    *p = 1;
}

__constant__ float table[16];

static void check(cudaError_t result, const char *call)
{
    if (result == cudaSuccess)
        return;
    fprintf(stderr, "%s failed: %s\n", call, cudaGetErrorString(result));
    exit(1);
}
#define CHECK(call) check((call), #call)

static const int N = 1 << 16;

static void launch(int launches, float *x, float *y, cudaStream_t stream)
{
    for (int i = 0; i < launches; i++) {
        shop::axpy<<<N / 256, 256, 0, stream>>>(N, 2.f, x, y);
        fill<float><<<dim3(8, 2, 2), dim3(64, 2)>>>(x, 1.f);
        if (i % 2 == 0)
            scale<<<1, 32>>>(reinterpret_cast<int *>(x));
    }
    CHECK(cudaGetLastError());
    int *argument = reinterpret_cast<int *>(x);
    void *arguments[] = {&argument};
    CHECK(cudaLaunchCooperativeKernel(reinterpret_cast<void *>(cooperate), dim3(4), dim3(64), arguments, 0, stream));
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(16);
    config.blockDim = dim3(32);
    config.stream = stream;
    CHECK(cudaLaunchKernelEx(&config, shop::axpy, N, 1.f, static_cast<const float *>(x), y));
}

static void replay(int times, float *x, cudaStream_t stream)
{
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    fill<int><<<4, 128, 0, stream>>>(reinterpret_cast<int *>(x), 3); /* launched nowhere else */
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    for (int i = 0; i < times; i++)
        CHECK(cudaGraphLaunch(executable, stream));
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
}

static void copy(float *device, cudaStream_t stream)
{
    const size_t bytes = N * sizeof(float);
    float *pageable = static_cast<float *>(calloc(N, sizeof(float))), *pinned, *pitched, *managed, *pooled;
    size_t pitch;
    CHECK(cudaMallocHost(&pinned, bytes));
    CHECK(cudaMallocManaged(&managed, bytes));
    CHECK(cudaMallocPitch(&pitched, &pitch, 1000, 50));
    CHECK(cudaMemcpy(device, pageable, bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(pageable, device, bytes - 4, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpyAsync(device, pinned, bytes - 8, cudaMemcpyHostToDevice, stream));
    CHECK(cudaMemcpyAsync(pinned, device, bytes - 12, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaMemcpyAsync(managed, device, bytes - 16, cudaMemcpyDefault, stream));
    CHECK(cudaMemcpy(device, managed, bytes / 2, cudaMemcpyDeviceToDevice));
    CHECK(cudaMemcpy2D(pitched, pitch, pageable, 1000, 999, 50, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpyToSymbol(table, pageable, sizeof table));
    CHECK(cudaMemset(device, 1, bytes - 20));
    CHECK(cudaMemsetAsync(device, 2, bytes - 24, stream));
    CHECK(cudaMemset2D(pitched, pitch, 0, 997, 50));
    CHECK(cudaMallocAsync(reinterpret_cast<void **>(&pooled), bytes, stream));
    CHECK(cudaFreeAsync(pooled, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaHostRegister(pageable, bytes, 0));
    CHECK(cudaHostUnregister(pageable));
    CHECK(cudaFree(pitched));
    CHECK(cudaFree(managed));
    CHECK(cudaFreeHost(pinned));
    free(pageable);
}

int main(int count, char **words)
{
    int phases = count > 1 ? atoi(words[1]) : 1, launches = count > 2 ? atoi(words[2]) : 1000;
    double settle = count > 3 ? atof(words[3]) : 0;
    usleep(static_cast<useconds_t>(settle * 1e6));
    float *x, *y;
    cudaStream_t stream;
    CHECK(cudaMalloc(&x, N * sizeof(float)));
    CHECK(cudaMalloc(&y, N * sizeof(float)));
    CHECK(cudaStreamCreate(&stream));
    for (int phase = 0; phase < phases; phase++) {
        printf("{\"event\":\"ready\",\"pid\":%d,\"phase\":%d}\n", getpid(), phase);
        fflush(stdout);
        for (int c; (c = getchar()) != '\n' && c != EOF;)
            ;
        launch(launches, x, y, stream);
        replay(7, x, stream);
        copy(x, stream);
        printf("{\"event\":\"phase\",\"pid\":%d,\"phase\":%d,\"kernels\":{\"_ZN4shop4axpyEifPKfPf\":{\"launches\":%d},"
               "\"_Z4fillIfEvPT_S0_\":{\"launches\":%d},\"_Z5scalePi\":{\"launches\":%d},"
               "\"_Z9cooperatePi\":{\"launches\":1}},\"graph_launches\":7,\"graph_kernels\":7}\n",
               getpid(), phase, launches + 1, launches, (launches + 1) / 2);
        fflush(stdout);
    }
    CHECK(cudaFree(x));
    CHECK(cudaFree(y));
    CHECK(cudaStreamDestroy(stream));
    return 0;
}
