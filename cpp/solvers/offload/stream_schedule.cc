// SPDX-License-Identifier: Apache-2.0
#include "solvers/offload/stream_schedule.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "solvers/offload/lane_clock.h"

namespace memc {

namespace {

// Quarters of a copy's duration that it gets before what waits for it: as in `delay.cc`.
constexpr int64_t kMargins[] = {6, 5, 4};

constexpr int64_t kGroupWork = 200'000;  // Of steps that group copies.

// The clock of a problem's items beside copies of windows.
class ItemClock {
 public:
  explicit ItemClock(const StreamProblem& problem)
      : problem_(problem), clock_(problem.lanes), copies_(problem.items.size()) {}

  int64_t now() const { return clock_.now(); }
  size_t Start(const Window& window) {
    const bool forked = std::exchange(forked_, true);
    return clock_.Issue(Direction::kIn, problem_.sizes[window.weight], forked);
  }
  // Of copies that are waited for together, the last.
  void Await(size_t copy) {
    clock_.AwaitCopy(Direction::kIn, copy);
    forked_ = false;
  }

  void Pass(int64_t item) {
    const int64_t number = problem_.numbers[item];
    switch (problem_.items[item]) {
      case StreamItem::kRun:
        clock_.Run(number);
        if (number > 0) forked_ = false;
        break;
      case StreamItem::kOutStart:
        copies_[item] = clock_.Issue(Direction::kOut, number);
        break;
      case StreamItem::kInStart:
        copies_[item] = clock_.Issue(Direction::kIn, number);
        break;
      case StreamItem::kOutDone:
        clock_.AwaitCopy(Direction::kOut, copies_[number]);
        break;
      case StreamItem::kInDone:
        clock_.AwaitCopy(Direction::kIn, copies_[number]);
        break;
    }
  }

 private:
  const StreamProblem& problem_;
  LaneClock clock_;
  std::vector<size_t> copies_;  // Of each start.
  bool forked_ = false;         // Whether the lane has waited for the last op that ran.
};

bool IsEarlier(const Window& a, const Window& b) {
  if (a.first != b.first) return a.first < b.first;
  return a.last != b.last ? a.last < b.last : a.weight < b.weight;
}

// Whether no copy is waited for where window `at`'s is, but behind it.
bool IsLast(const std::vector<Window>& windows, size_t at) {
  return at + 1 == windows.size() || windows[at + 1].wait != windows[at].wait;
}

}  // namespace

bool IsQuicker(const StreamPlan& a, const StreamPlan& b) {
  if (a.makespan != b.makespan) return a.makespan < b.makespan;
  return a.bytes != b.bytes ? a.bytes < b.bytes : a.windows.size() < b.windows.size();
}

StreamSchedule::StreamSchedule(const StreamProblem& problem, int64_t parts)
    : problem_(problem),
      windows_(problem.sizes.size()),
      before_(problem.items.size() + 1, 0),
      live_(problem.live),
      taken_(live_) {
  while (int64_t{1} << depth_ < problem.length()) ++depth_;
  for (int64_t item = 0; item < problem.length(); ++item) {
    const bool runs = problem.items[item] == StreamItem::kRun;
    before_[item + 1] = before_[item] + (runs ? problem.numbers[item] : 0);
  }
  for (int64_t item = 0; item < problem.length(); ++item) {
    const int64_t whole = std::max<int64_t>(before_.back(), 1);
    const auto part = [&](int64_t at) {
      return static_cast<__int128>(before_[at]) * parts / whole;
    };
    const bool begins = item == 0 || parts == 0 || part(item) != part(item - 1);
    part_.push_back(begins ? item : part_.back());
  }
  all_weights_ = std::accumulate(problem.sizes.begin(), problem.sizes.end(), int64_t{0});
  for (int32_t weight = 0; weight < problem.weights(); ++weight) {
    const std::vector<int64_t> uses(problem.uses.begin(weight), problem.uses.end(weight));
    std::vector<size_t> gaps(uses.size() - 1);  // Gap i lies behind use i.
    std::iota(gaps.begin(), gaps.end(), size_t{0});
    const auto time = [&](size_t gap) { return before_[uses[gap + 1]] - before_[uses[gap] + 1]; };
    std::stable_sort(gaps.begin(), gaps.end(),
                     [&](size_t a, size_t b) { return time(a) > time(b); });
    std::vector<char> open(uses.size(), 0);
    open.back() = 1;
    for (size_t level = 0; level < uses.size(); ++level) {
      if (level > 0) open[gaps[level - 1]] = 1;
      std::vector<Window> found;
      int64_t first = uses.front();
      for (size_t use = 0; use < uses.size(); ++use) {
        if (!open[use]) continue;
        found.push_back({weight, first, uses[use], -1, first});
        if (use + 1 < uses.size()) first = uses[use + 1];
      }
      windows_[weight].push_back(std::move(found));
    }
  }
  StreamPlan none;
  Measure(&none, nullptr);
  least_makespan_ = none.makespan;
}

bool StreamSchedule::Plan(const Levels& levels, int64_t limit, StreamPlan* plan) {
  std::vector<Window>& windows = plan->windows;
  windows.clear();
  plan->bytes = 0;
  int64_t room = limit - all_weights_, streamed = 0;
  for (int32_t weight = 0; weight < problem_.weights(); ++weight) {
    if (levels[weight] == kResident) continue;
    const std::vector<Window>& its = windows_[weight][levels[weight]];
    windows.insert(windows.end(), its.begin(), its.end());
    streamed += problem_.sizes[weight];
    plan->bytes += problem_.sizes[weight] * static_cast<int64_t>(its.size());
  }
  room += streamed;
  if (streamed > problem_.host_budget) return false;
  std::sort(windows.begin(), windows.end(), IsEarlier);
  for (size_t i = 0; i < windows.size(); ++i) {
    const bool with_last = i > 0 && part_[windows[i].first] == part_[windows[i - 1].first];
    windows[i].wait = with_last ? windows[i - 1].wait : windows[i].first;
  }
  if (live_.Max() > room) return false;
  taken_ = live_;
  ItemClock clock(problem_);
  std::vector<size_t> copies(windows.size());
  size_t next = 0, waited = 0;  // The windows that start, and are waited for, next.
  for (int64_t item = 0; item < problem_.length(); ++item) {
    for (; next < windows.size(); ++next) {
      Window& window = windows[next];
      const int64_t size = problem_.sizes[window.weight];
      const auto from = static_cast<int32_t>(item), to = static_cast<int32_t>(window.last);
      if (part_[item] != item && item != window.wait) break;
      work_ += depth_;
      if (taken_.MaxIn(from, to) > room - size) break;
      taken_.Add(from, to, size);
      window.start = item;
      copies[next] = clock.Start(window);
    }
    for (; waited < windows.size() && windows[waited].wait == item; ++waited) {
      if (waited >= next) return false;
      if (IsLast(windows, waited)) clock.Await(copies[waited]);
    }
    clock.Pass(item);
  }
  work_ += problem_.length();
  plan->makespan = clock.now();
  return true;
}

void StreamSchedule::Measure(StreamPlan* plan, Times* times) {
  ItemClock clock(problem_);
  const std::vector<Window>& windows = plan->windows;
  std::vector<size_t> copies(windows.size());
  size_t next = 0, waited = 0;
  if (times != nullptr) times->needed.resize(windows.size());
  for (int64_t item = 0; item < problem_.length(); ++item) {
    if (times != nullptr) times->reached.push_back(clock.now());
    for (; next < windows.size() && windows[next].start == item; ++next) {
      copies[next] = clock.Start(windows[next]);
    }
    const size_t before = waited;
    for (; waited < windows.size() && windows[waited].wait == item; ++waited) {
      if (IsLast(windows, waited)) clock.Await(copies[waited]);
    }
    if (times != nullptr) {
      std::fill(times->needed.begin() + before, times->needed.begin() + waited, clock.now());
    }
    clock.Pass(item);
  }
  work_ += problem_.length();
  plan->makespan = clock.now();
  plan->peak = Peak(windows);
}

int64_t StreamSchedule::Peak(const std::vector<Window>& windows) const {
  std::vector<int64_t> change(problem_.items.size() + 1, 0);
  std::vector<char> streamed(problem_.sizes.size(), 0);
  for (const Window& window : windows) {
    change[window.start] += problem_.sizes[window.weight];
    change[window.last + 1] -= problem_.sizes[window.weight];
    streamed[window.weight] = 1;
  }
  int64_t resident = all_weights_;
  for (size_t weight = 0; weight < streamed.size(); ++weight) {
    if (streamed[weight]) resident -= problem_.sizes[weight];
  }
  int64_t open = 0, peak = 0;
  for (int64_t item = 0; item < problem_.length(); ++item) {
    open += change[item];
    peak = std::max(peak, problem_.live[item] + open);
  }
  return peak + resident;
}

StreamPlan StreamSchedule::Delayed(const StreamPlan& plan) {
  Times times;
  StreamPlan best = plan;
  Measure(&best, &times);
  const Lane& lane = problem_.lanes.in;
  for (const int64_t margin : kMargins) {
    StreamPlan later = plan;
    int64_t next = std::numeric_limits<int64_t>::max();
    int64_t behind = problem_.length();  // The item of the start behind it.
    for (size_t i = later.windows.size(); i-- > 0;) {
      Window& window = later.windows[i];
      const int64_t duration = lane.Duration(problem_.sizes[window.weight]);
      const int64_t end = std::min(next, times.needed[i] - lane.sync);
      next = end - duration * margin / 4;
      const auto late = std::upper_bound(times.reached.begin(), times.reached.end(), next);
      const int64_t at = (late - times.reached.begin()) - 1;
      window.start = std::min({std::max(window.start, at), window.wait, behind});
      behind = window.start;
    }
    Measure(&later, nullptr);
    if (later.makespan <= best.makespan) return later;
  }
  return best;
}

StreamPlan StreamSchedule::Grouped(StreamPlan plan, int64_t limit) {
  if (problem_.lanes.in.sync == 0) return plan;
  const int64_t end = work_ + kGroupWork;
  const auto take = [&](const StreamPlan& other) {
    if (other.peak > limit || other.makespan >= plan.makespan) return false;
    plan = other;
    return true;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = 0; i + 1 < plan.windows.size() && work_ < end; ++i) {
      for (int change = 0; change < 3; ++change) {
        StreamPlan other = plan;
        Window &here = other.windows[i], &behind = other.windows[i + 1];
        if (change == 0) behind.start = here.start;
        if (change == 1) here.start = std::min(behind.start, here.wait);
        if (change == 2) {
          if (behind.start > here.wait) continue;
          behind.wait = here.wait;
        }
        Measure(&other, nullptr);
        changed = take(other) || changed;
      }
    }
  }
  return plan;
}

}  // namespace memc
