// SPDX-License-Identifier: Apache-2.0
// When a search that counts its work must stop.
#ifndef MEMC_WORK_BUDGET_H_
#define MEMC_WORK_BUDGET_H_

#include <chrono>
#include <cstdint>

#include "solvers/common/watch.h"

namespace memc {

// By counted work, so that a result depends on the problem only, or by the clock if the caller has
// set a time limit.
class WorkBudget {
 public:
  // A negative time limit (seconds) means that there is none. With one, the work is not bounded.
  WorkBudget(int64_t work, double time_limit, const Watch& watch = {});

  // For one stage: this much work, or with a time limit this share of the time left. What the stage
  // spends is its own.
  WorkBudget Stage(int64_t work, double share) const;

  // 100,000,000 units take about a second. Throws Cancelled if the search is to end.
  void Spend(int64_t work) {
    work_ -= work;
    used_ += work;
    until_clock_ -= work;
    if (until_clock_ <= 0) ReadClock();
  }

  bool spent() const { return work_ <= 0; }
  int64_t used() const { return used_; }

 private:
  using Clock = std::chrono::steady_clock;

  void ReadClock();

  bool timed_;
  Clock::time_point end_;
  int64_t work_;
  int64_t used_ = 0;
  int64_t until_clock_ = 0;  // Work until the clock is read again,
  int64_t told_ = 0;         // and what the watch knows of.
  Watch watch_;
};

}  // namespace memc

#endif  // MEMC_WORK_BUDGET_H_
