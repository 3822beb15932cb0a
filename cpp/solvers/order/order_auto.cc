// SPDX-License-Identifier: Apache-2.0
// The portfolio: the fast heuristics from both ends, then a lower bound, then beams of growing
// width that end with a proof if they can, and local search where the graph is too large for them.
#include <algorithm>
#include <utility>

#include "solvers/order/order_bound.h"
#include "solvers/order/order_exact.h"
#include "solvers/order/order_heuristics.h"

namespace memc {

namespace {

// What each stage gets of the work, in fifteenths.
constexpr int64_t kAll = 15;
constexpr int64_t kBound = 1;
constexpr int64_t kBeam = 6;
constexpr int64_t kExact = 4;
constexpr int64_t kLocal = 4;
constexpr double kBoundShare = 0.25;        // Of the time, if that is limited.
constexpr int64_t kListWork = 300'000'000;  // About 3 s.
constexpr int64_t kExactMemory = 1 << 30;   // Bytes.
constexpr int64_t kNarrowest = 8;
constexpr int64_t kWidest = 4'096;

// The peak below which nothing is sought.
int64_t Enough(const OrderResult& result, const OrderOptions& options) {
  const auto near = static_cast<int64_t>(static_cast<double>(result.lower_bound) * options.slack);
  return std::max(result.lower_bound + near, options.target);
}

bool Done(const OrderResult& result, const OrderOptions& options) {
  return result.peak <= Enough(result, options) || result.lower_bound >= options.worth;
}

void TryLists(const OrderProblem& problem, const OrderOptions& options, const OrderGraph& forward,
              WorkBudget budget, OrderResult* result) {
  const auto relations =
      static_cast<int64_t>(forward.touches.index.size() + forward.after.index.size());
  const auto more = [&] {
    budget.Spend(16 * (forward.ops() + relations));
    return !Done(*result, options) && !budget.spent();
  };
  const OrderGraph backward = Reversed(forward);
  for (ListRule rule : {ListRule::kNet, ListRule::kRise, ListRule::kShrink, ListRule::kNewest}) {
    if (!more()) return;
    Offer(problem, ListOrder(forward, rule), result);
    if (!more()) return;
    std::vector<int32_t> order = ListOrder(backward, rule);
    std::reverse(order.begin(), order.end());
    Offer(problem, std::move(order), result);
  }
  if (more()) Offer(problem, DepthFirstOrder(forward), result);
}

}  // namespace

OrderResult AutoOrderSolver(const OrderProblem& problem, const OrderOptions& options) {
  OrderResult result = GivenSolver(problem, options);
  if (!SumsFit(problem)) return result;
  const int64_t share = options.work / kAll;
  options.watch.Expect(options.work);
  WorkBudget budget(kBeam * share, options.time_limit, options.watch);
  const auto next_stage = [&](int64_t part) {
    result.work += budget.used();
    budget = budget.Stage(part * share, 1);
  };
  const OrderGraph graph = MakeOrderGraph(problem, Direction::kForward);
  TryLists(problem, options, graph, budget.Stage(kListWork, 1), &result);
  if (Done(result, options) || budget.spent()) return result;
  WorkBudget for_bound = budget.Stage(kBound * share, kBoundShare);
  const int64_t bound = OrderLowerBound(problem, result.order, &for_bound);
  result.work += for_bound.used();
  result.lower_bound = std::max(result.lower_bound, bound);
  options.watch.Bound(result.lower_bound);
  // Work of a single beam: a copy of every state, a bit for each op and storage.
  const int64_t bits = problem.ops() + static_cast<int64_t>(problem.sizes.size());
  const bool fits_beam = problem.ops() * (bits / 64 + 1) <= kBeam * share / kNarrowest;
  for (int64_t width = kNarrowest; fits_beam && width <= kWidest; width *= 8) {
    if (Done(result, options) || budget.spent()) break;
    ImproveByBeam(problem, graph, width, Enough(result, options), &budget, &result);
  }
  if (fits_beam && !Done(result, options)) {
    next_stage(kExact);
    ImproveExactly(problem, kExactMemory, &budget, &result);
  }
  if (!Done(result, options)) {
    next_stage(kLocal);
    ImproveLocally(problem, graph, Enough(result, options), &budget, &result);
  }
  result.work += budget.used();
  return result;
}

}  // namespace memc
