// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_CUDA_KERNELS_DIVISOR_CUH_
#define MEMC_CUDA_KERNELS_DIVISOR_CUH_

#include "primitives.cuh"

namespace {

// What is divided by, as a factor and a shift: n / by = n * factor >> shift for all n of 31 bits.
// cpp/cuda/cuda_launch.h makes it.
struct Divisor {
  int by;
  unsigned factor;
  int shift;
};

__device__ __forceinline__ int Quotient(int n, const Divisor& d) {
  return static_cast<int>((static_cast<unsigned long long>(n) * d.factor) >> d.shift);
}

}  // namespace

#endif  // MEMC_CUDA_KERNELS_DIVISOR_CUH_
