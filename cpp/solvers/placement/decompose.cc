// SPDX-License-Identifier: Apache-2.0
// Buffers live throughout a group can lie at its bottom in any plan, unless offsets are fixed or
// alignments differ. Gaps count as live where a group ends.
// Without them, the group may fall into pieces that are never live together:
//
//      +---+   +-----+         each of the two upper groups is a part of its own,
//   +--+---+-+ | +---+-+       based on top of X
//   +--------+ +-+-----+
//   |        X         |
//   +------------------+
#include "solvers/placement/decompose.h"

#include <algorithm>
#include <utility>

namespace memc {

namespace {

constexpr int kMaxDepth = 64;

void TakeApart(const Problem& problem, const std::vector<int64_t>& sizes, Part whole, int depth,
               Decomposition& result) {
  const std::vector<Buffer>& all = problem.buffers;
  std::vector<int32_t>& order = whole.buffers;
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return all[a].lower < all[b].lower; });
  for (size_t begin = 0; begin < order.size();) {
    const int64_t lower = all[order[begin]].lower;
    int64_t upper = all[order[begin]].upper;
    bool any_fixed = all[order[begin]].offset.has_value();
    size_t end = begin + 1;
    for (; end < order.size() && all[order[end]].lower < upper; ++end) {
      upper = std::max(upper, all[order[end]].upper);
      any_fixed = any_fixed || all[order[end]].offset;
    }
    Part part{{}, whole.base};
    for (size_t k = begin; k < end; ++k) {
      const int32_t i = order[k];
      if (!any_fixed && problem.alignments.empty() && !problem.HasGaps(i) &&
          all[i].lower == lower && all[i].upper == upper) {
        result.offsets[i] = part.base;
        part.base = AddBytes(part.base, sizes[i]);
      } else {
        part.buffers.push_back(i);
      }
    }
    const bool shrunk = part.buffers.size() < end - begin;
    if (shrunk && depth < kMaxDepth) {
      TakeApart(problem, sizes, std::move(part), depth + 1, result);
    } else if (!part.buffers.empty()) {
      result.parts.push_back(std::move(part));
    }
    begin = end;
  }
}

}  // namespace

Decomposition Decompose(const Problem& problem) {
  const std::vector<int64_t> sizes = RoundedSizes(problem);
  Decomposition result;
  Part whole{{}, 0};
  for (size_t i = 0; i < sizes.size(); ++i) {
    result.offsets.push_back(problem.buffers[i].offset.value_or(0));
    if (sizes[i] > 0) whole.buffers.push_back(static_cast<int32_t>(i));
  }
  TakeApart(problem, sizes, std::move(whole), 0, result);
  return result;
}

}  // namespace memc
