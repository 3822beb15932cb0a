// SPDX-License-Identifier: Apache-2.0
// When the items of a schedule come.
#ifndef MEMC_SCHEDULE_CLOCK_H_
#define MEMC_SCHEDULE_CLOCK_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "solvers/offload/lane_clock.h"
#include "solvers/offload/schedule.h"

namespace memc {

// Starts of one lane take ops time once where nothing comes between them that ops do: no run that
// takes time, and no join. Dones of one lane between two runs or starts are one join, that of the
// last copy. Programs do both. `problem` and `items` are referred to.
class ScheduleClock {
 public:
  // Every start is of a value that is not being copied, and every done of one that is.
  ScheduleClock(const OffloadProblem& problem, const std::vector<Item>& items);

  int64_t now() const { return clock_.now(); }

  // Passes the next item.
  void Pass();

 private:
  void FindJoins();

  const OffloadProblem& problem_;
  const std::vector<Item>& items_;
  LaneClock clock_;
  size_t at_ = 0;
  std::vector<size_t> copies_;  // Of each item that is a start or a done: its number in the lane.
  std::vector<char> joins_;     // Of each item: whether it is a done that ops wait at.
  bool forked_[2] = {false, false};  // Whether nothing came since the lane's last start.
};

}  // namespace memc

#endif  // MEMC_SCHEDULE_CLOCK_H_
