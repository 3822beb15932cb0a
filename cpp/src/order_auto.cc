// SPDX-License-Identifier: Apache-2.0
// The portfolio: the fast heuristics from both ends.
#include <algorithm>

#include "memc/order_state.h"

namespace memc {

OrderResult AutoOrderSolver(const OrderProblem& problem, const OrderOptions& options) {
  OrderResult result = GivenSolver(problem, options);
  if (!SumsFit(problem)) return result;
  const int64_t enough = std::max(result.lower_bound, options.target);
  const OrderGraph forward = MakeOrderGraph(problem, Direction::kForward);
  const OrderGraph backward = Reversed(forward);
  for (ListRule rule : {ListRule::kNet, ListRule::kRise, ListRule::kShrink, ListRule::kNewest}) {
    if (result.peak <= enough) return result;
    Offer(problem, ListOrder(forward, rule), &result);
    if (result.peak <= enough) return result;
    std::vector<int32_t> order = ListOrder(backward, rule);
    std::reverse(order.begin(), order.end());
    Offer(problem, std::move(order), &result);
  }
  if (result.peak > enough) Offer(problem, DepthFirstOrder(forward), &result);
  return result;
}

}  // namespace memc
