// SPDX-License-Identifier: Apache-2.0
#include "solvers/offload/offload.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <iterator>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "solvers/common/run_on_threads.h"
#include "solvers/offload/credit.h"
#include "solvers/offload/delay.h"
#include "solvers/offload/offload_search.h"
#include "solvers/recompute/recompute_search.h"

namespace memc {

namespace {

constexpr int64_t kSteps = 100;            // A limit is below the one before it by this part.
constexpr int64_t kReachWork = 200'000;    // Steps of trying to reach one limit,
constexpr int64_t kReachWorkOfOp = 1'000;  // and so many more for each op.
constexpr int64_t kRounds = 15;            // Of a search that goes on from the limit before,
constexpr int64_t kMoreRounds = 40;        // of the quickest one of them,
constexpr int64_t kFreshRounds = 30;       // of one that begins at this limit,
constexpr int64_t kCreditRounds = 20;      // and of what that one begins with.
constexpr size_t kKept = 3;                // Joint searches that go down together.
constexpr int64_t kThreadedOps = 200;      // Problems of so many ops are searched in threads.

// Where ops are few, what one search ends with depends more on where it began: so many begin then.
constexpr int64_t kFewOps = 500;
constexpr int64_t kFewOpsFresh = 2;

// Near the least that any plan may reach, a few large values fill the arena, and addresses are hard
// to find: so many joint searches begin at each limit then, below so many times the bound.
constexpr int64_t kTightFresh = 12;
constexpr double kTight = 1.06;
constexpr double kNear = 1.06;  // Plans that add so many times what others do are kept.

// The parts of the lanes that joint searches count on when they begin, which take turns. Where the
// lanes are quick beside the ops, much credit leads to quicker plans, and little of it leads
// further down where room is scarce.
constexpr double kParts[] = {0.9, 0.3, 0.7, 1.0, 0.5, 0.8, 0.0, 0.6, 0.4};

// Does all of some tasks of a problem, which are independent of each other: what comes of them does
// not depend on how many threads there are. Those of small problems take less time than threads.
void DoAll(const OffloadProblem& problem, const std::vector<std::function<void()>>& tasks) {
  if (problem.ops.ops() < kThreadedOps) {
    for (const std::function<void()>& task : tasks) task();
    return;
  }
  std::atomic<size_t> next{0};
  const auto body = [&] {
    for (size_t task = next++; task < tasks.size(); task = next++) tasks[task]();
  };
  RunOnThreads(body, static_cast<int64_t>(tasks.size()));
}

// Searches that go down together, each from what it had at the limit before.
class Descent {
 public:
  // `bound`: bytes that no plan is below.
  Descent(const OffloadProblem& problem, int64_t bound)
      : problem_(problem),
        tight_(static_cast<int64_t>(kTight * static_cast<double>(bound))),
        work_(kReachWork + kReachWorkOfOp * problem.ops.ops()),
        copied_(problem, RecomputeState(problem.ops), 1, false) {
    // Where the sequence is given, all that there is are copies alone.
    const std::vector<char>& once = problem.ops.once;
    if (problem.ops.in_order && std::count(once.begin(), once.end(), 0) == 0) return;
    for (double part : kParts) {
      const Credit credit = CreditOf(problem, part);
      credited_.push_back({std::make_unique<RecomputeSearch>(problem.ops, credited_.size() + 1,
                                                             credit.shades, kCreditRounds),
                           credit.most});
    }
  }

  // Adds the best plans found at a limit. Returns whether there is one.
  bool Lower(int64_t limit, std::vector<Schedule>* plans) {
    std::vector<std::function<void()>> tasks;
    const auto quickest = std::min_element(joints_.begin(), joints_.end(), IsQuicker);
    for (Joint& joint : joints_) {
      const int64_t rounds = &joint == &*quickest ? kMoreRounds : kRounds;
      tasks.push_back([&joint, this, limit, rounds] {
        joint.goes_on = joint.search->Lower(limit, work_, rounds);
      });
    }
    if (copies_go_on_) {
      tasks.push_back([&] { copies_go_on_ = copied_.Lower(limit, work_, kRounds); });
    }
    DoAll(problem_, tasks);
    if (copies_go_on_) Add(copied_.Plan(), plans);
    const auto fails = [&](const Joint& joint) { return !joint.goes_on; };
    joints_.erase(std::remove_if(joints_.begin(), joints_.end(), fails), joints_.end());
    const int64_t fresh = problem_.ops.ops() <= kFewOps ? kFewOpsFresh : 1;
    for (int64_t i = 0; i < (limit < tight_ ? kTightFresh : fresh); ++i) Begin(limit, plans);
    for (const Joint& joint : joints_) Add(joint.search->Plan(), plans);
    return copies_go_on_ || !joints_.empty();
  }

 private:
  // What is recomputed if copies have a credit.
  struct Credited {
    std::unique_ptr<RecomputeSearch> search;  // Null once it does not reach a limit.
    int64_t most;                             // Bytes of credit.
  };

  struct Joint {
    size_t credit;  // Which it began with.
    std::unique_ptr<OffloadSearch> search;
    bool goes_on = true;  // Whether it reached the latest limit.
  };

  static bool IsQuicker(const Joint& a, const Joint& b) {
    return a.search->makespan() < b.search->makespan();
  }

  // Has another joint search begin at the limit, and takes it for the slowest one, where it is
  // quicker. Every other one begins with the credit of the quickest one. Adds its plan where it is
  // not taken.
  void Begin(int64_t limit, std::vector<Schedule>* plans) {
    const size_t turn = begun_++;
    size_t credit = turn / 2;
    if (turn % 2 == 1 && !joints_.empty()) {
      credit = std::min_element(joints_.begin(), joints_.end(), IsQuicker)->credit;
    }
    for (size_t tried = 0; tried < credited_.size(); ++tried, ++credit) {
      credit %= credited_.size();
      Credited& from = credited_[credit];
      if (from.search != nullptr && !from.search->Lower(limit + from.most, work_)) {
        from.search.reset();
      }
      if (from.search != nullptr) return Begin(limit, credit, turn, plans);
    }
  }

  void Begin(int64_t limit, size_t credit, uint64_t seed, std::vector<Schedule>* plans) {
    RecomputeState state = credited_[credit].search->state();
    state.ClearShades();
    Joint joint{credit, std::make_unique<OffloadSearch>(problem_, state, seed, true)};
    if (!joint.search->Lower(limit, work_, kFreshRounds)) return;
    if (joints_.size() < kKept) return joints_.push_back(std::move(joint));
    Joint& slowest = *std::max_element(joints_.begin(), joints_.end(), IsQuicker);
    if (IsQuicker(joint, slowest)) std::swap(joint, slowest);
    if (limit < tight_) Add(joint.search->Plan(), plans);
  }

  void Add(Schedule plan, std::vector<Schedule>* plans) const {
    if (plan.bytes_in == 0) return;
    plans->push_back(DelayFetches(problem_, MeasureSchedule(problem_, std::move(plan.items))));
  }

  const OffloadProblem& problem_;
  const int64_t tight_, work_;
  OffloadSearch copied_;  // Copies alone.
  std::vector<Credited> credited_;
  std::vector<Joint> joints_;
  size_t begun_ = 0;  // How many limits had another joint search.
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

// Appends those of `plans` beside which none that is as low is much quicker: addresses may be found
// for one where they are not for the next.
void AddUseful(std::vector<Schedule> plans, int64_t computing, std::vector<Schedule>* kept) {
  std::stable_sort(plans.begin(), plans.end(), [](const Schedule& a, const Schedule& b) {
    return a.peak != b.peak ? a.peak < b.peak : IsBetter(a, b);
  });
  int64_t least = INT64_MAX;  // Of those that are as low: picoseconds added, and a little more.
  const Schedule* last = nullptr;
  for (Schedule& plan : plans) {
    const bool known = last != nullptr && last->peak == plan.peak &&
                       last->makespan == plan.makespan && last->bytes_in == plan.bytes_in;
    const int64_t added = plan.makespan - computing;
    if (known || added > least) continue;
    least = std::min(least, static_cast<int64_t>(kNear * static_cast<double>(added)));
    kept->push_back(std::move(plan));
    last = &kept->back();
  }
}

// Plans with copies at falling limits.
std::vector<Schedule> Copied(const OffloadProblem& problem, int64_t lowest, int64_t bound) {
  std::vector<Schedule> copied;
  Descent descent(problem, bound);
  int64_t limit = RecomputeState(problem.ops).peak(), least = limit;
  Descending descending(problem.ops.watch, limit, std::max(lowest, bound));
  while (limit > bound) {
    descending.At(limit);
    const int64_t next = std::max(bound, limit - std::max<int64_t>(1, limit / kSteps));
    // Where all plans to come are below those that there are, none that is the quickest of a lower
    // budget is hidden from a higher one.
    if (next <= 0 || (limit <= lowest && next <= least)) break;
    limit = next;
    if (!descent.Lower(limit, &copied)) break;
    for (const Schedule& plan : copied) least = std::min(least, plan.peak);
    if (!copied.empty()) problem.ops.watch.Offer(least);
  }
  return copied;
}

}  // namespace

std::vector<Schedule> OffloadLadder(const OffloadProblem& problem, int64_t lowest, int64_t bound) {
  if (problem.movable.size() != problem.ops.sizes.size()) {
    throw std::invalid_argument("expected of each value whether it may be copied");
  }
  Validate(problem.ops);
  std::vector<Schedule> plans, copied;
  std::vector<std::function<void()>> tasks = {[&] {
    for (const RecomputePlan& plan : RecomputeLadder(problem.ops, lowest, bound)) {
      plans.push_back(Recomputed(problem, plan));
    }
  }};
  const bool any =
      std::find(problem.movable.begin(), problem.movable.end(), 1) != problem.movable.end();
  problem.ops.watch.Expect((any ? 2 : 1) * Descending::kParts);
  if (any) tasks.push_back([&] { copied = Copied(problem, lowest, bound); });
  DoAll(problem, tasks);
  const auto computing =
      std::accumulate(problem.ops.costs.begin(), problem.ops.costs.end(), int64_t{0});
  AddUseful(std::move(copied), computing, &plans);
  return plans;
}

}  // namespace memc
