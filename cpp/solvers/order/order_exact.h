// SPDX-License-Identifier: Apache-2.0
// Exact search for an order of lowest peak.
#ifndef MEMC_ORDER_EXACT_H_
#define MEMC_ORDER_EXACT_H_

#include <cstdint>

#include "solvers/order/order.h"
#include "solvers/order/order_heuristics.h"

namespace memc {

// Lowers the result's peak and raises its lower bound; both are equal if the search finishes within
// the budget and with at most `memory` bytes of states. The result must hold a valid order, its
// peak and a valid bound; a bound from cuts saves most of the work.
void ImproveExactly(const OrderProblem& problem, int64_t memory, WorkBudget* budget,
                    OrderResult* result);

// The solver of the table: starts from list schedules and the bound from cuts.
OrderResult ExactOrderSolver(const OrderProblem& problem, const OrderOptions& options);

}  // namespace memc

#endif  // MEMC_ORDER_EXACT_H_
