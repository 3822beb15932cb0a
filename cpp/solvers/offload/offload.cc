// SPDX-License-Identifier: Apache-2.0
#include "solvers/offload/offload.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "solvers/offload/credit.h"
#include "solvers/offload/delay.h"
#include "solvers/offload/offload_search.h"
#include "solvers/recompute/recompute_search.h"

namespace memc {

namespace {

constexpr int64_t kSteps = 100;            // A limit is below the one before it by this part.
constexpr int64_t kReachWork = 200'000;    // Steps of trying to reach one limit,
constexpr int64_t kReachWorkOfOp = 1'000;  // and so many more for each op.
constexpr int64_t kRounds = 40;            // Of a search that goes on from the limit before,
constexpr int64_t kFreshRounds = 30;       // of one that begins at this limit,
constexpr int64_t kCreditRounds = 20;      // and of what that one begins with.
constexpr uint64_t kAloneSeeds = 3;        // Of searches for recomputation alone at one limit,
constexpr int64_t kAloneWork = 200'000;    // with so many steps to reach it,
constexpr double kWorse = 1.1;             // where the added time is so many times that of alone.
constexpr int64_t kFreshEach = 4;          // Limits of which one has a search that begins there,
constexpr double kJump = 1.03;  // besides those where the added time grows by such a factor.

// A joint search: the parts of the lanes that credit counts on, which take turns, its rounds, and
// whether it begins anew where the added time grows by `kJump`, too.
struct Kind {
  std::vector<double> credits;
  int64_t rounds = kRounds, fresh_rounds = kFreshRounds;
  bool jumps = true;
};
// Where room is scarce, plans with less credit lead further down.
const Kind kKinds[] = {{{0.9}}, {{0.75}, 15, 30, false}, {{0.6, 0.3}, 12, 20, false}};

// Searches that go down together, each from what it had at the limit before.
class Descent {
 public:
  // `alone`: the plans of recomputation alone.
  Descent(const OffloadProblem& problem, const std::vector<Schedule>& alone)
      : problem_(problem),
        alone_(alone.begin(), alone.end()),
        work_(kReachWork + kReachWorkOfOp * problem.ops.ops()),
        computing_(std::accumulate(problem.ops.costs.begin(), problem.ops.costs.end(), int64_t{0})),
        copied_(problem, RecomputeState(problem.ops), 1, false) {
    for (const Kind& kind : kKinds) {
      Joint joint;
      joint.kind = &kind;
      joint.search = std::make_unique<OffloadSearch>(problem, RecomputeState(problem.ops), 1, true);
      for (double part : kind.credits) {
        const Credit credit = CreditOf(problem, part);
        joint.credited.push_back(
            {std::make_unique<RecomputeSearch>(problem.ops, 1, credit.shades, kCreditRounds),
             credit.most});
      }
      joints_.push_back(std::move(joint));
    }
  }

  // Adds the best plans found at a limit. Returns whether there is one.
  bool Lower(int64_t limit, std::vector<Schedule>* plans) {
    copies_go_on_ = copies_go_on_ && copied_.Lower(limit, work_, 0);
    if (copies_go_on_) Add(copied_.Plan(), plans);
    const bool fresh = limits_++ % kFreshEach == 0;
    bool goes_on = copies_go_on_;
    for (Joint& joint : joints_) {
      joint.goes_on = joint.goes_on && joint.search->Lower(limit, work_, joint.kind->rounds);
      const bool jumped = joint.kind->jumps && static_cast<double>(Added(joint)) >
                                                   kJump * static_cast<double>(joint.added);
      if (fresh || (joint.kind->jumps && !joint.goes_on) || jumped) {
        Restart(limit, &joint);
      }
      joint.added = joint.goes_on ? Added(joint) : 0;
      goes_on = goes_on || joint.goes_on;
    }
    LowerSecond(limit, fresh, plans);
    for (const Joint& joint : joints_) {
      if (joint.goes_on) Add(joint.search->Plan(), plans);
    }
    return goes_on || second_ != nullptr;
  }

 private:
  // What is recomputed if copies have a credit.
  struct Credited {
    std::unique_ptr<RecomputeSearch> search;
    int64_t most;  // Bytes of credit.
    bool goes_on = true;
  };

  struct Joint {
    const Kind* kind = nullptr;
    std::unique_ptr<OffloadSearch> search;
    std::vector<Credited> credited;
    size_t restarts = 0;
    int64_t added = 0;  // At the limit before.
    bool goes_on = true;
  };

  // Has a joint search go on from what is recomputed beside the next of its credits, where that is
  // better.
  void Restart(int64_t limit, Joint* joint) {
    Credited& credited = joint->credited[joint->restarts++ % joint->credited.size()];
    credited.goes_on = credited.goes_on && credited.search->Lower(limit + credited.most, work_);
    if (!credited.goes_on) return;
    RecomputeState state = credited.search->state();
    state.ClearShades();
    auto fresh = std::make_unique<OffloadSearch>(problem_, state, 2, true);
    credited.goes_on = fresh->Lower(limit, work_, joint->kind->fresh_rounds);
    if (!credited.goes_on) return;
    if (joint->goes_on && joint->search->makespan() <= fresh->makespan()) return;
    joint->search = std::move(fresh);
    joint->goes_on = true;
  }

  // Another joint search, once recomputation alone takes less time than what those have: it
  // begins with that. So it is where little of the arena may be elsewhere, and what copies leave to
  // recompute costs too much.
  void LowerSecond(int64_t limit, bool fresh, std::vector<Schedule>* plans) {
    if (second_ != nullptr && !second_->Lower(limit, work_, kRounds)) second_.reset();
    if (fresh && IsQuickerAlone(limit)) {
      std::unique_ptr<OffloadSearch> begun = BeginAlone(limit);
      if (begun != nullptr && (second_ == nullptr || begun->makespan() < second_->makespan())) {
        second_ = std::move(begun);
      }
    }
    if (second_ != nullptr) Add(second_->Plan(), plans);
  }

  bool IsQuickerAlone(int64_t limit) const {
    int64_t joint = INT64_MAX;
    for (const Joint& each : joints_) {
      if (each.goes_on) joint = std::min(joint, each.search->makespan());
    }
    if (second_ != nullptr) joint = std::min(joint, second_->makespan());
    return std::any_of(alone_.begin(), alone_.end(), [&](const Schedule& plan) {
      const auto added = static_cast<double>(plan.makespan - computing_);
      return plan.peak <= limit && kWorse * added < static_cast<double>(joint - computing_);
    });
  }

  // A search that begins with the cheapest of some that recompute alone. Null where none of them
  // reaches the limit.
  std::unique_ptr<OffloadSearch> BeginAlone(int64_t limit) const {
    std::unique_ptr<RecomputeSearch> best;
    for (uint64_t seed = 1; seed <= kAloneSeeds; ++seed) {
      auto search = std::make_unique<RecomputeSearch>(problem_.ops, seed);
      if (!search->Lower(limit, kAloneWork)) continue;
      if (best == nullptr || search->added_cost() < best->added_cost()) best = std::move(search);
    }
    if (best == nullptr) return nullptr;
    auto found = std::make_unique<OffloadSearch>(problem_, best->state(), 2, true);
    return found->Lower(limit, work_, kRounds) ? std::move(found) : nullptr;
  }

  // By how much a joint search's plan takes longer than one run of every op, in picoseconds.
  int64_t Added(const Joint& joint) const { return joint.search->makespan() - computing_; }

  void Add(Schedule plan, std::vector<Schedule>* plans) const {
    if (plan.bytes_in == 0) return;
    plans->push_back(DelayFetches(problem_, MeasureSchedule(problem_, std::move(plan.items))));
  }

  const OffloadProblem& problem_;
  const std::vector<Schedule> alone_;
  const int64_t work_, computing_;
  OffloadSearch copied_;  // Copies alone.
  std::vector<Joint> joints_;
  std::unique_ptr<OffloadSearch> second_;
  int64_t limits_ = 0;  // That were tried.
  bool copies_go_on_ = true;
};

Schedule Recomputed(const OffloadProblem& problem, const RecomputePlan& plan) {
  std::vector<Item> items;
  for (int32_t op : plan.sequence) items.push_back({Step::kRun, op});
  return MeasureSchedule(problem, std::move(items));
}

bool IsBetter(const Schedule& a, const Schedule& b) {
  if (a.makespan != b.makespan) return a.makespan < b.makespan;
  return a.bytes_out + a.bytes_in < b.bytes_out + b.bytes_in;
}

// Appends those of `plans` of which no other there is as low and as quick.
void AddUndominated(std::vector<Schedule> plans, std::vector<Schedule>* kept) {
  std::stable_sort(plans.begin(), plans.end(), [](const Schedule& a, const Schedule& b) {
    return a.peak != b.peak ? a.peak < b.peak : IsBetter(a, b);
  });
  const size_t before = kept->size();
  for (Schedule& plan : plans) {
    if (kept->size() == before || IsBetter(plan, kept->back())) kept->push_back(std::move(plan));
  }
}

}  // namespace

std::vector<Schedule> OffloadLadder(const OffloadProblem& problem, int64_t lowest, int64_t bound) {
  if (problem.movable.size() != problem.ops.sizes.size()) {
    throw std::invalid_argument("expected of each value whether it may be copied");
  }
  std::vector<Schedule> plans;
  for (const RecomputePlan& plan : RecomputeLadder(problem.ops, lowest, bound)) {
    plans.push_back(Recomputed(problem, plan));
  }
  const bool any =
      std::find(problem.movable.begin(), problem.movable.end(), 1) != problem.movable.end();
  if (!any || plans.empty()) return plans;
  std::vector<Schedule> copied;
  Descent descent(problem, plans);
  int64_t limit = plans.front().peak, least = limit;
  while (limit > bound) {
    const int64_t next = std::max(bound, limit - std::max<int64_t>(1, limit / kSteps));
    // Where all plans to come are below those that there are, none that is the quickest of a lower
    // budget is hidden from a higher one.
    if (next <= 0 || (limit <= lowest && next <= least)) break;
    limit = next;
    if (!descent.Lower(limit, &copied)) break;
    for (const Schedule& plan : copied) least = std::min(least, plan.peak);
  }
  AddUndominated(std::move(copied), &plans);
  return plans;
}

}  // namespace memc
