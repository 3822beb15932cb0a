// SPDX-License-Identifier: Apache-2.0
// Scatters by memc's own kernels (runtime/codegen/cuda_kernels/scatters.cu): updates are sorted by
// the places that they go to, in n log n steps.
#ifndef MEMC_CUDA_SCATTERS_H_
#define MEMC_CUDA_SCATTERS_H_

#include <cstdint>
#include <vector>

#include "cuda/cuda_context.h"

namespace memc::cuda {

constexpr size_t kMostScatterAxes = 8;

struct Scattered {
  const void* indices = nullptr;
  bool is_wide = true;  // Indices of 64 bits, else 32.
  // Of elements: the shapes of the updates and the result, and the axis along which indices say
  // where an update goes. Of rows: axis -1, and `to` are the extents that coordinates name.
  std::vector<int64_t> from, to;
  int64_t axis = -1;
  int64_t lead = 1;       // Tables, of rows.
  int64_t count = 0;      // Updates, or rows of them of each table.
  int64_t row = 1;        // Elements of a row.
  int64_t reduction = 0;  // 0 none, 1 sum, 2 product, 3 greatest, 4 least.
  bool positions = false;
  int64_t bytes = 4, number = 2;  // Of an update: 0 unsigned, 1 signed, 2 float, 3 brain float.
  int64_t result_bytes = 4;
  const void* updates = nullptr;
  const void* start = nullptr;  // May be the result; null: what the reduction begins with.
  void* result = nullptr;
};

// Bytes of workspace: for the sorted updates twice, and for what many updates of one place amount
// to.
int64_t ScatterRoom(const Scattered& scattered);

// Enqueues it. Floats are combined in f64 and rounded once. Throws std::invalid_argument for a
// workspace that is too small and for more places or updates than can be counted in 31 bits,
// std::runtime_error if a launch fails.
void ScatterUpdates(const Scattered& scattered, const Place& place);

}  // namespace memc::cuda

#endif  // MEMC_CUDA_SCATTERS_H_
