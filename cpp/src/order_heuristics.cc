// SPDX-License-Identifier: Apache-2.0
#include "memc/order_heuristics.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace memc {

namespace {

constexpr int64_t kWorkPerReading = 1'000'000;  // About 10 ms.
constexpr double kLongest = 1e8;                // Seconds; more would overflow the clock.

}  // namespace

OrderBudget::OrderBudget(int64_t work, double time_limit)
    : timed_(time_limit >= 0),
      end_(Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(
                              std::min(std::max(time_limit, 0.0), kLongest)))),
      work_(timed_ ? std::numeric_limits<int64_t>::max() : work) {
  Spend(0);
}

void OrderBudget::Spend(int64_t work) {
  work_ -= work;
  used_ += work;
  until_clock_ -= work;
  if (!timed_ || until_clock_ > 0) return;
  until_clock_ = kWorkPerReading;
  if (Clock::now() >= end_) work_ = 0;
}

void Offer(const OrderProblem& problem, std::vector<int32_t> order, OrderResult* result) {
  const int64_t peak = OrderPeak(problem, order);
  if (peak >= result->peak) return;
  result->peak = peak;
  result->order = std::move(order);
}

}  // namespace memc
