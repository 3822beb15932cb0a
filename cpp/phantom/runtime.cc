// SPDX-License-Identifier: Apache-2.0
// The CUDA runtime without a device: streams and events are done at once, kernels are not launched.
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <utility>

#include "device.h"
#include "errors.h"
#include "export.h"
#include "reads.h"

namespace phantom {

namespace {

thread_local cudaError_t last = cudaSuccess;
thread_local int current_device = 0;
std::atomic<int64_t (*)(size_t)> read_watcher{nullptr};
std::atomic<void (*)(const void*)> write_watcher{nullptr};
std::atomic<void (*)()> plan_watcher{nullptr};

struct Launch {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
};
thread_local Launch pushed;

template <typename Handle>
cudaError_t New(Handle* made) {
  *made = reinterpret_cast<Handle>(NewHandle());
  return cudaSuccess;
}

}  // namespace

cudaError_t Failed(cudaError_t error) { return last = error; }

int64_t CountRead(size_t bytes) {
  int64_t (*told)(size_t) = read_watcher;
  return told == nullptr ? -1 : told(bytes);
}

void CountWrite(const void* to) {
  if (void (*told)(const void*) = write_watcher) told(to);
}

void CountTensorCores() {
  if (void (*told)() = plan_watcher) told();
}

}  // namespace phantom

using namespace phantom;

MEMC_PHANTOM_EXPORT void memc_phantom_watch(int64_t (*read)(size_t), void (*write)(const void*),
                                            void (*plan)()) {
  read_watcher = read;
  write_watcher = write;
  plan_watcher = plan;
}

MEMC_PHANTOM_EXPORT cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}
MEMC_PHANTOM_EXPORT cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= Number("count")) return Failed(cudaErrorInvalidDevice);
  current_device = device;
  return cudaSuccess;
}
MEMC_PHANTOM_EXPORT cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return cudaSuccess;
}
MEMC_PHANTOM_EXPORT cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) {
  return New(pool);
}

MEMC_PHANTOM_EXPORT cudaError_t cudaEventCreate(cudaEvent_t* event) { return New(event); }
MEMC_PHANTOM_EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return New(event);
}
MEMC_PHANTOM_EXPORT cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t,
                                                     cudaEvent_t) {
  *milliseconds = MillisecondsOfPlan();
  return cudaSuccess;
}
MEMC_PHANTOM_EXPORT cudaError_t cudaStreamCreate(cudaStream_t* stream) { return New(stream); }
MEMC_PHANTOM_EXPORT cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return New(stream);
}
MEMC_PHANTOM_EXPORT cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  return New(stream);
}
MEMC_PHANTOM_EXPORT cudaError_t cudaStreamGetPriority(cudaStream_t, int* priority) {
  *priority = 0;
  return cudaSuccess;
}
MEMC_PHANTOM_EXPORT cudaError_t cudaStreamAddCallback(cudaStream_t stream,
                                                      cudaStreamCallback_t called, void* data,
                                                      unsigned) {
  called(stream, cudaSuccess, data);
  return cudaSuccess;
}
MEMC_PHANTOM_EXPORT cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t called, void* data) {
  called(data);
  return cudaSuccess;
}

MEMC_PHANTOM_EXPORT cudaError_t cudaGetLastError() { return std::exchange(last, cudaSuccess); }
MEMC_PHANTOM_EXPORT cudaError_t cudaPeekAtLastError() { return last; }
MEMC_PHANTOM_EXPORT const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    default:
      return "an error of the phantom device";
  }
}
MEMC_PHANTOM_EXPORT const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaError";
}

MEMC_PHANTOM_EXPORT cudaError_t cudaGetSymbolAddress(void** address, const void* symbol) {
  *address = const_cast<void*>(symbol);
  return cudaSuccess;
}
MEMC_PHANTOM_EXPORT cudaError_t
cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                 cudaDriverEntryPointQueryResult* result) {
  *function = dlsym(RTLD_DEFAULT, name);
  if (result != nullptr) {
    *result =
        *function == nullptr ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
  }
  return *function == nullptr ? cudaErrorSymbolNotFound : cudaSuccess;
}

// What a kernel needs of a multiprocessor is not known: these are common figures, on which only the
// shape of launches depends, and no allocation that was found.
MEMC_PHANTOM_EXPORT cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* found, const void*) {
  std::memset(found, 0, sizeof *found);
  found->maxThreadsPerBlock = 1024;
  found->numRegs = 32;
  found->binaryVersion = found->ptxVersion =
      static_cast<int>(10 * Number("major") + Number("minor"));
  found->maxDynamicSharedSizeBytes = static_cast<int>(Number("sharedMemPerBlockOptin"));
  return cudaSuccess;
}
MEMC_PHANTOM_EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* blocks, const void*, int threads, size_t, unsigned) {
  const int most = static_cast<int>(Number("maxThreadsPerMultiProcessor"));
  *blocks = threads > 0 && most > threads ? most / threads : 1;
  return cudaSuccess;
}
MEMC_PHANTOM_EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks,
                                                                              const void* kernel,
                                                                              int threads,
                                                                              size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, kernel, threads, shared, 0);
}

// A launch is pushed and popped around a kernel's own stub; kernels of fat binaries are not loaded.
extern "C" {
__attribute__((visibility("default"))) unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block,
                                                                            size_t shared,
                                                                            CUstream_st* stream) {
  pushed = {grid, block, shared, stream};
  return 0;
}
__attribute__((visibility("default"))) cudaError_t __cudaPopCallConfiguration(dim3* grid,
                                                                              dim3* block,
                                                                              size_t* shared,
                                                                              void* stream) {
  *grid = pushed.grid;
  *block = pushed.block;
  *shared = pushed.shared;
  *static_cast<cudaStream_t*>(stream) = pushed.stream;
  return cudaSuccess;
}
__attribute__((visibility("default"))) void** __cudaRegisterFatBinary(void*) {
  static void* binary;
  return &binary;
}
__attribute__((visibility("default"))) cudaError_t __cudaGetKernel(cudaKernel_t* kernel,
                                                                   const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}
}
