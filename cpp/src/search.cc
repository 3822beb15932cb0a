// SPDX-License-Identifier: Apache-2.0
// `search` and `auto`: heuristics, then what is left above the lower bound is taken apart into
// independent parts, and each is searched until it no longer determines the peak.
#include <algorithm>
#include <numeric>
#include <utility>

#include "memc/budget.h"
#include "memc/decompose.h"
#include "memc/improve.h"
#include "memc/race.h"
#include "memc/solvers.h"

namespace memc {

namespace {

constexpr int64_t kSearchWork = 1'500'000'000;  // Of complete searches: about 5 s on one core.
constexpr int64_t kOrderWork = 300'000'000;     // Of improving orders: about 1 s.
constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max() / 4;
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
  std::vector<const Buffer*> fixed;
  for (const Buffer& b : problem.buffers) {
    if (b.offset && b.size > 0) fixed.push_back(&b);
  }
  std::sort(fixed.begin(), fixed.end(),
            [](const Buffer* a, const Buffer* b) { return a->lower < b->lower; });
  for (size_t a = 0; a < fixed.size(); ++a) {
    for (size_t b = a + 1; b < fixed.size() && fixed[b]->lower < fixed[a]->upper; ++b) {
      if (*fixed[a]->offset < *fixed[b]->offset + fixed[b]->size &&
          *fixed[b]->offset < *fixed[a]->offset + fixed[a]->size) {
        return true;
      }
    }
  }
  return false;
}

// One part as a problem of its own, and what is known of it.
struct Open {
  Problem problem;  // Sizes rounded up.
  Solution best;
  int64_t lower_bound;
  int64_t grain;  // Bytes that every peak is a multiple of.
};

Open OpenPart(const Problem& problem, const Part& part) {
  Open open;
  open.grain = 0;
  for (const int32_t i : part.buffers) {
    Buffer buffer = problem.buffers[i];
    buffer.size = RoundUp(buffer.size, problem.alignment);
    // Every buffer lies on top of others, one of fixed offset or the bottom.
    open.grain = std::gcd(open.grain, std::gcd(buffer.size, buffer.offset.value_or(0)));
    open.problem.buffers.push_back(buffer);
  }
  open.problem.alignment = problem.alignment;
  open.lower_bound = LowerBound(open.problem);
  return open;
}

// Searches the part for a peak of `target` bytes, or as near as the work allows: first for the
// target itself, then in the middle between what seems out of reach and what is reached, and at the
// end for any improvement.
void SearchPart(Open& open, int64_t target, int64_t work, const Budget& budget) {
  int64_t low = std::max(target, open.lower_bound);  // The least peak worth looking for.
  const auto try_limit = [&](int64_t limit, int64_t share) {
    const RaceResult result = Race(open.problem.buffers, limit, share, budget);
    work -= result.work;
    if (result.status == CanonicalSearch::Status::kFound) {
      open.best = {result.offsets, Peak(open.problem, result.offsets)};
      return;
    }
    if (result.status == CanonicalSearch::Status::kInfeasible) {
      // The least multiple of the grain above the limit.
      open.lower_bound = std::max(open.lower_bound, (limit / open.grain + 1) * open.grain);
    }
    low = std::max(low, (limit / open.grain + 1) * open.grain);
  };
  const auto done = [&] {
    return open.best.peak <= std::max(target, open.lower_bound) || work <= 0 || budget.Over();
  };
  int64_t limit = low;
  while (!done() && low < open.best.peak) {
    try_limit(limit, work / 2);
    limit = low + (open.best.peak - low) / 2;
  }
  while (!done()) try_limit(open.best.peak - open.grain, work);
}

// `improve`: whether orders are improved where the complete search gave up.
Outcome SearchByParts(const Problem& problem, const SolverOptions& options, bool improve) {
  const Budget budget(options);
  Outcome outcome;
  outcome.lower_bound = LowerBound(problem);
  // A plan that keeps the capacity is good enough.
  const bool limited = problem.capacity < std::numeric_limits<int64_t>::max();
  const int64_t enough = limited ? std::max(outcome.lower_bound, problem.capacity) : 0;
  const int64_t target = std::max(enough, outcome.lower_bound);
  outcome.solution = Best(Heuristics(problem, target));
  if (outcome.solution.peak <= target) return outcome;
  if (limited && outcome.lower_bound > problem.capacity) return outcome;
  if (OverlapPairs(problem, kMaxPairs) > kMaxPairs || FixedIntersect(problem)) {
    return outcome;
  }
  Decomposition whole = Decompose(problem);
  size_t total = 0;
  for (const Part& part : whole.parts) total += part.buffers.size();
  const double scale = std::min(1.0, kFullWork / static_cast<double>(std::max<size_t>(total, 1)));
  // The peak that is reached anyway: no part need lie lower.
  int64_t reached = target;
  for (const Part& part : whole.parts) {
    Open open = OpenPart(problem, part);
    const int64_t part_target = reached - part.base;
    const std::vector<Solution> starts = Heuristics(open.problem, part_target);
    open.best = Best(starts);
    const auto of = [&](int64_t work) {
      if (budget.deadline) return kUnlimited;
      const double share = static_cast<double>(part.buffers.size()) / static_cast<double>(total);
      return static_cast<int64_t>(scale * share * static_cast<double>(work));
    };
    const bool searched = part.buffers.size() <= kMaxSearched;
    if (searched) SearchPart(open, part_target, of(kSearchWork), budget);
    const int64_t left = std::max(part_target, open.lower_bound);
    if (improve && open.best.peak > left && part.buffers.size() <= kMaxOrdered && !budget.Over()) {
      open.best =
          Better(open.best, ImproveOrders(open.problem, starts, left, of(kOrderWork), budget));
    }
    for (size_t k = 0; k < part.buffers.size(); ++k) {
      whole.offsets[part.buffers[k]] = part.base + open.best.offsets[k];
    }
    reached = std::max(reached, AddBytes(part.base, open.best.peak));
    outcome.lower_bound = std::max(outcome.lower_bound, AddBytes(part.base, open.lower_bound));
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
