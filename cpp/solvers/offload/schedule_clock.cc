// SPDX-License-Identifier: Apache-2.0
#include "solvers/offload/schedule_clock.h"

#include <algorithm>
#include <utility>

namespace memc {

namespace {

Direction LaneOf(Step step) {
  return step == Step::kOutStart || step == Step::kOutDone ? Direction::kOut : Direction::kIn;
}

bool IsStart(Step step) { return step == Step::kOutStart || step == Step::kInStart; }

bool IsDone(Step step) { return step == Step::kOutDone || step == Step::kInDone; }

}  // namespace

ScheduleClock::ScheduleClock(const OffloadProblem& problem, const std::vector<Item>& items)
    : problem_(problem),
      items_(items),
      clock_(problem.lanes),
      copies_(items.size(), 0),
      joins_(items.size(), 0) {
  size_t started[2] = {0, 0};
  std::vector<size_t> copy_of(problem.ops.sizes.size(), 0);  // Of each value: its latest copy.
  for (size_t at = 0; at < items.size(); ++at) {
    const Item& item = items[at];
    if (IsStart(item.step)) {
      copy_of[item.number] = started[static_cast<size_t>(LaneOf(item.step))]++;
    }
    if (item.step != Step::kRun) copies_[at] = copy_of[item.number];
  }
  FindJoins();
}

void ScheduleClock::FindJoins() {
  int64_t joined[2] = {-1, -1};  // Of each lane: the last copy that is waited for at this place.
  for (size_t at = items_.size(); at-- > 0;) {
    const Item& item = items_[at];
    if (IsDone(item.step)) {
      int64_t& last = joined[static_cast<size_t>(LaneOf(item.step))];
      const auto copy = static_cast<int64_t>(copies_[at]);
      joins_[at] = copy > last;
      last = std::max(last, copy);
    } else if (IsStart(item.step) ||
               (item.step == Step::kRun && problem_.ops.costs[item.number] > 0)) {
      joined[0] = joined[1] = -1;
    }
  }
}

void ScheduleClock::Pass() {
  const Item& item = items_[at_];
  const size_t copy = copies_[at_];
  const bool joins = joins_[at_] != 0;
  ++at_;
  if (item.step == Step::kDrop || (IsDone(item.step) && !joins)) return;
  if (IsStart(item.step)) {
    const Direction lane = LaneOf(item.step);
    const bool forked = std::exchange(forked_[static_cast<size_t>(lane)], true);
    clock_.Issue(lane, problem_.ops.sizes[item.number], forked);
    return;
  }
  if (item.step == Step::kRun) {
    const int64_t cost = problem_.ops.costs[item.number];
    if (cost == 0) return;
    clock_.Run(cost);
  } else {
    clock_.AwaitCopy(LaneOf(item.step), copy);
  }
  forked_[0] = forked_[1] = false;
}

}  // namespace memc
