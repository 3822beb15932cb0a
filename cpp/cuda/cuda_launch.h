// SPDX-License-Identifier: Apache-2.0
// memc's own CUDA kernels (runtime/codegen/cuda_kernels): loading them, and launching one whose
// blocks work on tiles, several to a tile.
#ifndef MEMC_CUDA_LAUNCH_H_
#define MEMC_CUDA_LAUNCH_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "cuda/cuda_context.h"

namespace memc::cuda {

constexpr int64_t kMostExtent = (int64_t{1} << 31) - 1;  // What the kernels count in.

constexpr int64_t Ceil(int64_t n, int64_t by) { return (n + by - 1) / by; }

// What kernels divide by, as in divisor.cuh.
struct Divisor {
  int by = 1;
  uint32_t factor = 1;
  int shift = 0;
};

Divisor DivisorOf(int by);

inline bool IsAligned(const void* data, size_t bytes) {
  return reinterpret_cast<uintptr_t>(data) % bytes == 0;
}

// What a launch is shared out to: tiles, the blocks of a cluster that share one, and how often all
// of that.
struct Blocks {
  int64_t tiles = 1;
  int64_t splits = 1;
  int64_t batch = 1;
  int threads = 1;            // Of a block.
  unsigned shared_bytes = 0;  // Of a block, beyond what the kernel has by itself.
};

// Takes the kernels of a device from a cubin, too, unless it has that one: artifacts of several
// versions of memc bring their own. Throws std::runtime_error if the driver cannot load it.
void AddKernels(int device, const std::string& cubin);

// Enqueues the kernel of that name, whose only parameter is at `params`, and returns the driver's
// status. With the context's mutex held.
int LaunchKernel(Context& context, const std::string& name, const Blocks& blocks, Stream stream,
                 void* params);

}  // namespace memc::cuda

#endif  // MEMC_CUDA_LAUNCH_H_
