// SPDX-License-Identifier: Apache-2.0
// Placement problems, and their least peaks by brute force.
#ifndef MEMC_TESTS_RANDOM_PROBLEMS_H_
#define MEMC_TESTS_RANDOM_PROBLEMS_H_

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "check.h"
#include "solvers/placement/problem.h"

namespace memc::tests {

inline bool Meet(const Buffer& a, const Buffer& b) {
  return a.size > 0 && b.size > 0 && a.lower < b.upper && b.lower < a.upper;
}

inline Problem RandomProblem(Random& random, int64_t buffers, int64_t steps, int64_t most) {
  Problem problem;
  problem.alignment = random.Flip() ? 1 : 4;
  for (int64_t i = 0; i < buffers; ++i) {
    const int64_t lower = random.Below(steps);
    problem.buffers.push_back(
        {random.Below(most + 1), lower, random.Within(lower + 1, steps), std::nullopt});
  }
  return problem;
}

// Some buffers get the offsets that `solution` gives them.
inline void Fix(Random& random, const Solution& solution, Problem& problem) {
  for (size_t i = 0; i < problem.buffers.size(); ++i) {
    if (random.Below(4) == 0) problem.buffers[i].offset = solution.offsets[i];
  }
}

// The peak where the buffers are put, in this order, each at the lowest free offset; fixed ones
// first.
inline int64_t PackedPeak(const Problem& problem, std::vector<int32_t> order) {
  const std::vector<Buffer>& all = problem.buffers;
  std::stable_partition(order.begin(), order.end(),
                        [&](int32_t i) { return all[i].offset.has_value(); });
  std::vector<int64_t> at(all.size(), -1);
  int64_t peak = 0;
  for (const int32_t i : order) {
    const int64_t size =
        (all[i].size + problem.alignment - 1) / problem.alignment * problem.alignment;
    int64_t offset = all[i].offset.value_or(0);
    bool moved = !all[i].offset.has_value();
    while (moved) {
      moved = false;
      for (size_t j = 0; j < all.size(); ++j) {
        if (at[j] < 0 || !Meet(all[i], all[j])) continue;
        const int64_t end =
            at[j] + (all[j].size + problem.alignment - 1) / problem.alignment * problem.alignment;
        if (offset < end && at[j] < offset + size) {
          offset = end;
          moved = true;
        }
      }
    }
    at[i] = offset;
    if (size > 0) peak = std::max(peak, offset + size);
  }
  return peak;
}

// Every plan can be packed down in the order of its offsets, so the least peak is that of some
// order.
inline int64_t LeastPeak(const Problem& problem) {
  std::vector<int32_t> order(problem.buffers.size());
  std::iota(order.begin(), order.end(), 0);
  int64_t least = std::numeric_limits<int64_t>::max();
  do {
    least = std::min(least, PackedPeak(problem, order));
  } while (std::next_permutation(order.begin(), order.end()));
  return least;
}

}  // namespace memc::tests

#endif  // MEMC_TESTS_RANDOM_PROBLEMS_H_
