// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_LOWER_BOUND_H_
#define MEMC_LOWER_BOUND_H_

#include <cstdint>

#include "solvers/placement/problem.h"

namespace memc {

// The largest sum of rounded sizes live at one time, in bytes: no plan has a lower peak.
// A buffer with a fixed offset raises it to that buffer's end. O(n log n).
int64_t LowerBound(const Problem& problem);

}  // namespace memc

#endif  // MEMC_LOWER_BOUND_H_
