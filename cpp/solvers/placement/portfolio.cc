// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "solvers/placement/solvers.h"

namespace memc {

std::vector<Solution> Heuristics(const Problem& problem, int64_t target, const Watch& watch) {
  watch.Check();
  std::vector<Solution> plans{BestFit(problem)};
  const bool any_fixed = std::any_of(problem.buffers.begin(), problem.buffers.end(),
                                     [](const Buffer& b) { return b.offset.has_value(); });
  std::vector<Order> orders;
  if (OverlapPairs(problem, kFirstFitPairs) <= kFirstFitPairs) {
    orders = {Order::kSize,  Order::kArea,    Order::kLifetime,
              Order::kGiven, Order::kArrival, Order::kDeparture};
  } else if (!any_fixed && problem.Plain()) {
    orders = {Order::kArrival, Order::kDeparture};
  }
  for (const Order order : orders) {
    if (plans.back().peak <= target) break;
    watch.Check();
    plans.push_back(FirstFit(problem, order));
  }
  return plans;
}

}  // namespace memc
