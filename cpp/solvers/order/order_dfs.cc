// SPDX-License-Identifier: Apache-2.0
// Depth-first order: Yang and Cheng 2020 (Dymem), algorithm 1. A branch is followed until it meets
// an op that still waits for another branch; the op runs when the last of them reaches it. O(V +
// E).
#include "solvers/order/order_heuristics.h"

namespace memc {

std::vector<int32_t> DepthFirstOrder(const OrderGraph& graph) {
  std::vector<int64_t> waiting(graph.ops());
  std::vector<int32_t> stack;
  for (int64_t op = graph.ops() - 1; op >= 0; --op) {
    waiting[op] = graph.after.end(op) - graph.after.begin(op);
    if (waiting[op] == 0) stack.push_back(static_cast<int32_t>(op));
  }
  std::vector<int32_t> order;
  order.reserve(graph.ops());
  while (!stack.empty()) {
    const int32_t op = stack.back();
    stack.pop_back();
    order.push_back(op);
    // Pushed from the last to the first, so that the first branch is followed first.
    for (const int32_t* next = graph.before.end(op); next != graph.before.begin(op);) {
      if (--waiting[*--next] == 0) stack.push_back(*next);
    }
  }
  return order;
}

OrderResult DepthFirstSolver(const OrderProblem& problem, const OrderOptions& options) {
  OrderResult result = GivenSolver(problem, options);
  Offer(problem, DepthFirstOrder(MakeOrderGraph(problem, Direction::kForward)), &result);
  return result;
}

}  // namespace memc
