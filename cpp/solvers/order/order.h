// SPDX-License-Identifier: Apache-2.0
// Operator order: in which sequence ops run, so that the bytes live at one time stay low.
//
// Ops touch storages. A storage is live from the first op that touches it to the last, or to the
// end if it is kept. The peak of an order is the largest sum of sizes of live storages during any
// op, what the op touches and its scratch bytes included.
#ifndef MEMC_ORDER_H_
#define MEMC_ORDER_H_

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "solvers/common/rows.h"
#include "solvers/common/watch.h"

namespace memc {

struct OrderProblem {
  std::vector<int64_t> sizes;    // Bytes of each storage.
  std::vector<char> kept;        // Of each storage: whether it stays live to the end.
  Rows touches;                  // Of each op: the storages it reads or writes, without repeats.
  Rows after;                    // Of each op: ops that must have run before it, without repeats.
  std::vector<int64_t> scratch;  // Of each op: bytes live during that op only.

  int64_t ops() const { return touches.size(); }
};

struct OrderOptions {
  double time_limit = -1;  // Seconds of wall time; negative: bounded by work, hence deterministic.
  int64_t beam_width = 64;
  int64_t target = 0;  // Bytes: a solver may stop once the peak is no higher.
  // What `auto` may do without a time limit; 100,000,000 steps take about a second.
  int64_t work = 750'000'000;
  // `auto` may stop once the peak is at most this many times the lower bound: 0 to prove it
  // optimal.
  double slack = 0;
  // Bytes: `auto` may stop once no order is below it.
  int64_t worth = std::numeric_limits<int64_t>::max();
  Watch watch{};
};

struct OrderResult {
  std::vector<int32_t> order;  // Op indices in execution order.
  int64_t peak = 0;            // Bytes.
  int64_t lower_bound = 0;  // Bytes: no order has a lower peak. Equal to the peak: proven optimal.
  int64_t work = 0;         // Steps that `auto` took.
  Watch watch{};            // Told of better orders.
};

// Throws std::invalid_argument naming the op or storage if the problem is malformed: indices out
// of range, repeats, negative sizes, a cycle (naming ops on it).
void Validate(const OrderProblem& problem);

// Bytes live while each op runs in this order, scratch included. Throws std::invalid_argument if it
// is no order of the ops that keeps their dependencies, std::overflow_error beyond int64.
std::vector<int64_t> LiveBytes(const OrderProblem& problem, const std::vector<int32_t>& order);

// The most of them: the order's peak, in bytes. Throws as LiveBytes.
int64_t OrderPeak(const OrderProblem& problem, const std::vector<int32_t>& order);

// The given order must be valid: ops are numbered in it, so every dependency has a lower index.
using OrderSolver = OrderResult (*)(const OrderProblem&, const OrderOptions&);

struct OrderSolverEntry {
  const char* name;  // Kebab-case.
  OrderSolver solve;
};

// All solvers by name. The numbering's order is a candidate of every one of them: no result has a
// higher peak.
const std::vector<OrderSolverEntry>& OrderSolverTable();

// Throws std::invalid_argument listing the known names if there is none of this name.
OrderSolver FindOrderSolver(const std::string& name);

}  // namespace memc

#endif  // MEMC_ORDER_H_
