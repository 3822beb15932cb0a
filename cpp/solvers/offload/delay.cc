// SPDX-License-Identifier: Apache-2.0
#include "solvers/offload/delay.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "solvers/offload/lane_clock.h"

namespace memc {

namespace {

// Parts of a copy's duration that it gets, of four: runs that are quicker than the cost model has
// them then wait less often, where the lane has that time. The last one is all that is needed.
constexpr int64_t kMargins[] = {6, 5, 4};

// When the items of a schedule come, and which of them are copies in.
struct Times {
  std::vector<int64_t> before, after;  // Of each item, in picoseconds; waits lie between.
  std::vector<size_t> starts, dones;   // Items of each copy in, in the order of the lane.
};

Times TimesOf(const OffloadProblem& problem, const std::vector<Item>& items) {
  const std::vector<int64_t>& sizes = problem.ops.sizes;
  Times times;
  LaneClock clock(problem.lanes);
  std::vector<size_t> copy(sizes.size());
  for (size_t at = 0; at < items.size(); ++at) {
    const int32_t number = items[at].number;
    times.before.push_back(clock.now());
    switch (items[at].step) {
      case Step::kRun:
        clock.Run(problem.ops.costs[number]);
        break;
      case Step::kOutStart:
        copy[number] = clock.Issue(Direction::kOut, sizes[number]);
        break;
      case Step::kOutDone:
        clock.AwaitCopy(Direction::kOut, copy[number]);
        break;
      case Step::kInStart:
        copy[number] = clock.Issue(Direction::kIn, sizes[number]);
        times.starts.push_back(at);
        times.dones.push_back(at);
        break;
      case Step::kInDone:
        clock.AwaitCopy(Direction::kIn, copy[number]);
        times.dones[copy[number]] = at;
        break;
      case Step::kDrop:
        break;
    }
    times.after.push_back(clock.now());
  }
  return times;
}

// The items in front of which copies in start, if each gets `margin` quarters of its duration
// before what waits for it and the copy behind it.
std::vector<size_t> Delayed(const OffloadProblem& problem, const std::vector<Item>& items,
                            const Times& times, int64_t margin) {
  const Lane& lane = problem.lanes.in;
  std::vector<size_t> starts = times.starts;
  int64_t next = INT64_MAX;
  for (size_t i = starts.size(); i-- > 0;) {
    const int64_t duration = lane.Duration(problem.ops.sizes[items[starts[i]].number]);
    const int64_t end = std::min(next, times.after[times.dones[i]] - lane.sync);
    next = end - duration * kFullSpeed / lane.shared * margin / 4;
    const auto late = std::upper_bound(times.before.begin(), times.before.end(), next);
    const auto at = static_cast<size_t>(late - times.before.begin());
    if (at > starts[i] + 1) starts[i] = std::min(at - 1, times.dones[i]);
  }
  return starts;
}

}  // namespace

Schedule DelayFetches(const OffloadProblem& problem, Schedule schedule) {
  const Times times = TimesOf(problem, schedule.items);
  for (const int64_t margin : kMargins) {
    const std::vector<size_t> starts = Delayed(problem, schedule.items, times, margin);
    std::vector<Item> items;
    size_t next = 0;
    for (size_t at = 0; at < schedule.items.size(); ++at) {
      for (; next < starts.size() && starts[next] == at; ++next) {
        items.push_back(schedule.items[times.starts[next]]);
      }
      if (schedule.items[at].step != Step::kInStart) items.push_back(schedule.items[at]);
    }
    Schedule later = MeasureSchedule(problem, std::move(items));
    if (later.makespan <= schedule.makespan && later.peak <= schedule.peak) return later;
  }
  return schedule;
}

}  // namespace memc
