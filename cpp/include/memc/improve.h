// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_IMPROVE_H_
#define MEMC_IMPROVE_H_

#include <cstdint>
#include <vector>

#include "memc/budget.h"

namespace memc {

// The best plan of first fit over orders that are improved step by step ("squeaky wheel"
// optimization, Joslin and Clements 1999), from each of `starts` in turn, until a peak of `target`
// bytes, the work (about 10^8 in 0.3 s) or the time is over. Never above the best start.
Solution ImproveOrders(const Problem& problem, const std::vector<Solution>& starts, int64_t target,
                       int64_t work, const Budget& budget);

}  // namespace memc

#endif  // MEMC_IMPROVE_H_
