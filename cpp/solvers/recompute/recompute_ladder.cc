// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "solvers/recompute/recompute.h"
#include "solvers/recompute/recompute_search.h"

namespace memc {

namespace {

constexpr int64_t kSteps = 100;            // A limit is below the one before it by this part.
constexpr int64_t kReachWork = 3'000'000;  // Steps of trying to reach one limit.
constexpr int64_t kSmall = 400;            // Ops of problems that are also searched from scratch:
constexpr int kRestarts = 4;               // so often at each limit,
constexpr int64_t kRestartWork = 200'000;  // with so many steps to reach it.

// Adds the plan unless one that is as low and as cheap is there.
void Add(RecomputePlan plan, std::vector<RecomputePlan>* plans) {
  const bool known = std::any_of(plans->begin(), plans->end(), [&](const RecomputePlan& other) {
    return other.peak <= plan.peak && other.added_cost <= plan.added_cost;
  });
  if (!known) plans->push_back(std::move(plan));
}

}  // namespace

std::vector<RecomputePlan> RecomputeLadder(const RecomputeProblem& problem, int64_t lowest,
                                           int64_t bound) {
  Validate(problem);
  std::vector<RecomputePlan> plans;
  if (problem.ops() == 0) return plans;
  uint64_t seed = 1;
  RecomputeSearch search(problem, seed);
  bool goes_on = true;
  // What is found on the way down from above may be far from the best further down. So small
  // problems, where that is cheap, have a second search: the best of those begun at some limit.
  std::unique_ptr<RecomputeSearch> second;
  const int restarts = problem.ops() <= kSmall ? kRestarts : 0;
  plans.push_back(search.Plan());
  int64_t limit = plans.front().peak, least = limit;
  Descending descending(problem.watch, limit, std::max(lowest, bound));
  while (least > lowest && limit > bound) {
    descending.At(limit);
    limit = std::max(bound, limit - std::max<int64_t>(1, limit / kSteps));
    if (limit <= 0) break;
    goes_on = goes_on && search.Lower(limit, kReachWork);
    if (second != nullptr && !second->Lower(limit, kRestartWork)) second.reset();
    for (int i = 0; i < restarts; ++i) {
      auto fresh = std::make_unique<RecomputeSearch>(problem, ++seed);
      if (!fresh->Lower(limit, kRestartWork)) continue;
      if (second == nullptr || fresh->added_cost() < second->added_cost()) {
        second = std::move(fresh);
      }
    }
    if (!goes_on && second == nullptr) break;
    if (goes_on) Add(search.Plan(), &plans);
    if (second != nullptr) Add(second->Plan(), &plans);
    for (const RecomputePlan& plan : plans) least = std::min(least, plan.peak);
    problem.watch.Offer(least);
  }
  return plans;
}

}  // namespace memc
