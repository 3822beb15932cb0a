// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_IMPROVE_H_
#define MEMC_IMPROVE_H_

#include <cstdint>
#include <vector>

#include "solvers/common/budget.h"
#include "solvers/placement/problem.h"

namespace memc {

// Buffers without a fixed offset below which there is nothing to improve.
constexpr int64_t kLeastMovable = 3;

// The best plan of first fit over orders that are improved step by step ("squeaky wheel"
// optimization, Joslin and Clements 1999), from each of `starts` in turn, until a peak of `target`
// bytes, the work (about 10^8 in 0.3 s) or the time is over. Never above the best start. Another
// `seed` takes other steps.
Solution ImproveOrders(const Problem& problem, const std::vector<Solution>& starts, int64_t target,
                       int64_t work, uint64_t seed, const Budget& budget);

}  // namespace memc

#endif  // MEMC_IMPROVE_H_
