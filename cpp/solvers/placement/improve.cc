// SPDX-License-Identifier: Apache-2.0
#include "solvers/placement/improve.h"

#include <algorithm>
#include <cstddef>
#include <random>

#include "solvers/placement/packer.h"

namespace memc {

namespace {

constexpr int64_t kMaxSteps = 20'000;

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

}  // namespace

Solution ImproveOrders(const Problem& problem, const std::vector<Solution>& starts, int64_t target,
                       int64_t work, uint64_t seed, const Budget& budget) {
  constexpr auto kUnlimited = std::numeric_limits<int64_t>::max();
  std::mt19937_64 random(seed);
  Packer packer(problem);
  Solution best =
      *std::min_element(starts.begin(), starts.end(),
                        [](const Solution& a, const Solution& b) { return a.peak < b.peak; });
  if (static_cast<int64_t>(packer.movable().size()) < kLeastMovable) return best;
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
      if (best.peak <= target || budget.Over()) return best;
      const int64_t before = packer.work();
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
      budget.watch.Add(packer.work() - before);
    }
  }
  return best;
}

}  // namespace memc
