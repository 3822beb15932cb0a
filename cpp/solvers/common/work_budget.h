// SPDX-License-Identifier: Apache-2.0
// When a search that counts its work must stop.
#ifndef MEMC_WORK_BUDGET_H_
#define MEMC_WORK_BUDGET_H_

#include <chrono>
#include <cstdint>

namespace memc {

// By counted work, so that a result depends on the problem only, or by the clock if the caller has
// set a time limit.
class WorkBudget {
 public:
  // A negative time limit (seconds) means that there is none. With one, the work is not bounded.
  WorkBudget(int64_t work, double time_limit);

  // For one stage: this much work, or with a time limit this share of the time left. What the stage
  // spends is its own.
  WorkBudget Stage(int64_t work, double share) const;

  // 100,000,000 units take about a second.
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
  int64_t until_clock_ = 0;  // Work until the clock is read again.
};

}  // namespace memc

#endif  // MEMC_WORK_BUDGET_H_
