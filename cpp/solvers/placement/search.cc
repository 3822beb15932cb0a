// SPDX-License-Identifier: Apache-2.0
// `search` and `auto`: heuristics, then what is left above the lower bound is taken apart into
// independent parts, and each is searched until it no longer determines the peak.
#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "solvers/common/budget.h"
#include "solvers/placement/decompose.h"
#include "solvers/placement/improve.h"
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
};

// `plans`: the heuristics' plans of the whole problem.
Open OpenPart(const Problem& problem, const Part& part, const std::vector<Solution>& plans,
              int64_t target) {
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
  if (part.buffers.size() == problem.buffers.size()) {
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

// `improve`: whether orders are improved where the complete search gave up.
Outcome SearchByParts(const Problem& problem, const SolverOptions& options, bool improve) {
  const Budget budget(options);
  Outcome outcome;
  outcome.lower_bound = LowerBound(problem);
  // A plan that keeps the capacity is good enough.
  const bool limited = problem.capacity < std::numeric_limits<int64_t>::max();
  const int64_t enough = limited ? problem.capacity : 0;
  const int64_t target = std::max(enough, outcome.lower_bound);
  const std::vector<Solution> plans = Heuristics(problem, target);
  outcome.solution = Best(plans);
  const bool hopeless = limited && outcome.lower_bound > problem.capacity;
  if (outcome.solution.peak <= target || hopeless || budget.Over() || FixedIntersect(problem)) {
    return outcome;
  }
  const bool dense = OverlapPairs(problem, kMaxPairs) > kMaxPairs;
  Decomposition whole = Decompose(problem);
  size_t total = 0;
  for (const Part& part : whole.parts) total += part.buffers.size();
  std::vector<Open> opens;
  for (const Part& part : whole.parts) {
    opens.push_back(OpenPart(problem, part, plans, target - part.base));
  }
  // All is done again with more work, from little: large steps down cost little and make later
  // ones smaller. With a time limit, until the time is over.
  const double most =
      options.effort * std::min(1.0, kFullWork / static_cast<double>(std::max<size_t>(total, 1)));
  const bool endless = budget.deadline && options.effort >= 1;
  double effort = most / (budget.deadline ? 64 : 16);
  uint64_t round = 0;
  for (bool done = false; !done; effort *= 4) {
    ++round;
    // The peak that is reached anyway: no part need lie lower.
    int64_t reached = std::max(enough, outcome.lower_bound);
    done = true;
    const bool more = endless ? !budget.Over() : effort < most && !budget.Over();
    for (Open& open : opens) {
      const Part& part = *open.part;
      const size_t n = part.buffers.size();
      const int64_t part_target = reached - part.base;
      const auto of = [&](int64_t work) {
        const double share = static_cast<double>(n) / static_cast<double>(total);
        return static_cast<int64_t>(
            std::min(effort * share * static_cast<double>(work), kMostWork));
      };
      if (n <= kMaxSearched && !dense) SearchPart(open, part_target, of(kSearchWork), budget);
      const auto above = [&] { return open.best.peak > std::max(part_target, open.lower_bound); };
      if (improve && above() && !budget.Over()) {
        const double share = static_cast<double>(n) / static_cast<double>(total);
        open.best = RepairPlan(open.problem, open.best, std::max(part_target, open.lower_bound),
                               static_cast<int64_t>(std::min(effort / most * options.effort * share * static_cast<double>(kRepairWork), kMostWork)), round, budget);
      }
      const bool ordered = improve && n <= kMaxOrdered && open.movable >= kLeastMovable && !dense;
      if (ordered && above() && !budget.Over()) {
        const int64_t goal = std::max(part_target, open.lower_bound);
        // Each round takes other steps, and goes on from the best plan as well.
        std::vector<Solution> starts = open.starts;
        if (round > 1) starts.push_back(open.best);
        open.best = ImproveOrders(open.problem, starts, goal, of(kOrderWork), round, budget);
      }
      if (above() && (n <= kMaxSearched || improve) && more) done = false;
      reached = std::max(reached, AddBytes(part.base, open.best.peak));
      outcome.lower_bound = std::max(outcome.lower_bound, AddBytes(part.base, open.lower_bound));
    }
    if (limited && outcome.lower_bound > problem.capacity) done = true;
  }
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
