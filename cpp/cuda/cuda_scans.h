// SPDX-License-Identifier: Apache-2.0
// Running sums and products of lines by memc's own kernels (runtime/codegen/cuda_kernels/scans.cu).
#ifndef MEMC_CUDA_SCANS_H_
#define MEMC_CUDA_SCANS_H_

#include <cstdint>

#include "cuda/cuda_context.h"
#include "cuda/cuda_sorts.h"

namespace memc::cuda {

struct Scan {
  Lines lines;
  int64_t bytes = 4;      // Of an element: 4 or 8, of integers also 1 or 2.
  bool is_float = false;  // Else integers, which wrap around.
  bool product = false;   // Else a sum.
  bool exclusive = false;
  bool reverse = false;
};

// Bytes of workspace: for what the parts of long lines amount to, 0 where a block takes whole
// lines.
int64_t ScanRoom(const Scan& scan);

// Enqueues it. Sums of f32 are made in f64. Products are made of numbers with exponents of their
// own, and where they leave the type's range one after the other, as numpy makes them. Throws
// std::invalid_argument for a workspace that is too small and for lines that are too long or too
// many, std::runtime_error if a launch fails.
void ScanLines(const Scan& scan, const Place& place, const void* x, void* y);

}  // namespace memc::cuda

#endif  // MEMC_CUDA_SCANS_H_
