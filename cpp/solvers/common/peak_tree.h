// SPDX-License-Identifier: Apache-2.0
// Sums over positions under additions to ranges of them, with the greatest sum at hand.
#ifndef MEMC_PEAK_TREE_H_
#define MEMC_PEAK_TREE_H_

#include <cstdint>
#include <vector>

namespace memc {

// A segment tree whose nodes hold what was added to all of their range, and the greatest sum below.
class PeakTree {
 public:
  // Positions 0 to `size` - 1, all 0.
  explicit PeakTree(int32_t size);

  // Positions with these sums. O(their number).
  explicit PeakTree(const std::vector<int64_t>& sums);

  // Adds `amount` to positions lower to upper, both included. O(log size).
  void Add(int32_t lower, int32_t upper, int64_t amount);

  int64_t Max() const { return nodes_[1].greatest; }
  int32_t ArgMax() const;  // The first position of the greatest sum. O(log size).

  // The greatest sum at positions lower to upper, both included; `lower` <= `upper`. O(log size).
  int64_t MaxIn(int32_t lower, int32_t upper) const;

 private:
  void Pull(int32_t node);

  // Side by side, since both are looked at together: trees are larger than the nearest caches.
  struct Node {
    int64_t added = 0;
    int64_t greatest = 0;  // Of the node's range, what was added to it included.
  };

  int32_t leaves_ = 1;  // A power of two; leaf i is node leaves_ + i.
  std::vector<Node> nodes_;
};

}  // namespace memc

#endif  // MEMC_PEAK_TREE_H_
