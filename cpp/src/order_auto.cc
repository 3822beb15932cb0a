// SPDX-License-Identifier: Apache-2.0
// The portfolio: the fast heuristics from both ends, then a lower bound, then beams of growing
// width that end with a proof if they can, and local search where the graph is too large for them.
#include <algorithm>
#include <utility>

#include "memc/order_bound.h"
#include "memc/order_exact.h"
#include "memc/order_heuristics.h"

namespace memc {

namespace {

constexpr int64_t kBoundWork = 50'000'000;   // About 0.5 s.
constexpr int64_t kBeamWork = 300'000'000;   // About 2 s.
constexpr int64_t kExactWork = 200'000'000;  // About 2 s.
constexpr int64_t kExactMemory = 1 << 30;    // Bytes.
constexpr int64_t kLocalWork = 200'000'000;  // About 2 s.
constexpr int64_t kNarrowest = 8;
constexpr int64_t kWidest = 4'096;

int64_t Enough(const OrderResult& result, const OrderOptions& options) {
  return std::max(result.lower_bound, options.target);
}

void TryLists(const OrderProblem& problem, const OrderOptions& options, const OrderGraph& forward,
              OrderResult* result) {
  const OrderGraph backward = Reversed(forward);
  for (ListRule rule : {ListRule::kNet, ListRule::kRise, ListRule::kShrink, ListRule::kNewest}) {
    if (result->peak <= Enough(*result, options)) return;
    Offer(problem, ListOrder(forward, rule), result);
    if (result->peak <= Enough(*result, options)) return;
    std::vector<int32_t> order = ListOrder(backward, rule);
    std::reverse(order.begin(), order.end());
    Offer(problem, std::move(order), result);
  }
  if (result->peak <= Enough(*result, options)) return;
  Offer(problem, DepthFirstOrder(forward), result);
}

}  // namespace

OrderResult AutoOrderSolver(const OrderProblem& problem, const OrderOptions& options) {
  OrderResult result = GivenSolver(problem, options);
  if (!SumsFit(problem)) return result;
  OrderBudget budget(kBeamWork, options.time_limit);
  const OrderGraph graph = MakeOrderGraph(problem, Direction::kForward);
  TryLists(problem, options, graph, &result);
  if (result.peak <= Enough(result, options) || budget.spent()) return result;
  result.lower_bound =
      std::max(result.lower_bound, OrderLowerBound(problem, result.order, kBoundWork));
  // Work of a single beam: a copy of every state, a bit for each op and storage.
  const int64_t bits = problem.ops() + static_cast<int64_t>(problem.sizes.size());
  const bool fits_beam = problem.ops() * (bits / 64 + 1) <= kBeamWork / kNarrowest;
  for (int64_t width = kNarrowest; fits_beam && width <= kWidest; width *= 8) {
    if (result.peak <= Enough(result, options) || budget.spent()) break;
    ImproveByBeam(problem, graph, width, options.target, &budget, &result);
  }
  const bool timed = options.time_limit >= 0;  // Then all share the time.
  if (fits_beam && result.peak > Enough(result, options)) {
    if (!timed) budget = OrderBudget(kExactWork, options.time_limit);
    ImproveExactly(problem, kExactMemory, &budget, &result);
  }
  if (!timed) budget = OrderBudget(kLocalWork, options.time_limit);
  ImproveLocally(problem, graph, options.target, &budget, &result);
  return result;
}

}  // namespace memc
