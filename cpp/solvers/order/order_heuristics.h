// SPDX-License-Identifier: Apache-2.0
// The ways to find an order, and the solvers made of them.
#ifndef MEMC_ORDER_HEURISTICS_H_
#define MEMC_ORDER_HEURISTICS_H_

#include <cstdint>
#include <vector>

#include "solvers/common/work_budget.h"
#include "solvers/order/order.h"
#include "solvers/order/order_state.h"

namespace memc {

// By what a list scheduler picks the next of the ready ops.
enum class ListRule {
  kNet,     // Least bytes after it, then least bytes during it.
  kRise,    // Least bytes during it, then least after it.
  kShrink,  // As kRise among ops that leave no more bytes live, if there are any; else as kNet.
  kNewest,  // As kNet; among equals the one that became ready last.
};

// The order a list scheduler finds, in the graph's direction.
std::vector<int32_t> ListOrder(const OrderGraph& graph, ListRule rule);

// A depth-first order: Yang and Cheng 2020 (Dymem), algorithm 1.
std::vector<int32_t> DepthFirstOrder(const OrderGraph& graph);

struct BeamOutcome {
  bool found = false;
  std::vector<int32_t> order;  // If found: its peak is at most the limit.
  // Bytes that no order's peak is below, if the search has shown it by leaving nothing out.
  int64_t lower_bound = 0;
};

// Looks for an order with a peak of at most `limit` bytes, going on from the `width` best states
// with equally many ops run.
BeamOutcome BeamOrder(const OrderGraph& graph, int64_t limit, int64_t width, WorkBudget* budget);

// Lowers the result's peak, and raises its lower bound, by beams of this width between the two.
void ImproveByBeam(const OrderProblem& problem, const OrderGraph& graph, int64_t width,
                   int64_t target, WorkBudget* budget, OrderResult* result);

// Lowers the result's peak by reordering windows around it.
void ImproveLocally(const OrderProblem& problem, const OrderGraph& graph, int64_t target,
                    WorkBudget* budget, OrderResult* result);

// Takes the order if its peak is lower than the result's.
void Offer(const OrderProblem& problem, std::vector<int32_t> order, OrderResult* result);

// The solvers of the table.
OrderResult GivenSolver(const OrderProblem& problem, const OrderOptions& options);
OrderResult ListSolver(const OrderProblem& problem, const OrderOptions& options);
OrderResult DepthFirstSolver(const OrderProblem& problem, const OrderOptions& options);
OrderResult BeamSolver(const OrderProblem& problem, const OrderOptions& options);
OrderResult LocalOrderSolver(const OrderProblem& problem, const OrderOptions& options);
OrderResult AutoOrderSolver(const OrderProblem& problem, const OrderOptions& options);

}  // namespace memc

#endif  // MEMC_ORDER_HEURISTICS_H_
