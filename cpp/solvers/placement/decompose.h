// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_DECOMPOSE_H_
#define MEMC_DECOMPOSE_H_

#include <cstdint>
#include <vector>

#include "solvers/placement/problem.h"

namespace memc {

// Some buffers of a problem, to be placed at `base` bytes and above, on their own. Any plan needs
// at least `base` bytes plus the least peak of the part.
struct Part {
  std::vector<int32_t> buffers;  // Indices.
  int64_t base;
};

struct Decomposition {
  std::vector<int64_t> offsets;  // Bytes, of buffers in no part.
  std::vector<Part> parts;
};

// Takes a problem apart at moments at which nothing is live, and below buffers that are live
// throughout. Near O(n log n).
Decomposition Decompose(const Problem& problem);

}  // namespace memc

#endif  // MEMC_DECOMPOSE_H_
