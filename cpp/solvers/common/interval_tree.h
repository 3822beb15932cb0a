// SPDX-License-Identifier: Apache-2.0
// Intervals, asked for the first in some ranking among those within a given interval.
#ifndef MEMC_INTERVAL_TREE_H_
#define MEMC_INTERVAL_TREE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace memc {

struct Interval {
  int64_t lower, upper;  // Half-open.
};

// A k-d tree over the points (lower, upper): an interval within [L, U) is a point in the quadrant
// right of L and below U.
//
//   upper ^      .  |   .        Longest first: the wanted point is the one nearest to the corner.
//       U |---------+ - - -      A node knows the box around what is left of it, and its first
//         |     .   |  .         interval, which together prune the descent.
//         |         |      .
//         +---------+---------> lower
//                   L
class IntervalTree {
 public:
  // The intervals in their ranking, the longest first; must outlive the tree. O(n log n).
  explicit IntervalTree(const std::vector<Interval>& ranked);

  // Takes out the first interval of the ranking that is within [lower, upper), and returns its
  // index; -1 if there is none. O(sqrt n) at worst; O(log n) on all shapes measured.
  int32_t Take(int64_t lower, int64_t upper);

 private:
  static constexpr int32_t kNone = INT32_MAX;
  static constexpr size_t kLeaf = 8;  // Intervals a leaf holds at most.

  struct Node {
    int32_t first = kNone;  // Index of the first interval left.
    int64_t least_lower = INT64_MAX, most_lower = INT64_MIN;
    int64_t least_upper = INT64_MAX, most_upper = INT64_MIN;
  };

  void Build(size_t node, size_t begin, size_t end, bool by_lower);
  void Combine(size_t node);
  void Gather(size_t node, size_t begin, size_t end);
  void Remove(size_t node, size_t begin, size_t end, size_t position);
  static __int128 Longest(const Node& node, int64_t lower, int64_t upper);
  bool Worth(const Node& node, int64_t lower, int64_t upper, int32_t best) const;
  int32_t Find(size_t node, size_t begin, size_t end, int64_t lower, int64_t upper,
               int32_t best) const;

  const std::vector<Interval>& ranked_;
  std::vector<int32_t> leaves_;    // Indices in the order of the tree; kNone once taken out.
  std::vector<size_t> positions_;  // Of each index in leaves_.
  std::vector<Node> nodes_;        // Node i has the children 2 i and 2 i + 1; the root is 1.
};

}  // namespace memc

#endif  // MEMC_INTERVAL_TREE_H_
