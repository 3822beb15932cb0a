// SPDX-License-Identifier: Apache-2.0
// The default solver: heuristics, then what is left above the lower bound is taken apart into
// independent parts, and each is searched until it no longer determines the peak.
#include <algorithm>
#include <cstddef>
#include <random>
#include <utility>

#include "memc/branch_and_bound.h"
#include "memc/packer.h"
#include "memc/solvers.h"

namespace memc {

namespace {

constexpr int64_t kWork = 100'000'000;       // Of the order search: about 0.3 s.
constexpr int64_t kExactWork = 100'000'000;  // Of branch and bound: about 0.1 s.
constexpr int64_t kMaxSteps = 20'000;
constexpr size_t kMaxExact = 300;       // Buffers of a part that branch and bound is tried on.
constexpr size_t kMaxOrdered = 20'000;  // Buffers of a part whose orders are searched.
constexpr int64_t kMaxPairs = int64_t{1} << 22;  // Live together: a step takes 0.1 s.
constexpr int kMaxDepth = 64;                    // Of taking apart.

// Some buffers of a problem, to be placed at `base` bytes and above.
struct Part {
  std::vector<int32_t> buffers;
  int64_t base;
};

// Takes a problem without fixed offsets apart. Buffers live throughout a part can lie at its bottom
// in any plan; without them, it may fall into pieces that are never live together:
//
//      +---+   +-----+         each of the two upper groups is a part of its own,
//   +--+---+-+ | +---+-+       based on top of X
//   +--------+ +-+-----+
//   |        X         |
//   +------------------+
void TakeApart(const Problem& problem, const std::vector<int64_t>& sizes, Part whole, int depth,
               std::vector<int64_t>& offsets, std::vector<Part>& parts) {
  const std::vector<Buffer>& all = problem.buffers;
  std::vector<int32_t>& order = whole.buffers;
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return all[a].lower < all[b].lower; });
  for (size_t begin = 0; begin < order.size();) {
    const int64_t lower = all[order[begin]].lower;
    int64_t upper = all[order[begin]].upper;
    size_t end = begin + 1;
    for (; end < order.size() && all[order[end]].lower < upper; ++end) {
      upper = std::max(upper, all[order[end]].upper);
    }
    Part part{{}, whole.base};
    for (size_t k = begin; k < end; ++k) {
      const int32_t i = order[k];
      if (all[i].lower == lower && all[i].upper == upper) {
        offsets[i] = part.base;
        part.base = AddBytes(part.base, sizes[i]);
      } else {
        part.buffers.push_back(i);
      }
    }
    const bool shrunk = part.buffers.size() < end - begin;
    if (!part.buffers.empty()) {
      if (shrunk && depth < kMaxDepth) {
        TakeApart(problem, sizes, std::move(part), depth + 1, offsets, parts);
      } else {
        parts.push_back(std::move(part));
      }
    }
    begin = end;
  }
}

Solution Better(Solution a, Solution b) { return b.peak < a.peak ? std::move(b) : std::move(a); }

Solution Best(const std::vector<Solution>& solutions) {
  Solution best = solutions.front();
  for (const Solution& solution : solutions) {
    if (solution.peak < best.peak) best = solution;
  }
  return best;
}

// The movable buffers, lowest offset first: first fit in this order never raises the peak.
std::vector<int32_t> OrderOf(const Solution& solution, std::vector<int32_t> movable) {
  std::stable_sort(movable.begin(), movable.end(),
                   [&](int32_t a, int32_t b) { return solution.offsets[a] < solution.offsets[b]; });
  return movable;
}

// A random number below n that does not depend on the standard library's distributions.
size_t Below(std::mt19937_64& random, size_t n) { return random() % n; }

// Moves buffers that end above the target forward, and swaps a few others.
void Perturb(const Packer& packer, int64_t target, std::mt19937_64& random,
             std::vector<int32_t>& order) {
  const size_t n = order.size();
  for (size_t i = 1; i < n; ++i) {
    const int32_t index = order[i];
    if (packer.offsets()[index] + packer.sizes()[index] <= target) continue;
    if (Below(random, 4) == 0) continue;
    const auto from = order.begin() + static_cast<std::ptrdiff_t>(i);
    std::rotate(order.begin() + static_cast<std::ptrdiff_t>(Below(random, i + 1)), from, from + 1);
  }
  for (size_t swaps = Below(random, 4); swaps > 0; --swaps) {
    std::swap(order[Below(random, n)], order[Below(random, n)]);
  }
}

// First fit over orders that are improved step by step ("squeaky wheel" optimization, Joslin and
// Clements 1999), from each start in turn, until a peak of `target` bytes or the work is done.
Solution SearchOrders(const Problem& problem, const std::vector<Solution>& starts, int64_t target,
                      int64_t work) {
  constexpr auto kUnlimited = std::numeric_limits<int64_t>::max();
  std::mt19937_64 random(1);
  Packer packer(problem);
  Solution best = Best(starts);
  if (packer.movable().size() < 3) return best;
  const auto rounds = static_cast<int64_t>(starts.size());
  int64_t steps = 0;
  for (int64_t round = 1; round <= rounds; ++round) {
    Solution current = starts[round - 1];
    std::vector<int32_t> order = OrderOf(current, packer.movable());
    packer.Pack(order, kUnlimited);
    std::vector<int32_t> kept = order;
    while (packer.work() < work / rounds * round && steps < kMaxSteps / rounds * round) {
      ++steps;
      if (packer.peak() < best.peak) best = {packer.offsets(), packer.peak()};
      if (best.peak <= target) return best;
      Perturb(packer, target, random, order);
      packer.Pack(order, kUnlimited);
      // Equal peaks are accepted, so that the search can cross plateaus; slightly worse ones too.
      if (packer.peak() <= current.peak + (current.peak - target) / 16) {
        current = {packer.offsets(), packer.peak()};
        kept = order;
      } else {
        order = kept;
        packer.Pack(order, kUnlimited);
      }
    }
  }
  return best;
}

// Halves the gap between what seems out of reach and the best plan, as long as the work
// lasts.
Solution SearchExactly(const Problem& problem, Solution best, int64_t target, int64_t work) {
  int64_t low = target;  // A peak worth looking for.
  int64_t limit = target;
  for (int64_t share = work / 2; best.peak > low && share > 1000; share /= 2) {
    if (const auto found = BranchAndBound(problem, limit, share)) {
      best = Better(std::move(best), *found);
    } else {
      low = limit + 1;
    }
    limit = low + (best.peak - low) / 2;
  }
  return best;
}

// A plan of one part, with a peak of `target` bytes if that can be found. `share`: the part's size
// over that of all parts.
Solution SolvePart(const Problem& part, int64_t target, double share) {
  const std::vector<Solution> starts = Heuristics(part, target);
  Solution best = Best(starts);
  if (best.peak <= target) return best;
  const auto of = [&](int64_t work) {
    return static_cast<int64_t>(share * static_cast<double>(work));
  };
  if (part.buffers.size() <= kMaxExact) {
    best = SearchExactly(part, best, target, of(kExactWork));
    if (best.peak <= target) return best;
  }
  if (part.buffers.size() > kMaxOrdered) return best;
  return Better(best, SearchOrders(part, starts, target, of(kWork)));
}

Solution SolveByParts(const Problem& problem, int64_t bound) {
  const std::vector<int64_t> sizes = RoundedSizes(problem);
  Solution solution;
  solution.offsets.assign(sizes.size(), 0);
  Part whole{{}, 0};
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] > 0) whole.buffers.push_back(static_cast<int32_t>(i));
  }
  std::vector<Part> parts;
  TakeApart(problem, sizes, std::move(whole), 0, solution.offsets, parts);
  size_t total = 0;
  for (const Part& part : parts) total += part.buffers.size();
  // The peak that is reached anyway: no part need lie lower.
  int64_t reached = bound;
  for (const Part& part : parts) {
    Problem sub;
    sub.alignment = problem.alignment;
    for (const int32_t i : part.buffers) sub.buffers.push_back(problem.buffers[i]);
    const double share = static_cast<double>(part.buffers.size()) / static_cast<double>(total);
    const int64_t target = std::max(reached - part.base, LowerBound(sub));
    const Solution plan = SolvePart(sub, target, share);
    for (size_t k = 0; k < part.buffers.size(); ++k) {
      solution.offsets[part.buffers[k]] = part.base + plan.offsets[k];
    }
    reached = std::max(reached, AddBytes(part.base, plan.peak));
  }
  solution.peak = Peak(problem, solution.offsets);
  return solution;
}

}  // namespace

Solution Search(const Problem& problem) {
  const int64_t bound = LowerBound(problem);
  const std::vector<Solution> starts = Heuristics(problem, bound);
  Solution best = Best(starts);
  if (best.peak <= bound || OverlapPairs(problem, kMaxPairs) > kMaxPairs) return best;
  const bool any_fixed = std::any_of(problem.buffers.begin(), problem.buffers.end(),
                                     [](const Buffer& b) { return b.offset.has_value(); });
  if (any_fixed && problem.buffers.size() > kMaxOrdered) return best;
  if (any_fixed) return Better(best, SearchOrders(problem, starts, bound, kWork));
  return Better(best, SolveByParts(problem, bound));
}

}  // namespace memc
