// SPDX-License-Identifier: Apache-2.0
#include "solvers/offload/schedule.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "solvers/offload/lane_clock.h"

namespace memc {

namespace {

// A stretch of items during which a value's bytes, or those of its copy, are taken.
struct Stretch {
  int64_t first, last;
  int32_t value;
};

// Walks the items once. Where a value is, is known at each of them.
class Walk {
 public:
  explicit Walk(const OffloadProblem& problem)
      : problem_(problem),
        ops_(problem.ops),
        clock_(problem.lanes),
        runs_(ops_.ops(), 0),
        places_(ops_.sizes.size()) {}

  Schedule Measure(std::vector<Item> items) {
    for (const Item& item : items) {
      const auto count =
          static_cast<int32_t>(item.step == Step::kRun ? ops_.ops() : ops_.sizes.size());
      if (item.number < 0 || item.number >= count) Refuse(item, "there is none of this number");
      if (item.step == Step::kRun) {
        Run(item);
      } else {
        Copy(item);
      }
      ++at_;
    }
    const auto idle = std::find(runs_.begin(), runs_.end(), 0);
    if (idle != runs_.end()) {
      throw std::invalid_argument("op " + std::to_string(idle - runs_.begin()) + " does not run");
    }
    for (size_t value = 0; value < places_.size(); ++value) {
      if (places_[value].leaving || places_[value].coming) {
        throw std::invalid_argument("value " + std::to_string(value) + ": its copy is not done");
      }
      if (places_[value].since >= 0) End(static_cast<int32_t>(value), places_[value].used);
    }
    schedule_.makespan = clock_.now();
    Sum(items);
    schedule_.items = std::move(items);
    return std::move(schedule_);
  }

 private:
  struct Place {
    int64_t since = -1;  // The item from which its bytes are taken; -1 while they are not.
    int64_t used = -1;   // The last item that uses them.
    bool copied = false, leaving = false, coming = false;
    int64_t copied_since = 0, copy_used = -1;
    size_t copy = 0;
  };

  [[noreturn]] void Refuse(const Item& item, const char* why) const {
    throw std::invalid_argument("item " + std::to_string(at_) + " (" +
                                (item.step == Step::kRun ? "op " : "value ") +
                                std::to_string(item.number) + "): " + why);
  }

  void End(int32_t value, int64_t last) {
    stretches_.push_back({places_[value].since, last, value});
    places_[value].since = -1;
  }

  void Run(const Item& item) {
    const int32_t op = item.number;
    if (runs_[op]++ == 0) {
      if (ops_.in_order && op != first_runs_) Refuse(item, "it runs out of order");
      ++first_runs_;
    } else {
      if (ops_.once[op]) Refuse(item, "it must not be recomputed");
      schedule_.added_cost += ops_.costs[op];
    }
    for (const int32_t* i = ops_.until.begin(op); i != ops_.until.end(op); ++i) {
      if (runs_[*i] > 0) Refuse(item, "it must not run any more");
    }
    for (const int32_t* v = ops_.reads.begin(op); v != ops_.reads.end(op); ++v) {
      if (places_[*v].since < 0 || places_[*v].coming) Refuse(item, "what it reads is not there");
      places_[*v].used = at_;
    }
    for (const int32_t* v = ops_.makes.begin(op); v != ops_.makes.end(op); ++v) {
      Place& place = places_[*v];
      if (place.leaving || place.coming) Refuse(item, "what it makes is being copied");
      if (place.since >= 0) End(*v, place.used);
      place.since = place.used = at_;
    }
    schedule_.computing += ops_.costs[op];
    clock_.Run(ops_.costs[op]);
  }

  void Copy(const Item& item) {
    Place& place = places_[item.number];
    const int64_t size = ops_.sizes[item.number];
    const bool here = place.since >= 0 && !place.leaving && !place.coming;
    if (!problem_.movable[item.number]) Refuse(item, "it may not be copied");
    switch (item.step) {
      case Step::kOutStart:
        if (!here || place.copied) Refuse(item, "it is not there, or has a copy");
        place.leaving = true;
        place.copied_since = place.copy_used = at_;
        place.copy = clock_.Issue(Direction::kOut, size);
        schedule_.bytes_out += size;
        break;
      case Step::kOutDone:
        if (!place.leaving) Refuse(item, "it is not being copied out");
        clock_.AwaitCopy(Direction::kOut, place.copy);
        place.leaving = false;
        place.copied = true;
        End(item.number, at_);
        break;
      case Step::kDrop:
        if (!here || !place.copied) Refuse(item, "it is not there, or has no copy");
        End(item.number, place.used);
        break;
      case Step::kInStart:
        if (place.since >= 0 || !place.copied) Refuse(item, "it is there, or has no copy");
        place.coming = true;
        place.since = place.used = at_;
        place.copy = clock_.Issue(Direction::kIn, size);
        schedule_.bytes_in += size;
        break;
      case Step::kInDone:
        if (!place.coming) Refuse(item, "it is not being copied in");
        clock_.AwaitCopy(Direction::kIn, place.copy);
        place.coming = false;
        place.used = place.copy_used = at_;
        break;
      case Step::kRun:
        break;
    }
  }

  // The peaks of what was taken.
  void Sum(const std::vector<Item>& items) {
    std::vector<int64_t> change(items.size() + 1, 0);
    std::vector<std::vector<int32_t>> dies(items.size());
    for (const Stretch& stretch : stretches_) {
      change[stretch.first] += ops_.sizes[stretch.value];
      change[stretch.last + 1] -= ops_.sizes[stretch.value];
      dies[stretch.last].push_back(stretch.value);
    }
    const auto ends = [&](int64_t at, int32_t value) {
      return std::find(dies[at].begin(), dies[at].end(), value) != dies[at].end();
    };
    int64_t live = 0;
    for (size_t at = 0; at < items.size(); ++at) {
      live += change[at];
      if (items[at].step != Step::kRun) {
        schedule_.peak = std::max(schedule_.peak, live);
        continue;
      }
      const int32_t op = items[at].number;
      int64_t now = live + ops_.scratch[op];
      for (const int32_t* v = ops_.over.begin(op); v != ops_.over.end(op); ++v) {
        if (!ends(at, *v)) continue;
        now -= ops_.sizes[*v];
        break;
      }
      for (const int32_t* v = ops_.parts.begin(op); v != ops_.parts.end(op); ++v) {
        if (ends(at, *v)) now -= ops_.sizes[*v];
      }
      schedule_.peak = std::max(schedule_.peak, now);
    }
    std::fill(change.begin(), change.end(), 0);
    for (size_t value = 0; value < places_.size(); ++value) {
      if (!places_[value].copied) continue;
      change[places_[value].copied_since] += ops_.sizes[value];
      change[places_[value].copy_used + 1] -= ops_.sizes[value];
    }
    int64_t copied = 0;
    for (int64_t amount : change) {
      copied += amount;
      schedule_.copied_peak = std::max(schedule_.copied_peak, copied);
    }
  }

  const OffloadProblem& problem_;
  const RecomputeProblem& ops_;
  LaneClock clock_;
  std::vector<int64_t> runs_;
  int64_t first_runs_ = 0;
  int64_t at_ = 0;
  std::vector<Place> places_;  // Of each value.
  std::vector<Stretch> stretches_;
  Schedule schedule_;
};

}  // namespace

Schedule MeasureSchedule(const OffloadProblem& problem, std::vector<Item> items) {
  return Walk(problem).Measure(std::move(items));
}

}  // namespace memc
