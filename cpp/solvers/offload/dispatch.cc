// SPDX-License-Identifier: Apache-2.0
#include "solvers/offload/dispatch.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "solvers/common/peak_tree.h"
#include "solvers/offload/lane_clock.h"

namespace memc {

namespace {

struct Absence {
  int32_t value;
  int32_t last, next;   // Positions of the runs that use the value before it and after it.
  bool copied = false;  // Whether it needs a copy out, as the value's first absence.
  size_t copy = 0;      // Its number in the lane.
};

class Dispatcher {
 public:
  Dispatcher(const OffloadProblem& problem, const RecomputeState& state, int64_t limit, bool list,
             Positions* positions)
      : problem_(problem),
        state_(state),
        limit_(limit),
        list_(list),
        position_(*positions),
        room_(0),
        clock_(problem.lanes) {
    ListRuns();
    ListAbsences();
    MeasureRoom();
  }

  Schedule Run(int64_t most) {
    if (!KeepsHostBudget()) {
      schedule_.makespan = INT64_MAX;
      return std::move(schedule_);
    }
    int64_t left = state_.CostUpTo(state_.last_tag());  // Of runs that are still to come.
    for (int32_t at = 0; at < static_cast<int32_t>(runs_.size()); ++at) {
      MakeRoom(at);
      StartFetches(at);
      AwaitFetches(at);
      if (clock_.now() + left > most) {
        schedule_.makespan = clock_.now() + left;
        return std::move(schedule_);
      }
      schedule_.peak = std::max(schedule_.peak, room_.MaxIn(at, at) + held_);
      const int32_t op = runs_[at];
      Add(Step::kRun, op);
      schedule_.computing += problem_.ops.costs[op];
      clock_.Run(problem_.ops.costs[op]);
      left -= problem_.ops.costs[op];
      while (!leaving_.empty() && clock_.Ended(Direction::kOut) > leaving_.front()->copy) Leave();
      StartCopies(at);
    }
    while (!leaving_.empty()) Leave();
    schedule_.makespan = clock_.now();
    schedule_.added_cost = state_.added_cost();
    return std::move(schedule_);
  }

 private:
  // --- The problem by positions.
  void ListRuns() {
    position_.resize(state_.last_tag() + 1, 0);
    for (int32_t run = state_.first(); run >= 0; run = state_.next(run)) {
      position_[state_.tag_of(run)] = static_cast<int32_t>(runs_.size());
      tags_.push_back(state_.tag_of(run));
      runs_.push_back(state_.op_of(run));
    }
  }

  // The position after the last run with a tag up to `tag`, that one or the next of which has one.
  int32_t PositionAfter(int32_t tag) const {
    const int32_t at = position_[tag];
    if (at < static_cast<int32_t>(tags_.size()) && tags_[at] == tag) return at + 1;
    return position_[tag + 1];
  }

  void ListAbsences() {
    for (const RecomputeState::Fetched& fetch : state_.fetches()) {
      const int32_t tag = state_.tag_of(fetch.run);
      const int32_t last = state_.LastUse(fetch.value, tag);
      if (position_[tag] - position_[last] > 1) {
        absences_.push_back({fetch.value, position_[last], position_[tag]});
      }
    }
    std::sort(absences_.begin(), absences_.end(), [](const Absence& a, const Absence& b) {
      return a.next != b.next ? a.next < b.next : a.value < b.value;
    });
    std::vector<char> known(problem_.ops.sizes.size(), 0);
    for (Absence& absence : absences_) {
      absence.copied = std::exchange(known[absence.value], 1) == 0;
      by_last_.push_back(&absence);
    }
    std::stable_sort(by_last_.begin(), by_last_.end(),
                     [](const Absence* a, const Absence* b) { return a->last < b->last; });
  }

  // A copy is needed from when its value first leaves to when it comes back last.
  bool KeepsHostBudget() const {
    if (problem_.host_budget == INT64_MAX) return true;
    std::vector<int32_t> first(problem_.ops.sizes.size(), -1), last = first;
    for (const Absence& absence : absences_) {  // In the order of `next`, and so of `last`.
      if (first[absence.value] < 0) first[absence.value] = absence.last;
      last[absence.value] = absence.next;
    }
    std::vector<int64_t> change(runs_.size() + 1, 0);
    for (size_t value = 0; value < first.size(); ++value) {
      if (first[value] < 0) continue;
      change[first[value]] += problem_.ops.sizes[value];
      change[last[value]] -= problem_.ops.sizes[value];
    }
    int64_t copied = 0;
    return std::all_of(change.begin(), change.end(), [&](int64_t amount) {
      copied += amount;
      return copied <= problem_.host_budget;
    });
  }

  void MeasureRoom() {
    std::vector<int64_t> change(runs_.size() + 1, 0);
    for (size_t value = 0; value < problem_.ops.sizes.size(); ++value) {
      const int64_t size = problem_.ops.sizes[value];
      for (const auto& range : state_.live_ranges_of(static_cast<int32_t>(value))) {
        // A range that ends before its last reader, which takes the bytes over, ends in a free
        // tag.
        change[position_[range.lower]] += size;
        change[PositionAfter(range.upper)] -= size;
      }
    }
    std::vector<int64_t> live(runs_.size());
    int64_t sum = 0;
    for (size_t at = 0; at < runs_.size(); ++at) {
      sum += change[at];
      live[at] = sum + problem_.ops.scratch[runs_[at]];
    }
    room_ = PeakTree(live);
  }

  // --- Walking along them.
  void Add(Step step, int32_t number) {
    if (list_) schedule_.items.push_back({step, number});
  }

  int64_t Size(const Absence& absence) const { return problem_.ops.sizes[absence.value]; }

  void StartCopies(int32_t at) {
    for (; left_ < by_last_.size() && by_last_[left_]->last == at; ++left_) {
      Absence* absence = by_last_[left_];
      if (!absence->copied) {
        Add(Step::kDrop, absence->value);
        continue;
      }
      Add(Step::kOutStart, absence->value);
      absence->copy = clock_.Issue(Direction::kOut, Size(*absence));
      schedule_.bytes_out += Size(*absence);
      leaving_.push_back(absence);
      held_ += Size(*absence);
    }
  }

  // Waits for the end of the first copy of those that leave.
  void Leave() {
    clock_.AwaitCopy(Direction::kOut, leaving_.front()->copy);
    Add(Step::kOutDone, leaving_.front()->value);
    held_ -= Size(*leaving_.front());
    leaving_.pop_front();
  }

  // Starts what comes next into the lane that will be idle before the end of the run at `at`, as
  // far as there is room, and what that run needs.
  void StartFetches(int32_t at) {
    const int64_t end = clock_.now() + problem_.ops.costs[runs_[at]];
    while (fetched_ < absences_.size()) {
      Absence& absence = absences_[fetched_];
      const bool needed = absence.next == at;
      if (!needed && (absence.last >= at || clock_.IdleFrom(Direction::kIn) >= end)) return;
      if (IsLeaving(absence)) {
        if (!needed) return;
        while (IsLeaving(absence)) Leave();
      }
      if (!needed) {
        const int64_t size = Size(absence);
        if (room_.MaxIn(at, absence.next - 1) + size > limit_) return;
        if (room_.MaxIn(at, at) + size + held_ > limit_) return;
        room_.Add(at, absence.next - 1, size);
      }
      Add(Step::kInStart, absence.value);
      absence.copy = clock_.Issue(Direction::kIn, Size(absence));
      schedule_.bytes_in += Size(absence);
      ++fetched_;
    }
  }

  bool IsLeaving(const Absence& absence) const {
    return std::any_of(leaving_.begin(), leaving_.end(),
                       [&](const Absence* other) { return other->value == absence.value; });
  }

  void MakeRoom(int32_t at) {
    while (!leaving_.empty() && room_.MaxIn(at, at) + held_ > limit_) Leave();
  }

  void AwaitFetches(int32_t at) {
    for (; awaited_ < fetched_ && absences_[awaited_].next <= at; ++awaited_) {
      clock_.AwaitCopy(Direction::kIn, absences_[awaited_].copy);
      Add(Step::kInDone, absences_[awaited_].value);
    }
  }

  const OffloadProblem& problem_;
  const RecomputeState& state_;
  const int64_t limit_;
  const bool list_;
  std::vector<int32_t> runs_, tags_;  // Ops, and where they are.
  Positions& position_;               // Of each tag that is not free.
  std::vector<Absence> absences_;     // In the order of the runs that need the values,
  std::vector<Absence*> by_last_;     // and of those after which they leave.
  size_t left_ = 0;                   // How many have left.
  PeakTree room_;                     // Bytes live at each position.
  LaneClock clock_;
  std::deque<Absence*> leaving_;  // In the order of their lane.
  int64_t held_ = 0;              // Bytes of those.
  size_t fetched_ = 0, awaited_ = 0;
  Schedule schedule_;
};

}  // namespace

Schedule Dispatch(const OffloadProblem& problem, const RecomputeState& state, int64_t limit,
                  bool list, int64_t most, Positions* positions) {
  return Dispatcher(problem, state, limit, list, positions).Run(most);
}

}  // namespace memc
