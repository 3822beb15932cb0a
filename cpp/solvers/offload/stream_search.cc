// SPDX-License-Identifier: Apache-2.0
#include "solvers/offload/stream_search.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "solvers/recompute/recompute_random.h"

namespace memc {

namespace {

constexpr int64_t kLimits = 160;               // Between the peak without streams and the least.
constexpr int64_t kLimitWork = 120'000;        // Of the search at one limit.
constexpr int64_t kParts[] = {0, 48, 24, 12};  // Of the ops, in which copies are together.
constexpr int64_t kWalks = 12;                 // Of which each halves what the rate may be.
constexpr double kFastest = 64;                // Times the lane's rate, at which a walk streams.
constexpr double kWarm = 0.01, kCold = 1e-5;   // Temperatures, of the makespan.
constexpr double kBytes = 1e-3;  // What a picosecond of the lane is worth in picoseconds.

class StreamSearch {
 public:
  StreamSearch(const StreamProblem& problem, int64_t parts)
      : problem_(problem),
        parts_(parts),
        schedule_(problem, parts),
        random_(1, true),
        in_use_order_(problem.sizes.size()) {
    std::iota(in_use_order_.begin(), in_use_order_.end(), 0);
    std::stable_sort(in_use_order_.begin(), in_use_order_.end(), [&](int32_t a, int32_t b) {
      return *problem.uses.begin(a) < *problem.uses.begin(b);
    });
    levels_.assign(problem.sizes.size(), kResident);
  }

  // The best plan found of at most `limit` bytes. None if none is.
  std::optional<StreamPlan> Lower(int64_t limit) {
    limit_ = limit;
    best_.reset();
    const int64_t end = schedule_.work() + kLimitWork;
    Try(levels_);  // What was best for the limit before.
    Walk();
    if (!best_) Try(All());
    if (!best_) return std::nullopt;
    if (best_->makespan > schedule_.least_makespan()) Anneal(end);
    Release(end);
    levels_ = best_levels_;
    StreamPlan plan = schedule_.Delayed(*best_);
    return parts_ == 0 ? schedule_.Grouped(std::move(plan), limit) : plan;
  }

 private:
  Levels All() const {
    Levels levels(problem_.sizes.size());
    for (int32_t weight = 0; weight < problem_.weights(); ++weight) {
      levels[weight] = schedule_.most_level(weight);
    }
    return levels;
  }

  // Takes levels for the best if they are. Returns whether they keep the limit.
  bool Try(const Levels& levels) {
    if (!schedule_.Plan(levels, limit_, &tried_)) return false;
    if (!best_ || IsQuicker(tried_, *best_)) {
      best_ = tried_;
      best_levels_ = levels;
    }
    return true;
  }

  // Levels by which the lane is as busy everywhere as it is on the whole: weights are streamed in
  // the order of their uses as long as a lane of `rate` times the speed has copied them in time.
  // What is streamed is spread by this, so that windows are small.
  Levels Spread(double rate) const {
    Levels levels(problem_.sizes.size(), kResident);
    double copied = 0;
    int64_t on_host = 0;
    for (const int32_t weight : in_use_order_) {
      const int32_t level = LevelOf(weight);
      const double took = static_cast<double>(problem_.lanes.in.Duration(problem_.sizes[weight]));
      const double time =
          rate * static_cast<double>(schedule_.before(*problem_.uses.begin(weight)));
      if (copied + took > time) continue;
      if (on_host + problem_.sizes[weight] > problem_.host_budget) continue;
      on_host += problem_.sizes[weight];
      copied += took * (level + 1);
      levels[weight] = level;
    }
    return levels;
  }

  // So that a weight is away where its copy has the time.
  int32_t LevelOf(int32_t weight) const {
    const int64_t took = problem_.lanes.in.Duration(problem_.sizes[weight]);
    int32_t level = 0;
    for (; level < schedule_.most_level(weight); ++level) {
      const std::vector<Window>& windows = schedule_.windows(weight, level + 1);
      int64_t shortest = std::numeric_limits<int64_t>::max();
      for (size_t i = 1; i < windows.size(); ++i) {
        shortest = std::min(shortest, schedule_.before(windows[i].first) -
                                          schedule_.before(windows[i - 1].last + 1));
      }
      if (shortest < 2 * took) break;
    }
    return level;
  }

  // The lowest rate that keeps the limit.
  void Walk() {
    double low = 0, high = kFastest;
    if (!Try(Spread(high))) return;
    for (int64_t walk = 0; walk < kWalks; ++walk) {
      // Low rates in smaller steps.
      const double middle = low > 0 ? std::sqrt(low * high) : high / 8;
      (Try(Spread(middle)) ? high : low) = middle;
    }
  }

  double Energy(const StreamPlan& plan) const {
    const auto moved = static_cast<double>(
        problem_.lanes.in.Duration(plan.bytes, static_cast<int64_t>(plan.windows.size())));
    return static_cast<double>(plan.makespan) + kBytes * moved;
  }

  // Exchanges what is streamed, from the best on.
  void Anneal(int64_t end) {
    Levels now = best_levels_;
    double energy = Energy(*best_);
    const int64_t begin = schedule_.work();
    const double scale = static_cast<double>(best_->makespan);
    while (schedule_.work() < end) {
      const double done =
          static_cast<double>(schedule_.work() - begin) / static_cast<double>(end - begin);
      const double warmth = scale * kWarm * std::pow(kCold / kWarm, done);
      Levels next = now;
      Change(&next);
      if (!Try(next)) continue;
      const double after = Energy(tried_);
      if (after > energy && random_.Uniform() >= std::exp((energy - after) / warmth)) continue;
      now = std::move(next);
      energy = after;
    }
  }

  // One to three weights get another level.
  void Change(Levels* levels) {
    const size_t count = 1 + random_.Below(3);
    for (size_t i = 0; i < count; ++i) {
      const auto weight = static_cast<int32_t>(random_.Below(levels->size()));
      int32_t& level = (*levels)[weight];
      const int32_t most = schedule_.most_level(weight);
      if (level == kResident) {
        level =
            random_.Below(2) == 0 ? LevelOf(weight) : static_cast<int32_t>(random_.Below(most + 1));
      } else if (most > 0 && random_.Below(2) == 0) {
        level = static_cast<int32_t>(random_.Below(most + 1));
      } else {
        level = kResident;
      }
    }
  }

  // Makes weights resident, largest first, where the limit has room for them and no time is lost.
  void Release(int64_t end) {
    std::vector<int32_t> order = in_use_order_;
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return problem_.sizes[a] > problem_.sizes[b]; });
    // Of a problem so large that a search is over before it begins, too.
    end = std::max(end, schedule_.work() + kLimitWork);
    for (const int32_t weight : order) {
      if (best_levels_[weight] == kResident) continue;
      if (schedule_.work() >= end) break;
      Levels levels = best_levels_;
      levels[weight] = kResident;
      Try(levels);
    }
  }

  const StreamProblem& problem_;
  const int64_t parts_;
  StreamSchedule schedule_;
  RecomputeRandom random_;
  std::vector<int32_t> in_use_order_;  // By first uses.
  int64_t limit_ = 0;
  Levels levels_, best_levels_;
  std::optional<StreamPlan> best_;
  StreamPlan tried_;
};

void Validate(const StreamProblem& problem) {
  const auto refuse = [](const std::string& why) { throw std::invalid_argument(why); };
  if (problem.items.empty()) refuse("expected items");
  if (problem.numbers.size() != problem.items.size() ||
      problem.live.size() != problem.items.size()) {
    refuse("expected a number and live bytes of each item");
  }
  if (problem.uses.size() != problem.weights()) refuse("expected uses of each weight");
  for (int64_t item = 0; item < problem.length(); ++item) {
    const StreamItem kind = problem.items[item];
    const int64_t number = problem.numbers[item];
    if (number < 0 || problem.live[item] < 0) refuse("expected no negative numbers");
    if (kind != StreamItem::kOutDone && kind != StreamItem::kInDone) continue;
    const StreamItem start =
        kind == StreamItem::kOutDone ? StreamItem::kOutStart : StreamItem::kInStart;
    if (number >= item || problem.items[number] != start) {
      refuse("item " + std::to_string(item) + ": expected the done of a start before it");
    }
  }
  for (int64_t weight = 0; weight < problem.weights(); ++weight) {
    const int32_t *begin = problem.uses.begin(weight), *end = problem.uses.end(weight);
    if (problem.sizes[weight] < 1 || begin == end) refuse("expected weights with bytes and uses");
    for (const int32_t* use = begin; use != end; ++use) {
      if (*use < 0 || *use >= problem.length() || (use != begin && *use <= use[-1])) {
        refuse("expected uses in ascending order");
      }
    }
  }
}

}  // namespace

int64_t LeastStreamed(const StreamProblem& problem) {
  Validate(problem);
  std::vector<int64_t> taken = problem.live;
  for (int64_t weight = 0; weight < problem.weights(); ++weight) {
    for (const int32_t* i = problem.uses.begin(weight); i != problem.uses.end(weight); ++i) {
      taken[*i] += problem.sizes[weight];
    }
  }
  return *std::max_element(taken.begin(), taken.end());
}

std::vector<StreamPlan> StreamLadder(const StreamProblem& problem) {
  const int64_t least = LeastStreamed(problem);
  std::vector<std::unique_ptr<StreamSearch>> searches;
  for (const int64_t parts : kParts) {
    // Where ops are not held, nothing is gained by parts.
    if (parts == 0 || problem.lanes.in.sync > 0) {
      searches.push_back(std::make_unique<StreamSearch>(problem, parts));
    }
  }
  const int64_t all = std::accumulate(problem.sizes.begin(), problem.sizes.end(), int64_t{0});
  const int64_t top = all + *std::max_element(problem.live.begin(), problem.live.end());
  std::vector<StreamPlan> plans;
  problem.watch.Expect(kLimits + 1);
  for (int64_t step = 0; step <= kLimits; ++step) {
    problem.watch.Check();
    problem.watch.Add(1);
    const auto part = static_cast<__int128>(top - least) * step / kLimits;
    const size_t before = plans.size();
    for (const auto& search : searches) {
      std::optional<StreamPlan> plan = search->Lower(top - static_cast<int64_t>(part));
      if (plan) plans.push_back(std::move(*plan));
    }
    if (plans.size() == before || top == least) break;  // A host budget's end.
  }
  std::stable_sort(plans.begin(), plans.end(), [](const StreamPlan& a, const StreamPlan& b) {
    return a.peak != b.peak ? a.peak < b.peak : IsQuicker(a, b);
  });
  std::vector<StreamPlan> kept;
  for (StreamPlan& plan : plans) {
    if (kept.empty() || IsQuicker(plan, kept.back())) kept.push_back(std::move(plan));
  }
  return kept;
}

}  // namespace memc
