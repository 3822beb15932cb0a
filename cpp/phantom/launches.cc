// SPDX-License-Identifier: Apache-2.0
// Launches of kernels, which do nothing. Whoever watches ops is told, in the thread of the launch.
#include <cuda_runtime_api.h>

#include <atomic>

#include "address_space.h"
#include "export.h"

namespace phantom {

namespace {

std::atomic<void (*)()> launch_watcher{nullptr};

cudaError_t Launched() {
  if (void (*told)() = launch_watcher) told();
  return cudaSuccess;
}

}  // namespace

}  // namespace phantom

using namespace phantom;

MEMC_PHANTOM_EXPORT void memc_phantom_watch_launches(void (*launch)()) { launch_watcher = launch; }

// For who knows that a kernel does more than fill memory.
MEMC_PHANTOM_EXPORT void memc_phantom_grow_local_memory() { GrowLocalMemory(); }

MEMC_PHANTOM_EXPORT cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, size_t,
                                                 cudaStream_t) {
  return Launched();
}
MEMC_PHANTOM_EXPORT cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void*,
                                                    void**) {
  return Launched();
}
MEMC_PHANTOM_EXPORT cudaError_t cudaLaunchCooperativeKernel(const void*, dim3, dim3, void**, size_t,
                                                            cudaStream_t) {
  return Launched();
}
MEMC_PHANTOM_EXPORT cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t,
                                                   cudaStream_t) {
  return Launched();
}
