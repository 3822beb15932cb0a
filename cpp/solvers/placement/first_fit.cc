// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "solvers/common/interval_tree.h"
#include "solvers/placement/live_blocks.h"
#include "solvers/placement/packer.h"
#include "solvers/placement/solvers.h"

namespace memc {

namespace {

// Ties go to the larger, then to the longer-lived, then to the earlier.
std::vector<int32_t> Ordered(const Problem& problem, const std::vector<int64_t>& sizes,
                             std::vector<int32_t> indices, Order order) {
  const auto duration = [&](int32_t k) {
    __int128 steps = 0;
    ForEachLive(problem, k, [&](int64_t lower, int64_t upper) {
      steps += static_cast<__int128>(upper) - lower;
    });
    return steps;
  };
  // Long double: the product of 2^62 bytes and 2^64 steps does not fit 128 bits signed.
  const auto area = [&](int32_t k) {
    return static_cast<long double>(sizes[k]) * static_cast<long double>(duration(k));
  };
  std::stable_sort(indices.begin(), indices.end(), [&](int32_t i, int32_t j) {
    const Buffer& a = problem.buffers[i];
    const Buffer& b = problem.buffers[j];
    switch (order) {
      case Order::kGiven:
        return false;
      case Order::kSize:
        break;
      case Order::kLifetime:
        if (duration(i) != duration(j)) return duration(i) > duration(j);
        break;
      case Order::kArea:
        if (area(i) != area(j)) return area(i) > area(j);
        break;
      case Order::kArrival:
        if (a.lower != b.lower) return a.lower < b.lower;
        break;
      case Order::kDeparture:
        if (a.upper != b.upper) return a.upper > b.upper;
        break;
    }
    return sizes[i] != sizes[j] ? sizes[i] > sizes[j] : duration(i) > duration(j);
  });
  return indices;
}

// First fit of buffers in the order of their beginning: those placed before and live with the next
// one are all live when it begins, so only the addresses at that moment matter.
std::vector<int64_t> SweepFit(const std::vector<Interval>& lifetimes,
                              const std::vector<int64_t>& sizes,
                              const std::vector<int32_t>& order) {
  std::vector<int32_t> by_end = order;
  std::stable_sort(by_end.begin(), by_end.end(),
                   [&](int32_t a, int32_t b) { return lifetimes[a].upper < lifetimes[b].upper; });
  std::vector<int64_t> offsets(sizes.size(), 0);
  LiveBlocks live(static_cast<int32_t>(sizes.size()));
  auto ending = by_end.begin();
  for (const int32_t index : order) {
    for (; lifetimes[*ending].upper <= lifetimes[index].lower; ++ending) {
      if (sizes[*ending] > 0) live.Free(*ending);
    }
    if (sizes[index] > 0) offsets[index] = live.Place(index, sizes[index]);
  }
  return offsets;
}

// The lifetimes, in reversed time if asked for.
std::vector<Interval> Lifetimes(const Problem& problem, bool reversed) {
  std::vector<Interval> lifetimes;
  lifetimes.reserve(problem.buffers.size());
  for (const Buffer& b : problem.buffers) {
    // Bitwise complement reverses the order of all numbers, where a minus would overflow.
    lifetimes.push_back(reversed ? Interval{~b.upper, ~b.lower} : Interval{b.lower, b.upper});
  }
  return lifetimes;
}

}  // namespace

Solution Sequential(const Problem& problem) {
  Validate(problem);
  Solution solution;
  int64_t next = 0;
  for (const Buffer& b : problem.buffers) {
    if (b.offset) next = std::max(next, AddBytes(*b.offset, RoundUp(b.size, problem.alignment)));
  }
  for (const Buffer& b : problem.buffers) {
    if (!b.offset) next = RoundUp(next, problem.AlignmentOf(solution.offsets.size()));
    solution.offsets.push_back(b.offset ? *b.offset : next);
    if (!b.offset) next = AddBytes(next, RoundUp(b.size, problem.alignment));
  }
  solution.peak = Peak(problem, solution.offsets);
  return solution;
}

Solution FirstFit(const Problem& problem, Order order) {
  Validate(problem);
  const std::vector<int64_t> sizes = RoundedSizes(problem);
  std::vector<int32_t> movable;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (!problem.buffers[i].offset) movable.push_back(static_cast<int32_t>(i));
  }
  // The sweep knows neither fixed offsets nor gaps nor alignments of single buffers.
  const bool may_sweep = movable.size() == sizes.size() && problem.Plain();
  const std::vector<int32_t> indices = Ordered(problem, sizes, std::move(movable), order);
  for (const bool reversed : {false, true}) {
    const std::vector<Interval> lifetimes = Lifetimes(problem, reversed);
    const bool sweeps = std::is_sorted(indices.begin(), indices.end(), [&](int32_t a, int32_t b) {
      return lifetimes[a].lower < lifetimes[b].lower;
    });
    if (!may_sweep || !sweeps) continue;
    Solution solution{SweepFit(lifetimes, sizes, indices), 0};
    solution.peak = Peak(problem, solution.offsets);
    return solution;
  }
  Packer packer(problem);
  packer.Pack(indices, std::numeric_limits<int64_t>::max());
  return {packer.offsets(), packer.peak()};
}

}  // namespace memc
