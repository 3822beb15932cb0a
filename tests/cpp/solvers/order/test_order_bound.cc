// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <numeric>
#include <stdexcept>

#include "check.h"
#include "solvers/common/bytes.h"
#include "solvers/order/order_bound.h"
#include "solvers/order/random_orders.h"

namespace {

using memc::LiveCuts;
using memc::OrderProblem;
using memc::WorkBudget;

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

TEST(CutsAreTheFewestLiveBytes) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    memc::tests::Random random(seed);
    const OrderProblem problem =
        memc::tests::RandomOrder(random, static_cast<int32_t>(random.Within(1, 8)), 20);
    const memc::tests::AllOrders all(problem);
    const std::vector<int64_t> least = all.LeastLive();
    LiveCuts cuts(problem);
    int64_t greatest = 0;
    for (int32_t op = 0; op < problem.ops(); ++op) {
      WorkBudget budget(kMost, -1);
      CHECK_EQ(cuts.At(op, kMost, &budget), least[op]);
      greatest = std::max(greatest, least[op]);
      const int64_t limited =
          cuts.At(op, least[op] / 2, &budget);  // Some bytes above the limit suffice.
      CHECK(limited <= least[op] && (limited > least[op] / 2 || limited == least[op]));
    }
    std::vector<int32_t> order(problem.ops());
    std::iota(order.begin(), order.end(), 0);
    WorkBudget budget(kMost, -1);
    CHECK_EQ(memc::OrderLowerBound(problem, order, &budget), greatest);
    CHECK(greatest <= all.LeastPeak());
    WorkBudget none(0, -1);
    CHECK(memc::OrderLowerBound(problem, order, &none) <= greatest);
  }
}

TEST(SumsBeyondInt64AreRefused) {
  OrderProblem problem;
  problem.sizes.assign(3, memc::kMaxSize);
  problem.kept.assign(3, 0);
  problem.scratch = {0};
  problem.touches = {{0, 1}, {0}};
  problem.after = {{0, 0}, {}};
  CHECK_THROWS(std::overflow_error, LiveCuts(problem), "2^62 bytes");
  WorkBudget budget(kMost, -1);
  CHECK_EQ(memc::OrderLowerBound(problem, {0}, &budget), memc::kMaxSize);
}

TEST(BudgetsOfWorkAndTime) {
  WorkBudget work(10, -1);
  work.Spend(9);
  CHECK(!work.spent());
  work.Spend(1);
  CHECK(work.spent());
  CHECK_EQ(work.used(), 10);
  WorkBudget no_time(10, 0);
  CHECK(no_time.spent());
  WorkBudget hour(0, 3600);  // With a time limit, work is not bounded.
  hour.Spend(1'000'000'000);
  CHECK(!hour.spent());
  CHECK(!work.Stage(5, 1).spent());
}

}  // namespace
