// SPDX-License-Identifier: Apache-2.0
// Lower bounds on the peak over all orders of ops.
//
// When an op runs, the ops that have run before it are a set D that holds, with each op, all it
// depends on; D holds all that the op depends on, and neither the op nor anything that depends on
// it. Live are the storages that the op touches and those touched both in D and outside D (kept
// ones: touched in D). The least of these sums over all such sets D is a closure problem, hence a
// minimum cut (Picard 1976), and no order has a lower peak.
#ifndef MEMC_ORDER_BOUND_H_
#define MEMC_ORDER_BOUND_H_

#include <cstdint>
#include <vector>

#include "solvers/common/max_flow.h"
#include "solvers/common/work_budget.h"
#include "solvers/order/order.h"

namespace memc {

// The fewest bytes live at one moment, over all orders.
class LiveCuts {
 public:
  // The problem must outlive this. Throws std::overflow_error if the sizes' sum exceeds 2^62.
  explicit LiveCuts(const OrderProblem& problem);

  // The fewest bytes live while `op` runs, its scratch included; or a number above `limit` and no
  // higher than it, if it is above `limit`; or, once the budget is spent, a number no higher.
  int64_t At(int32_t op, int64_t limit, WorkBudget* budget);

 private:
  enum class Side : char { kFree, kBefore, kAfter };

  void Fix(int32_t op, Side side);
  int64_t Build(int32_t op);
  int64_t AddStorage(int32_t storage);

  const OrderProblem& problem_;
  Rows before_;    // Of each op: the ops that depend on it directly.
  Rows touchers_;  // Of each storage: the ops that touch it.
  std::vector<Side> side_;
  std::vector<int32_t> node_;  // Of each free op, in the network.
  std::vector<char> touched_;  // Of each storage: whether the op asked for touches it.
  std::vector<int32_t> stack_;
  MaxFlow flow_;
};

// Bytes that no order's peak is below: the largest of the ops' cuts, as far as they are known when
// the budget is spent; the largest single op's bytes if the sizes' sum exceeds 2^62. `order` is a
// valid order, the better the faster: ops are taken by the bytes live then, which are no less than
// the cut there, so the rest is skipped once the bound is as high. Equal to the order's peak: the
// order is optimal.
int64_t OrderLowerBound(const OrderProblem& problem, const std::vector<int32_t>& order,
                        WorkBudget* budget);

}  // namespace memc

#endif  // MEMC_ORDER_BOUND_H_
