// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "memc/packer.h"
#include "memc/solvers.h"

namespace memc {

Solution Sequential(const Problem& problem) {
  Validate(problem);
  Solution solution;
  int64_t next = 0;
  for (const Buffer& b : problem.buffers) {
    if (b.offset) next = std::max(next, AddBytes(*b.offset, RoundUp(b.size, problem.alignment)));
  }
  for (const Buffer& b : problem.buffers) {
    solution.offsets.push_back(b.offset ? *b.offset : next);
    if (!b.offset) next = AddBytes(next, RoundUp(b.size, problem.alignment));
  }
  solution.peak = Peak(problem, solution.offsets);
  return solution;
}

Solution FirstFit(const Problem& problem, Order order) {
  Validate(problem);
  Packer packer(problem);
  std::vector<int32_t> indices = packer.movable();
  // Ties go to the larger, then to the longer-lived, then to the earlier.
  std::stable_sort(indices.begin(), indices.end(), [&](int32_t i, int32_t j) {
    const int64_t size_i = packer.sizes()[i];
    const int64_t size_j = packer.sizes()[j];
    const auto span = [&](int32_t k) {
      return static_cast<__int128>(problem.buffers[k].upper) - problem.buffers[k].lower;
    };
    switch (order) {
      case Order::kGiven:
        return false;
      case Order::kSize:
        return size_i != size_j ? size_i > size_j : span(i) > span(j);
      case Order::kLifetime:
        return span(i) != span(j) ? span(i) > span(j) : size_i > size_j;
      case Order::kArea: {
        // Long double: the product of 2^62 bytes and 2^64 steps does not fit 128 bits signed.
        const auto area_i = static_cast<long double>(size_i) * static_cast<long double>(span(i));
        const auto area_j = static_cast<long double>(size_j) * static_cast<long double>(span(j));
        return area_i != area_j ? area_i > area_j : size_i > size_j;
      }
    }
    return false;
  });
  packer.Pack(indices, std::numeric_limits<int64_t>::max());
  return {packer.offsets(), packer.peak()};
}

}  // namespace memc
