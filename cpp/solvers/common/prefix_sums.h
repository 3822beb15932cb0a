// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_PREFIX_SUMS_H_
#define MEMC_PREFIX_SUMS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace memc {

// Amounts at positions, with the sum of those up to a position at hand (Fenwick 1994).
class PrefixSums {
 public:
  // Positions 0 to `size` - 1, all 0.
  explicit PrefixSums(int32_t size) : tree_(static_cast<size_t>(size) + 1, 0) {}

  // O(log size). An amount after the last position is in no sum.
  void Add(int32_t position, int64_t amount) {
    for (auto i = static_cast<size_t>(position) + 1; i < tree_.size(); i += i & (~i + 1)) {
      tree_[i] += amount;
    }
  }

  // The sum at positions 0 to `position`. O(log size).
  int64_t Sum(int32_t position) const {
    int64_t sum = 0;
    for (auto i = static_cast<size_t>(position) + 1; i > 0; i &= i - 1) sum += tree_[i];
    return sum;
  }

 private:
  std::vector<int64_t> tree_;
};

}  // namespace memc

#endif  // MEMC_PREFIX_SUMS_H_
