// SPDX-License-Identifier: Apache-2.0
#include "solvers/common/work_budget.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace memc {

namespace {

constexpr int64_t kWorkPerReading = 1'000'000;  // About 10 ms.
constexpr double kLongest = 1e8;                // Seconds; more would overflow the clock.

}  // namespace

WorkBudget::WorkBudget(int64_t work, double time_limit, const Watch& watch)
    : timed_(time_limit >= 0),
      end_(Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(
                              std::min(std::max(time_limit, 0.0), kLongest)))),
      work_(timed_ ? std::numeric_limits<int64_t>::max() : work),
      watch_(watch) {
  ReadClock();
}

WorkBudget WorkBudget::Stage(int64_t work, double share) const {
  if (!timed_) return WorkBudget(work, -1, watch_);
  const std::chrono::duration<double> left = end_ - Clock::now();
  return WorkBudget(work, share * std::max(left.count(), 0.0), watch_);
}

void WorkBudget::ReadClock() {
  until_clock_ = timed_ || watch_.exists() ? kWorkPerReading : std::numeric_limits<int64_t>::max();
  watch_.Check();
  watch_.Add(used_ - std::exchange(told_, used_));
  if (timed_ && Clock::now() >= end_) work_ = 0;
}

}  // namespace memc
