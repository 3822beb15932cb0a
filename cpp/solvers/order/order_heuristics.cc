// SPDX-License-Identifier: Apache-2.0
#include "solvers/order/order_heuristics.h"

#include <utility>

namespace memc {

void Offer(const OrderProblem& problem, std::vector<int32_t> order, OrderResult* result) {
  const int64_t peak = OrderPeak(problem, order);
  if (peak >= result->peak) return;
  result->peak = peak;
  result->order = std::move(order);
  result->watch.Best(peak);
}

}  // namespace memc
