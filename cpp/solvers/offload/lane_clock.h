// SPDX-License-Identifier: Apache-2.0
// Copies in two lanes over time.
#ifndef MEMC_LANE_CLOCK_H_
#define MEMC_LANE_CLOCK_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "solvers/common/lanes.h"

namespace memc {

enum class Direction { kOut, kIn };

// The copies of a lane run in the order in which they are issued. While both lanes are busy, each
// has its shared speed.
class LaneClock {
 public:
  explicit LaneClock(const Lanes& lanes);

  int64_t now() const { return now_; }

  // Adds a copy at the end of a lane, once it is forked, unless the lane is since the last op.
  // Returns its number in that lane.
  size_t Issue(Direction lane, int64_t bytes, bool forked = false);

  // While an op runs that takes `cost` beside idle lanes.
  void Run(int64_t cost);

  // To the end of a copy, if that is later than now, and its join.
  void AwaitCopy(Direction lane, size_t copy);

  // How many copies of a lane have ended.
  size_t Ended(Direction lane) const { return line(lane).ended; }

  // When the lane would be idle if the other were: no later than it is.
  int64_t IdleFrom(Direction lane) const;

  // The duration of all of a lane's copies, each beside an idle lane.
  int64_t Busy(Direction lane) const { return line(lane).issued_time; }

 private:
  struct Line {
    Lane lane;
    std::vector<int64_t> left;  // Of each copy: picoseconds at full speed, times kFullSpeed.
    size_t ended = 0;
    int64_t issued_time = 0;
    int64_t waiting_time = 0;  // Of copies that have not begun.

    bool busy() const { return ended < left.size(); }
  };

  const Line& line(Direction lane) const { return lane == Direction::kOut ? out_ : in_; }
  Line& line(Direction lane) { return lane == Direction::kOut ? out_ : in_; }
  void AdvanceTo(int64_t time);
  int64_t Pace() const;
  void Step(int64_t most);

  Line out_, in_;
  int64_t now_ = 0;
};

}  // namespace memc

#endif  // MEMC_LANE_CLOCK_H_
