// SPDX-License-Identifier: Apache-2.0
// Streamed weights: weights that lie outside the arena's device, and are copied into the arena
// before the ops that read them.
//
// A function is given as a list of items: ops, and copies that are decided already. A weight is
// resident, and takes its bytes all the time, or streamed: it takes them in windows, each from the
// start of a copy in to the last of some of its uses. Copies in run in the order of the windows'
// first uses, each from the first item on at which there is room for its window: an earlier copy
// takes no room from later ones, since it has ended its start before theirs. Of copies that start
// together, with no op between, ops are held by the first alone, and of those that are waited for
// together by the last.
#ifndef MEMC_STREAM_SCHEDULE_H_
#define MEMC_STREAM_SCHEDULE_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "solvers/common/lanes.h"
#include "solvers/common/peak_tree.h"
#include "solvers/common/rows.h"
#include "solvers/common/watch.h"

namespace memc {

enum class StreamItem : int32_t { kRun, kOutStart, kOutDone, kInStart, kInDone };

struct StreamProblem {
  std::vector<StreamItem> items;
  std::vector<int64_t> numbers;  // Of an op its picoseconds, of a start its bytes, of a done the
                                 // item of its start.
  std::vector<int64_t> live;     // Bytes that each item takes beside weights.
  std::vector<int64_t> sizes;    // Of each weight that may be streamed; at least 1.
  Rows uses;                     // The items that read each, at least one, in ascending order.
  Lanes lanes;
  int64_t host_budget = std::numeric_limits<int64_t>::max();  // Bytes of streamed weights.
  Watch watch{};                                              // Of searches.

  int64_t length() const { return static_cast<int64_t>(items.size()); }
  int64_t weights() const { return static_cast<int64_t>(sizes.size()); }
};

// The bytes of a weight while some of its uses need them.
struct Window {
  int32_t weight = 0;
  int64_t first = 0, last = 0;  // Uses, of all between which it is there.
  int64_t start = -1;           // The item in front of which its copy starts,
  int64_t wait = -1;            // and the one in front of which it is waited for.
};

// What each weight is: kResident, or streamed with so many of the longest times between two uses
// out of the arena.
using Levels = std::vector<int32_t>;
constexpr int32_t kResident = -1;

struct StreamPlan {
  std::vector<Window> windows;  // In the order of their copies.
  int64_t peak = 0;             // Bytes of items, resident weights and windows.
  int64_t makespan = 0;         // Picoseconds.
  int64_t bytes = 0;            // Copied in by the windows.
};

// Whether `a` is quicker or, as quick, moves fewer bytes or has fewer copies.
bool IsQuicker(const StreamPlan& a, const StreamPlan& b);

// Plans by levels.
class StreamSchedule {
 public:
  // `parts`: how many parts of about one duration the ops are in. Copies that windows of a part
  // need are waited for together, and those that the room allows start together where a part
  // begins. 0: each op is a part.
  StreamSchedule(const StreamProblem& problem, int64_t parts);

  // The plan of at most `limit` bytes. Returns false if there is none.
  bool Plan(const Levels& levels, int64_t limit, StreamPlan* plan);

  // `plan` with copies that start as late as takes no time, but for a margin.
  StreamPlan Delayed(const StreamPlan& plan);

  // `plan`, of at most `limit` bytes, with copies that start together, and are waited for together,
  // where that is quicker.
  StreamPlan Grouped(StreamPlan plan, int64_t limit);

  // The level of which a weight's uses are all in windows of their own.
  int32_t most_level(int32_t weight) const {
    return static_cast<int32_t>(windows_[weight].size()) - 1;
  }
  const std::vector<Window>& windows(int32_t weight, int32_t level) const {
    return windows_[weight][level];
  }
  // Picoseconds of ops before an item.
  int64_t before(int64_t item) const { return before_[item]; }
  // Of the makespan if there were no windows.
  int64_t least_makespan() const { return least_makespan_; }
  // Steps that plans took.
  int64_t work() const { return work_; }

 private:
  struct Times {
    std::vector<int64_t> reached;  // When each item is.
    std::vector<int64_t> needed;   // When the op that waits for each window runs.
  };

  // Has the copies start where `plan` says. Sets the figures of `plan`.
  void Measure(StreamPlan* plan, Times* times);
  int64_t Peak(const std::vector<Window>& windows) const;

  const StreamProblem& problem_;
  std::vector<std::vector<std::vector<Window>>> windows_;  // Of each weight, by its level.
  std::vector<int64_t> before_;
  std::vector<int64_t> part_;  // Of each item, where its part begins.
  PeakTree live_, taken_;      // Bytes of each item beside weights, and while a plan is made.
  int64_t least_makespan_ = 0, all_weights_ = 0, work_ = 0, depth_ = 1;
};

}  // namespace memc

#endif  // MEMC_STREAM_SCHEDULE_H_
