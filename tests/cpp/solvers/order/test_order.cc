// SPDX-License-Identifier: Apache-2.0
// Every order solver on random problems against the least peak of all orders.
#include <numeric>
#include <stdexcept>
#include <string>

#include "check.h"
#include "solvers/order/order.h"
#include "solvers/order/order_heuristics.h"
#include "solvers/order/random_orders.h"

namespace {

using memc::OrderProblem;
using memc::OrderResult;
using memc::tests::AllOrders;
using memc::tests::RandomOrder;

// Of an order, op by op.
int64_t PeakOf(const AllOrders& all, const std::vector<int32_t>& order) {
  uint32_t done = 0;
  int64_t peak = 0;
  for (const int32_t op : order) {
    CHECK(all.Ready(done, op));
    peak = std::max(peak, all.Live(done, op));
    done |= 1U << op;
  }
  return peak;
}

TEST(SolversAgainstAllOrders) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    memc::tests::Random random(seed);
    const OrderProblem problem = RandomOrder(random, static_cast<int32_t>(random.Below(9)), 20);
    memc::Validate(problem);
    const AllOrders all(problem);
    const int64_t least = all.LeastPeak();
    std::vector<int32_t> given(problem.ops());
    std::iota(given.begin(), given.end(), 0);
    for (const memc::OrderSolverEntry& entry : memc::OrderSolverTable()) {
      const OrderResult found = entry.solve(problem, {});
      CHECK_EQ(static_cast<int64_t>(found.order.size()), problem.ops());
      CHECK_EQ(found.peak, PeakOf(all, found.order));
      CHECK(found.lower_bound <= least && least <= found.peak);
      CHECK(found.peak <= PeakOf(all, given));
      const std::string name = entry.name;
      if (name != "exact" && name != "auto") continue;
      CHECK_EQ(found.peak, least);
      CHECK_EQ(found.lower_bound, least);  // Proven.
    }
  }
}

// Those that any order of a scheduler keeps, from both ends.
TEST(HeuristicsKeepDependencies) {
  using memc::ListRule;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    memc::tests::Random random(seed);
    const OrderProblem problem = RandomOrder(random, static_cast<int32_t>(random.Within(1, 9)), 20);
    const AllOrders all(problem);
    const memc::OrderGraph graph = memc::MakeOrderGraph(problem, memc::Direction::kForward);
    const memc::OrderGraph reversed = memc::Reversed(graph);
    std::vector<std::vector<int32_t>> orders{memc::DepthFirstOrder(graph)};
    for (ListRule rule : {ListRule::kNet, ListRule::kRise, ListRule::kShrink, ListRule::kNewest}) {
      orders.push_back(memc::ListOrder(graph, rule));
      orders.push_back(memc::ListOrder(reversed, rule));
      std::reverse(orders.back().begin(), orders.back().end());
    }
    for (const std::vector<int32_t>& order : orders) {
      CHECK_EQ(memc::OrderPeak(problem, order), PeakOf(all, order));
    }
  }
}

// A beam that leaves nothing out decides every limit.
TEST(AWideBeamIsExact) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    memc::tests::Random random(seed);
    const OrderProblem problem = RandomOrder(random, static_cast<int32_t>(random.Within(1, 8)), 20);
    const AllOrders all(problem);
    const int64_t least = all.LeastPeak();
    const memc::OrderGraph graph = memc::MakeOrderGraph(problem, memc::Direction::kForward);
    for (const int64_t limit : {least - 1, least}) {
      memc::WorkBudget budget(1'000'000'000, -1);
      const memc::BeamOutcome outcome = memc::BeamOrder(graph, limit, 100'000, &budget);
      CHECK_EQ(outcome.found, limit == least);
      if (outcome.found) {
        CHECK_EQ(PeakOf(all, outcome.order), least);
      } else {
        CHECK(limit < outcome.lower_bound && outcome.lower_bound <= least);
      }
    }
  }
}

// Chains that meet at the end, each of which rises before it falls: one after the other is best,
// side by side is what the numbering says.
TEST(KnownOptimum) {
  OrderProblem problem;
  problem.touches.first = problem.after.first = {0};
  constexpr int32_t kChains = 5;
  for (int32_t op = 0; op < 2 * kChains + 1; ++op) {
    const bool is_first = op < kChains;
    problem.sizes.push_back(is_first ? 100 : 1);
    problem.kept.push_back(0);
    problem.scratch.push_back(0);
    std::vector<int32_t> reads;
    if (!is_first && op < 2 * kChains) reads = {op - kChains};
    if (op == 2 * kChains) reads = {kChains, kChains + 1, kChains + 2, kChains + 3, kChains + 4};
    memc::tests::AddRow(problem.after, reads);
    reads.push_back(op);
    memc::tests::AddRow(problem.touches, reads);
  }
  for (const char* name : {"list", "dfs", "beam", "exact", "local", "auto"}) {
    CHECK_EQ(memc::FindOrderSolver(name)(problem, {}).peak,
             105);  // The last chain, and what the others left.
  }
  CHECK_EQ(memc::FindOrderSolver("given")(problem, {}).peak, 501);
}

TEST(WorkIsBounded) {
  memc::tests::Random random(1);
  const OrderProblem problem = RandomOrder(random, 200, 1000);
  memc::OrderOptions options;
  options.work = 1'000'000;
  for (const memc::OrderSolverEntry& entry : memc::OrderSolverTable()) {
    if (std::string(entry.name) == "exact" || std::string(entry.name) == "beam") continue;
    const OrderResult found = entry.solve(problem, options);
    CHECK_EQ(found.peak, memc::OrderPeak(problem, found.order));
    CHECK(found.lower_bound <= found.peak);
  }
}

TEST(MalformedProblemsAreRefused) {
  OrderProblem problem;
  problem.sizes = {8};
  problem.kept = {0};
  problem.scratch = {0};
  problem.touches = {{0, 1}, {0}};
  problem.after = {{0, 1}, {0}};
  CHECK_THROWS(std::invalid_argument, memc::Validate(problem),
               "op 0 depends on op 0, which is not before it");
  problem.after = {{0, 0}, {}};
  CHECK_EQ(memc::OrderPeak(problem, {0}), 8);
  CHECK_THROWS(std::invalid_argument, memc::OrderPeak(problem, {}),
               "the order has 0 ops, expected 1");
  CHECK_THROWS(std::invalid_argument, memc::OrderPeak(problem, {1}), "not a permutation");
  problem.sizes = {-1};
  CHECK_THROWS(std::invalid_argument, memc::Validate(problem),
               "storage 0: size must be 0 to 2^62 bytes, got -1");
  CHECK_THROWS(std::invalid_argument, memc::FindOrderSolver("none"), "no order solver \"none\"");
}

}  // namespace
