// SPDX-License-Identifier: Apache-2.0
#include "solvers/common/interval_tree.h"

#include <algorithm>
#include <numeric>

namespace memc {

IntervalTree::IntervalTree(const std::vector<Interval>& ranked)
    : ranked_(ranked), leaves_(ranked.size()), positions_(ranked.size()) {
  std::iota(leaves_.begin(), leaves_.end(), 0);
  size_t nodes = 2;
  for (size_t size = ranked.size(); size > kLeaf; size = (size + 1) / 2) nodes *= 2;
  nodes_.resize(nodes);
  Build(1, 0, leaves_.size(), true);
}

void IntervalTree::Build(size_t node, size_t begin, size_t end, bool by_lower) {
  if (end - begin <= kLeaf) {
    for (size_t k = begin; k < end; ++k) positions_[leaves_[k]] = k;
    Gather(node, begin, end);
    return;
  }
  const size_t middle = (begin + end) / 2;
  const auto at = [&](size_t k) { return leaves_.begin() + static_cast<std::ptrdiff_t>(k); };
  std::nth_element(at(begin), at(middle), at(end), [&](int32_t a, int32_t b) {
    return by_lower ? ranked_[a].lower < ranked_[b].lower : ranked_[a].upper < ranked_[b].upper;
  });
  Build(2 * node, begin, middle, !by_lower);
  Build(2 * node + 1, middle, end, !by_lower);
  Combine(node);
}

void IntervalTree::Combine(size_t node) {
  const Node& a = nodes_[2 * node];
  const Node& b = nodes_[2 * node + 1];
  nodes_[node] = {std::min(a.first, b.first), std::min(a.least_lower, b.least_lower),
                  std::max(a.most_lower, b.most_lower), std::min(a.least_upper, b.least_upper),
                  std::max(a.most_upper, b.most_upper)};
}

void IntervalTree::Gather(size_t node, size_t begin, size_t end) {
  Node all;
  for (size_t k = begin; k < end; ++k) {
    if (leaves_[k] == kNone) continue;
    const Interval& interval = ranked_[leaves_[k]];
    all.first = std::min(all.first, leaves_[k]);
    all.least_lower = std::min(all.least_lower, interval.lower);
    all.most_lower = std::max(all.most_lower, interval.lower);
    all.least_upper = std::min(all.least_upper, interval.upper);
    all.most_upper = std::max(all.most_upper, interval.upper);
  }
  nodes_[node] = all;
}

int32_t IntervalTree::Take(int64_t lower, int64_t upper) {
  const int32_t found = Find(1, 0, leaves_.size(), lower, upper, kNone);
  if (found == kNone) return -1;
  const size_t position = positions_[found];
  leaves_[position] = kNone;
  Remove(1, 0, leaves_.size(), position);
  return found;
}

void IntervalTree::Remove(size_t node, size_t begin, size_t end, size_t position) {
  if (end - begin <= kLeaf) return Gather(node, begin, end);
  const size_t middle = (begin + end) / 2;
  if (position < middle) {
    Remove(2 * node, begin, middle, position);
  } else {
    Remove(2 * node + 1, middle, end, position);
  }
  Combine(node);
}

// No interval within both the node's box and [lower, upper) is longer.
__int128 IntervalTree::Longest(const Node& node, int64_t lower, int64_t upper) {
  return static_cast<__int128>(std::min(node.most_upper, upper)) -
         std::max(node.least_lower, lower);
}

// False if nothing below the node can be within [lower, upper) and come before `best`.
bool IntervalTree::Worth(const Node& node, int64_t lower, int64_t upper, int32_t best) const {
  if (node.first >= best || node.most_lower < lower || node.least_upper > upper) return false;
  if (best == kNone) return true;
  return Longest(node, lower, upper) >=
         static_cast<__int128>(ranked_[best].upper) - ranked_[best].lower;
}

// The first interval below the node that is within [lower, upper) and before `best`; else `best`.
int32_t IntervalTree::Find(size_t node, size_t begin, size_t end, int64_t lower, int64_t upper,
                           int32_t best) const {
  const Node& here = nodes_[node];
  if (!Worth(here, lower, upper, best)) return best;
  const auto within = [&](int32_t i) {
    return lower <= ranked_[i].lower && ranked_[i].upper <= upper;
  };
  if (within(here.first)) return here.first;
  if (end - begin <= kLeaf) {
    for (size_t k = begin; k < end; ++k) {
      if (leaves_[k] < best && within(leaves_[k])) best = leaves_[k];
    }
    return best;
  }
  const size_t middle = (begin + end) / 2;
  const size_t low = 2 * node;
  // The child that may hold the longer one first: what it yields often rules out the other.
  const bool high_first =
      Longest(nodes_[low + 1], lower, upper) > Longest(nodes_[low], lower, upper);
  for (const bool high : {high_first, !high_first}) {
    best = high ? Find(low + 1, middle, end, lower, upper, best)
                : Find(low, begin, middle, lower, upper, best);
  }
  return best;
}

}  // namespace memc
