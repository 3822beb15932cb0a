// SPDX-License-Identifier: Apache-2.0
// `search` and `auto`: heuristics, then what is left above the lower bound is taken apart into
// independent parts, and each is searched until it no longer determines the peak.
#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "solvers/common/budget.h"
#include "solvers/common/bytes.h"
#include "solvers/placement/decompose.h"
#include "solvers/placement/improve.h"
#include "solvers/placement/lower_bound.h"
#include "solvers/placement/race.h"
#include "solvers/placement/repair.h"
#include "solvers/placement/solvers.h"

namespace memc {

namespace {

constexpr int64_t kSearchWork = 1'200'000'000;  // Of complete searches: about 4 s on one core.
constexpr int64_t kOrderWork = 300'000'000;     // Of improving orders: about 1 s.
constexpr int64_t kRepairWork = 1'200'000'000;  // Of repairs: about 4 s, whatever the size.
constexpr double kMostWork = 1e17;
constexpr double kFullWork = 4096;     // Buffers up to which all that work is done.
constexpr size_t kMaxSearched = 4096;  // Buffers of a part; each step takes time in proportion.
constexpr int64_t kMaxPairs = int64_t{1} << 22;  // Live together: a step takes 0.1 s.
constexpr size_t kMaxOrdered = 20'000;           // Likewise.
constexpr size_t kLeastRepaired = 256;  // Buffers up to which windows are hardly less than all.

Solution Better(Solution a, Solution b) { return b.peak < a.peak ? std::move(b) : std::move(a); }

Solution Best(const std::vector<Solution>& plans) {
  return *std::min_element(plans.begin(), plans.end(),
                           [](const Solution& a, const Solution& b) { return a.peak < b.peak; });
}

// Whether two buffers with fixed offsets share bytes, so that no plan is valid.
bool FixedIntersect(const Problem& problem) {
  const std::vector<Buffer>& all = problem.buffers;
  std::vector<size_t> fixed;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].offset && all[i].size > 0) fixed.push_back(i);
  }
  std::sort(fixed.begin(), fixed.end(),
            [&](size_t a, size_t b) { return all[a].lower < all[b].lower; });
  for (size_t k = 0; k < fixed.size(); ++k) {
    const Buffer& a = all[fixed[k]];
    for (size_t l = k + 1; l < fixed.size() && all[fixed[l]].lower < a.upper; ++l) {
      const Buffer& b = all[fixed[l]];
      if (*a.offset < *b.offset + b.size && *b.offset < *a.offset + a.size &&
          Together(problem, fixed[k], fixed[l])) {
        return true;
      }
    }
  }
  return false;
}

// One part as a problem of its own, and what is known of it.
struct Open {
  const Part* part;
  Problem problem;               // Sizes rounded up.
  std::vector<Solution> starts;  // The heuristics' plans.
  Solution best;
  int64_t lower_bound = 0;
  int64_t grain = 0;    // Bytes that every peak is a multiple of.
  int64_t movable = 0;  // Buffers without a fixed offset.
  int64_t others = 0;   // Bytes that the other parts reach up to.

  // Tells of the best plan of all parts.
  void Tell(const Watch& watch) const {
    watch.Offer(std::max(others, AddBytes(part->base, best.peak)));
  }
};

// `plans`: the heuristics' plans of the whole problem; of the part too if it is `all` of it.
Open OpenPart(const Problem& problem, const Part& part, const std::vector<Solution>& plans,
              int64_t target, bool all) {
  Open open;
  open.part = &part;
  open.problem = Subproblem(problem, part.buffers);
  open.problem.capacity = std::numeric_limits<int64_t>::max();
  for (Buffer& buffer : open.problem.buffers) {
    buffer.size = RoundUp(buffer.size, problem.alignment);
    // Every buffer lies on top of others, one of fixed offset or the bottom, or at the next
    // multiple of its alignment.
    open.grain = std::gcd(open.grain, std::gcd(buffer.size, buffer.offset.value_or(0)));
    open.movable += !buffer.offset;
  }
  for (const int64_t own : open.problem.alignments) open.grain = std::gcd(open.grain, own);
  open.lower_bound = LowerBound(open.problem);
  if (all) {
    for (const Solution& plan : plans) {
      open.starts.push_back({{}, plan.peak});
      for (const int32_t i : part.buffers) open.starts.back().offsets.push_back(plan.offsets[i]);
    }
  } else {
    open.starts = Heuristics(open.problem, target);
  }
  open.best = Best(open.starts);
  return open;
}

// Searches the part for a peak of `target` bytes, or as near as the work allows: first for the
// target itself, then for steps down from the best plan, which are halved where they fail.
void SearchPart(Open& open, int64_t target, int64_t work, const Budget& budget) {
  const auto low = [&] { return std::max(target, open.lower_bound); };
  const auto found = [&](int64_t limit, int64_t share) {
    const RaceResult result = Race(open.problem, limit, std::min(share, work), budget);
    work -= result.work;
    if (result.status == CanonicalSearch::Status::kFound) {
      open.best = {result.offsets, Peak(open.problem, result.offsets)};
      open.Tell(budget.watch);
    } else if (result.status == CanonicalSearch::Status::kInfeasible) {
      // The least multiple of the grain above the limit.
      open.lower_bound = std::max(open.lower_bound, (limit / open.grain + 1) * open.grain);
    }
    return result.status == CanonicalSearch::Status::kFound;
  };
  const auto done = [&] { return open.best.peak <= low() || work <= 0 || budget.Over(); };
  if (done()) return;
  int64_t share = work / 16;
  found(low(), work / 2);
  int64_t step = (open.best.peak - low()) / 2;
  while (!done()) {
    step = std::max(step / open.grain, int64_t{1}) * open.grain;
    if (found(std::max(open.best.peak - step, low()), share)) continue;
    if (step == open.grain) share *= 2;
    step /= 2;
  }
}

// How far the whole search goes, and what it has done of it.
struct Rounds {
  const Budget& budget;
  double share;         // Of the usual work that may be done in all.
  double most;          // The same, of what grows with each step's cost.
  size_t total = 0;     // Buffers in all parts.
  bool dense = false;   // Whether too many pairs are live together for all but repairs.
  bool improve = true;  // Whether plans are improved where the complete search gave up.
  bool single = false;  // Whether there is one round only.
  double effort = 0;    // What is to be done in this round, of `most`.
  uint64_t number = 1;

  // What a part of n buffers gets of this work.
  int64_t Of(int64_t work, double amount, size_t n) const {
    const double part = static_cast<double>(n) / static_cast<double>(total);
    return static_cast<int64_t>(std::min(amount * part * static_cast<double>(work), kMostWork));
  }
};

// One round on a part, for a peak of `target` bytes. Whether another one may be of use.
bool ImprovePart(Open& open, int64_t target, const Rounds& round) {
  const size_t n = open.part->buffers.size();
  const Budget& budget = round.budget;
  const auto goal = [&] { return std::max(target, open.lower_bound); };
  const auto above = [&] { return open.best.peak > goal(); };
  const bool searched = n <= kMaxSearched && !round.dense;
  if (searched) SearchPart(open, target, round.Of(kSearchWork, round.effort, n), budget);
  bool repaired = round.improve && n > kLeastRepaired && open.movable >= kLeastMovable;
  if (repaired && above() && !budget.Over()) {
    const int64_t before = open.best.peak;
    const int64_t work = round.Of(kRepairWork, round.effort / round.most * round.share, n);
    open.best = RepairPlan(open.problem, open.best, goal(), work, round.number, budget);
    open.Tell(budget.watch);
    // Where very many are live together, little work without any success means that more has none.
    repaired = !round.dense || budget.deadline || open.best.peak < before;
  }
  const bool ordered =
      round.improve && n <= kMaxOrdered && open.movable >= kLeastMovable && !round.dense;
  if (ordered && above() && !budget.Over()) {
    // Each round takes other steps, and goes on from the best plan as well.
    std::vector<Solution> starts = open.starts;
    if (round.number > 1) starts.push_back(open.best);
    const int64_t work = round.Of(kOrderWork, round.effort, n);
    open.best = ImproveOrders(open.problem, starts, goal(), work, round.number, budget);
    open.Tell(budget.watch);
  }
  return above() && (searched || repaired || ordered);
}

// The parts to search, the whole problem if it is too dense for more than repairs.
Decomposition Parts(const Problem& problem, bool dense) {
  if (!dense) return Decompose(problem);
  Decomposition whole{{}, {{{}, 0}}};
  for (size_t i = 0; i < problem.buffers.size(); ++i) {
    whole.offsets.push_back(problem.buffers[i].offset.value_or(0));
    if (problem.buffers[i].size > 0) whole.parts[0].buffers.push_back(static_cast<int32_t>(i));
  }
  return whole;
}

// Bytes that all parts but one reach up to; `most` where they are too many to look at each time.
int64_t OthersPeak(const std::vector<Open>& opens, const Open& but, int64_t most) {
  constexpr size_t kFew = 256;
  if (opens.size() > kFew) return most;
  int64_t peak = 0;
  for (const Open& open : opens) {
    if (&open != &but) peak = std::max(peak, AddBytes(open.part->base, open.best.peak));
  }
  return peak;
}

// Improves the parts round by round, from little work: large steps down cost little and make later
// ones smaller. With a time limit, until the time is over. `enough`: bytes of a peak that will do.
void ImproveParts(const Problem& problem, std::vector<Open>& opens, int64_t enough, Rounds round,
                  bool endless, Outcome& outcome) {
  const Budget& budget = round.budget;
  round.effort = round.most / (budget.deadline ? 64 : 16);
  for (bool done = false; !done; round.effort *= 4, ++round.number) {
    // The peak that is reached anyway: no part need lie lower.
    int64_t reached = std::max(enough, outcome.lower_bound);
    done = true;
    const bool more = !round.single && (endless || round.effort < round.most) && !budget.Over();
    for (Open& open : opens) {
      const int64_t base = open.part->base;
      open.others = OthersPeak(opens, open, outcome.solution.peak);
      if (ImprovePart(open, reached - base, round) && more) done = false;
      reached = std::max(reached, AddBytes(base, open.best.peak));
      outcome.lower_bound = std::max(outcome.lower_bound, AddBytes(base, open.lower_bound));
      budget.watch.Bound(outcome.lower_bound);
    }
    if (outcome.lower_bound > problem.capacity) done = true;
  }
}

// Work that all rounds do at most, as far as parts are above a peak of `target` bytes.
int64_t MostWork(const std::vector<Open>& opens, Rounds round, int64_t target) {
  int64_t work = 0;
  for (round.effort = round.most / 16; round.effort <= round.most; round.effort *= 4) {
    for (const Open& open : opens) {
      const size_t n = open.part->buffers.size();
      if (open.best.peak <= std::max(target - open.part->base, open.lower_bound)) continue;
      if (n <= kMaxSearched && !round.dense) work += round.Of(kSearchWork, round.effort, n);
      if (!round.improve) continue;
      if (n > kLeastRepaired) {
        work += round.Of(kRepairWork, round.effort / round.most * round.share, n);
      }
      if (n <= kMaxOrdered && !round.dense) work += round.Of(kOrderWork, round.effort, n);
    }
    if (round.single) break;
  }
  return work;
}

// `improve`: whether plans are repaired and orders improved where the complete search gave up.
Outcome SearchByParts(const Problem& problem, const SolverOptions& options, bool improve) {
  const Budget budget(options);
  Outcome outcome;
  outcome.lower_bound = LowerBound(problem);
  // A plan that keeps the capacity is good enough.
  const bool limited = problem.capacity < std::numeric_limits<int64_t>::max();
  const int64_t enough = limited ? problem.capacity : 0;
  const int64_t target = std::max(enough, outcome.lower_bound);
  const std::vector<Solution> plans = Heuristics(problem, target, budget.watch);
  outcome.solution = Best(plans);
  const bool hopeless = limited && outcome.lower_bound > problem.capacity;
  const bool dense = OverlapPairs(problem, kMaxPairs) > kMaxPairs;
  if (outcome.solution.peak <= target || hopeless || budget.Over() || (dense && !improve) ||
      FixedIntersect(problem)) {
    return outcome;
  }
  Decomposition whole = Parts(problem, dense);
  Rounds round{budget, options.effort, 0};
  round.dense = dense;
  round.improve = improve;
  round.single = options.one_round;
  std::vector<Open> opens;
  for (const Part& part : whole.parts) {
    const bool all = dense || part.buffers.size() == problem.buffers.size();
    opens.push_back(OpenPart(problem, part, plans, target - part.base, all));
  }
  // Only what is above the bound gets work.
  for (const Open& open : opens) {
    const int64_t goal = std::max(target - open.part->base, open.lower_bound);
    if (open.best.peak > goal) round.total += open.part->buffers.size();
  }
  round.total = std::max<size_t>(round.total, 1);
  round.most = options.effort * std::min(1.0, kFullWork / static_cast<double>(round.total));
  const bool endless = budget.deadline && options.effort >= 1;
  budget.watch.Best(outcome.solution.peak);
  budget.watch.Bound(outcome.lower_bound);
  budget.watch.Expect(MostWork(opens, round, target));
  ImproveParts(problem, opens, enough, round, endless, outcome);
  for (const Open& open : opens) {
    for (size_t k = 0; k < open.part->buffers.size(); ++k) {
      whole.offsets[open.part->buffers[k]] = open.part->base + open.best.offsets[k];
    }
  }
  const int64_t peak = Peak(problem, whole.offsets);
  outcome.solution = Better(std::move(outcome.solution), {std::move(whole.offsets), peak});
  return outcome;
}

}  // namespace

Outcome Search(const Problem& problem, const SolverOptions& options) {
  return SearchByParts(problem, options, false);
}

Outcome Auto(const Problem& problem, const SolverOptions& options) {
  return SearchByParts(problem, options, true);
}

}  // namespace memc
