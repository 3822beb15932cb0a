// SPDX-License-Identifier: Apache-2.0
// Local search: the ops in a window around the peak are reordered, all others stay. What is live
// before and after the window does not change, so each window is a problem of its own:
//
//   order   o o o o[o o o o o o o]o o o o      storages touched within the window may be live at
//   its base    =====================              left end, its right end or both; those only
//   passing
//                                              over it are its base
//
// A window grows until a beam search finds an order below the peak. Each success leaves fewer ops
// at the peak, or a lower peak.
#include <algorithm>
#include <utility>

#include "solvers/order/order_bound.h"
#include "solvers/order/order_heuristics.h"

namespace memc {

namespace {

constexpr int64_t kWork = 300'000'000;  // About 3 s at most.
constexpr int64_t kWidth = 64;
constexpr int64_t kFirstReach = 16;  // Ops to either side of the peak.

struct Window {
  OrderGraph graph;  // Of the ops at [begin, end), numbered from 0.
  int64_t base = 0;  // Bytes live throughout that none of them touches.
};

Window MakeWindow(const OrderGraph& graph, const std::vector<int32_t>& order, int64_t begin,
                  int64_t end) {
  std::vector<int64_t> step(graph.ops());
  for (int64_t at = 0; at < graph.ops(); ++at) step[order[at]] = at;
  Window window;
  OrderGraph& made = window.graph;
  std::vector<int32_t> number(graph.sizes.size(), -1);  // In the window, of those touched there.
  for (size_t s = 0; s < graph.sizes.size(); ++s) {
    const int32_t* first = graph.users.begin(s);
    const int32_t* last = graph.users.end(s);
    const auto any = [&](auto&& holds) { return std::any_of(first, last, holds); };
    const bool before =
        (graph.from_start[s] && first != last) || any([&](int32_t op) { return step[op] < begin; });
    const bool after = graph.to_end[s] || any([&](int32_t op) { return step[op] >= end; });
    if (any([&](int32_t op) { return step[op] >= begin && step[op] < end; })) {
      number[s] = static_cast<int32_t>(made.sizes.size());
      made.sizes.push_back(graph.sizes[s]);
      made.from_start.push_back(before);
      made.to_end.push_back(after);
    } else if (before && after) {
      window.base += graph.sizes[s];
    }
  }
  made.touches.first.push_back(0);
  made.after.first.push_back(0);
  for (int64_t at = begin; at < end; ++at) {
    const int32_t op = order[at];
    made.scratch.push_back(graph.scratch[op]);
    for (const int32_t* s = graph.touches.begin(op); s != graph.touches.end(op); ++s) {
      made.touches.index.push_back(number[*s]);
    }
    for (const int32_t* other = graph.after.begin(op); other != graph.after.end(op); ++other) {
      if (step[*other] < begin) continue;
      made.after.index.push_back(static_cast<int32_t>(step[*other] - begin));
    }
    made.touches.first.push_back(static_cast<int64_t>(made.touches.index.size()));
    made.after.first.push_back(static_cast<int64_t>(made.after.index.size()));
  }
  made.users = Inverse(made.touches, static_cast<int64_t>(made.sizes.size()));
  made.before = Inverse(made.after, end - begin);
  return window;
}

}  // namespace

void ImproveLocally(const OrderProblem& problem, const OrderGraph& graph, int64_t target,
                    WorkBudget* budget, OrderResult* result) {
  const int64_t ops = graph.ops();
  const int64_t enough = std::max(result->lower_bound, target);
  const auto relations =
      static_cast<int64_t>(graph.touches.index.size() + graph.after.index.size());
  std::vector<int32_t> order = result->order;
  int64_t reach = kFirstReach;
  while (result->peak > enough && !budget->spent()) {
    budget->Spend(8 * (ops + relations));
    const std::vector<int64_t> live = LiveBytes(problem, order);
    int64_t peak_at = 0;
    for (int64_t at = 1; at < ops; ++at) {
      if (live[order[at]] > live[order[peak_at]]) peak_at = at;
    }
    const int64_t begin = std::max<int64_t>(0, peak_at - reach);
    const int64_t end = std::min(ops, peak_at + reach + 1);
    const Window window = MakeWindow(graph, order, begin, end);
    const BeamOutcome outcome =
        BeamOrder(window.graph, result->peak - 1 - window.base, kWidth, budget);
    if (outcome.found) {
      const std::vector<int32_t> old(order.begin() + begin, order.begin() + end);
      for (int64_t i = 0; i < end - begin; ++i) order[begin + i] = old[outcome.order[i]];
      Offer(problem, order, result);
      reach = kFirstReach;
    } else {
      if (begin == 0 && end == ops) {
        const int64_t bound = std::min(outcome.lower_bound, result->peak);
        result->lower_bound = std::max(result->lower_bound, bound);
        return;
      }
      reach *= 2;
    }
  }
}

OrderResult LocalOrderSolver(const OrderProblem& problem, const OrderOptions& options) {
  OrderResult result = ListSolver(problem, options);
  if (!SumsFit(problem)) return result;
  WorkBudget budget(kWork, options.time_limit, options.watch);
  ImproveLocally(problem, MakeOrderGraph(problem, Direction::kForward), options.target, &budget,
                 &result);
  return result;
}

}  // namespace memc
