// SPDX-License-Identifier: Apache-2.0
#include "solvers/order/order.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "solvers/common/bytes.h"
#include "solvers/order/order_exact.h"
#include "solvers/order/order_heuristics.h"

namespace memc {

void Validate(const OrderProblem& problem) {
  const auto ops = static_cast<int64_t>(problem.scratch.size());
  const auto storages = static_cast<int64_t>(problem.sizes.size());
  if (problem.kept.size() != problem.sizes.size()) {
    throw std::invalid_argument("expected one `kept` flag for each storage");
  }
  CheckRows(problem.touches, ops, storages, "storage");
  CheckRows(problem.after, ops, ops, "dependency");
  for (int64_t s = 0; s < storages; ++s) {
    if (problem.sizes[s] < 0 || problem.sizes[s] > kMaxSize) {
      throw std::invalid_argument("storage " + std::to_string(s) +
                                  ": size must be 0 to 2^62 bytes, got " +
                                  std::to_string(problem.sizes[s]));
    }
  }
  for (int64_t op = 0; op < ops; ++op) {
    if (problem.scratch[op] < 0 || problem.scratch[op] > kMaxSize) {
      throw std::invalid_argument("op " + std::to_string(op) +
                                  ": scratch must be 0 to 2^62 bytes, got " +
                                  std::to_string(problem.scratch[op]));
    }
    for (const int32_t* i = problem.after.begin(op); i != problem.after.end(op); ++i) {
      if (*i >= op) {
        throw std::invalid_argument("op " + std::to_string(op) + " depends on op " +
                                    std::to_string(*i) + ", which is not before it");
      }
    }
  }
}

std::vector<int64_t> LiveBytes(const OrderProblem& problem, const std::vector<int32_t>& order) {
  const int64_t ops = problem.ops();
  if (static_cast<int64_t>(order.size()) != ops) {
    throw std::invalid_argument("the order has " + std::to_string(order.size()) +
                                " ops, expected " + std::to_string(ops));
  }
  std::vector<int64_t> step(ops, -1);
  std::vector<int64_t> last(problem.sizes.size(), -1);
  for (int64_t at = 0; at < ops; ++at) {
    const int32_t op = order[at];
    if (op < 0 || op >= ops || step[op] >= 0) {
      throw std::invalid_argument("the order is not a permutation of the ops: position " +
                                  std::to_string(at));
    }
    step[op] = at;
    for (const int32_t* i = problem.after.begin(op); i != problem.after.end(op); ++i) {
      if (step[*i] < 0) {
        throw std::invalid_argument("the order runs op " + std::to_string(op) + " before op " +
                                    std::to_string(*i) + ", which it depends on");
      }
    }
    for (const int32_t* s = problem.touches.begin(op); s != problem.touches.end(op); ++s) {
      last[*s] = problem.kept[*s] ? ops : at;
    }
  }
  std::vector<char> live(problem.sizes.size(), 0);
  std::vector<int64_t> during(ops, 0);
  int64_t bytes = 0;
  for (int64_t at = 0; at < ops; ++at) {
    const int32_t op = order[at];
    for (const int32_t* s = problem.touches.begin(op); s != problem.touches.end(op); ++s) {
      if (!live[*s]) bytes = AddBytes(bytes, problem.sizes[*s]);
      live[*s] = 1;
    }
    during[op] = AddBytes(bytes, problem.scratch[op]);
    for (const int32_t* s = problem.touches.begin(op); s != problem.touches.end(op); ++s) {
      if (last[*s] == at) bytes -= problem.sizes[*s];
    }
  }
  return during;
}

int64_t OrderPeak(const OrderProblem& problem, const std::vector<int32_t>& order) {
  const std::vector<int64_t> live = LiveBytes(problem, order);
  return live.empty() ? 0 : *std::max_element(live.begin(), live.end());
}

// The ops as they are numbered, and the largest single op's bytes as bound.
OrderResult GivenSolver(const OrderProblem& problem, const OrderOptions& options) {
  OrderResult result;
  result.watch = options.watch;
  for (int64_t op = 0; op < problem.ops(); ++op) {
    result.order.push_back(static_cast<int32_t>(op));
    int64_t bytes = problem.scratch[op];
    for (const int32_t* s = problem.touches.begin(op); s != problem.touches.end(op); ++s) {
      bytes = AddBytes(bytes, problem.sizes[*s]);
    }
    result.lower_bound = std::max(result.lower_bound, bytes);
  }
  result.peak = OrderPeak(problem, result.order);
  result.watch.Best(result.peak);
  return result;
}

const std::vector<OrderSolverEntry>& OrderSolverTable() {
  static const std::vector<OrderSolverEntry> table = {
      {"auto", AutoOrderSolver},   {"beam", BeamSolver},   {"dfs", DepthFirstSolver},
      {"exact", ExactOrderSolver}, {"given", GivenSolver}, {"list", ListSolver},
      {"local", LocalOrderSolver},
  };
  return table;
}

OrderSolver FindOrderSolver(const std::string& name) {
  std::string known;
  for (const OrderSolverEntry& entry : OrderSolverTable()) {
    if (name == entry.name) return entry.solve;
    known += known.empty() ? "" : ", ";
    known += entry.name;
  }
  throw std::invalid_argument("no order solver \"" + name + "\"; there are: " + known);
}

}  // namespace memc
