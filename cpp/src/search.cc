// SPDX-License-Identifier: Apache-2.0
// First fit over orders that are improved step by step. The buffers that end above the lower bound
// are the ones placed too late: each step moves some of them forward (Joslin and Clements 1999,
// "Squeaky wheel" optimization), and swaps a few others to leave local minima.
#include <algorithm>
#include <random>

#include "memc/packer.h"
#include "memc/solvers.h"

namespace memc {

namespace {

constexpr int64_t kWork = 100'000'000;  // Buffers looked at: about 0.3 s.
constexpr int64_t kMaxSteps = 20'000;

// The movable buffers, lowest offset first: first fit in this order never raises the peak.
std::vector<int32_t> OrderOf(const Solution& solution, std::vector<int32_t> movable) {
  std::stable_sort(movable.begin(), movable.end(),
                   [&](int32_t a, int32_t b) { return solution.offsets[a] < solution.offsets[b]; });
  return movable;
}

// A random number below n that does not depend on the standard library's distributions.
size_t Below(std::mt19937_64& random, size_t n) { return random() % n; }

void Perturb(const Packer& packer, int64_t bound, std::mt19937_64& random,
             std::vector<int32_t>& order) {
  const size_t n = order.size();
  for (size_t i = 1; i < n; ++i) {
    const int32_t index = order[i];
    if (packer.offsets()[index] + packer.sizes()[index] <= bound || Below(random, 4) == 0) continue;
    const size_t to = Below(random, i + 1);
    std::rotate(order.begin() + to, order.begin() + i, order.begin() + i + 1);
  }
  for (size_t swaps = Below(random, 4); swaps > 0; --swaps) {
    std::swap(order[Below(random, n)], order[Below(random, n)]);
  }
}

}  // namespace

Solution Search(const Problem& problem) {
  const int64_t bound = LowerBound(problem);
  const Solution starts[] = {BestFit(problem), FirstFit(problem, Order::kSize),
                             FirstFit(problem, Order::kLifetime), FirstFit(problem, Order::kArea),
                             FirstFit(problem, Order::kGiven)};
  Solution best = starts[0];
  for (const Solution& start : starts) {
    if (start.peak < best.peak) best = start;
  }
  if (best.peak <= bound || problem.buffers.size() < 3) return best;

  std::mt19937_64 random(1);
  Packer packer(problem);
  if (packer.movable().empty()) return best;
  int64_t steps = 0;
  // Each start gets its share of the work; each goes on from its own best order.
  for (int64_t round = 1; round <= 5; ++round) {
    Solution current = starts[round - 1];
    const auto limit = std::numeric_limits<int64_t>::max();
    std::vector<int32_t> order = OrderOf(current, packer.movable());
    packer.Pack(order, limit);
    std::vector<int32_t> kept = order;
    while (packer.work() < kWork / 5 * round && steps < kMaxSteps / 5 * round) {
      ++steps;
      if (packer.peak() < best.peak) best = {packer.offsets(), packer.peak()};
      if (best.peak <= bound) return best;
      Perturb(packer, bound, random, order);
      packer.Pack(order, limit);
      // Equal peaks are accepted, so that the search can cross plateaus; slightly worse ones too.
      if (packer.peak() <= current.peak + (current.peak - bound) / 16) {
        current = {packer.offsets(), packer.peak()};
        kept = order;
      } else {
        order = kept;
        packer.Pack(order, limit);
      }
    }
  }
  return best;
}

}  // namespace memc
