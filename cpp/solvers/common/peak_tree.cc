// SPDX-License-Identifier: Apache-2.0
#include "solvers/common/peak_tree.h"

#include <algorithm>
#include <limits>

namespace memc {

PeakTree::PeakTree(int32_t size) {
  while (leaves_ < size) leaves_ *= 2;
  nodes_.resize(2 * static_cast<size_t>(leaves_));
}

PeakTree::PeakTree(const std::vector<int64_t>& sums) : PeakTree(static_cast<int32_t>(sums.size())) {
  for (size_t i = 0; i < sums.size(); ++i) nodes_[leaves_ + i] = {sums[i], sums[i]};
  for (int32_t node = leaves_ - 1; node >= 1; --node) Pull(node);
}

void PeakTree::Pull(int32_t node) {
  nodes_[node].greatest =
      std::max(nodes_[2 * node].greatest, nodes_[2 * node + 1].greatest) + nodes_[node].added;
}

void PeakTree::Add(int32_t lower, int32_t upper, int64_t amount) {
  if (amount == 0) return;
  const int32_t first = lower + leaves_, last = upper + leaves_;
  for (int32_t low = first, high = last + 1; low < high; low /= 2, high /= 2) {
    if (low & 1) {
      nodes_[low].added += amount;
      nodes_[low++].greatest += amount;
    }
    if (high & 1) {
      nodes_[--high].added += amount;
      nodes_[high].greatest += amount;
    }
  }
  int32_t left = first / 2, right = last / 2;
  for (; left != right; left /= 2, right /= 2) {
    Pull(left);
    Pull(right);
  }
  if (left < 1) return;
  Pull(left);  // Which may have been added to itself.
  for (int32_t node = left / 2; node >= 1; node /= 2) {
    const int64_t before = nodes_[node].greatest;
    Pull(node);
    if (nodes_[node].greatest == before) return;  // So nothing changes above it.
  }
}

int32_t PeakTree::ArgMax() const {
  int32_t node = 1;
  while (node < leaves_)
    node = 2 * node + (nodes_[2 * node + 1].greatest > nodes_[2 * node].greatest);
  return node - leaves_;
}

int64_t PeakTree::MaxIn(int32_t lower, int32_t upper) const {
  // Sums of the parts left and right of the range's middle, each with what their ancestors add.
  int64_t left = std::numeric_limits<int64_t>::min() / 2, right = left;
  int32_t low = lower + leaves_, high = upper + leaves_;
  left = nodes_[low].greatest;
  right = nodes_[high].greatest;
  while (low / 2 != high / 2) {
    if (!(low & 1)) left = std::max(left, nodes_[low + 1].greatest);
    if (high & 1) right = std::max(right, nodes_[high - 1].greatest);
    low /= 2;
    high /= 2;
    left += nodes_[low].added;
    right += nodes_[high].added;
  }
  int64_t most = std::max(left, right);
  for (int32_t node = low / 2; node >= 1; node /= 2) most += nodes_[node].added;
  return most;
}

}  // namespace memc
