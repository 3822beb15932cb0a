// SPDX-License-Identifier: Apache-2.0
#include "solvers/common/peak_tree.h"

#include <algorithm>
#include <limits>

namespace memc {

PeakTree::PeakTree(int32_t size) {
  while (leaves_ < size) leaves_ *= 2;
  added_.assign(2 * static_cast<size_t>(leaves_), 0);
  greatest_.assign(2 * static_cast<size_t>(leaves_), 0);
}

PeakTree::PeakTree(const std::vector<int64_t>& sums) : PeakTree(static_cast<int32_t>(sums.size())) {
  std::copy(sums.begin(), sums.end(), greatest_.begin() + leaves_);
  std::copy(sums.begin(), sums.end(), added_.begin() + leaves_);
  for (int32_t node = leaves_ - 1; node >= 1; --node) Pull(node);
}

void PeakTree::Pull(int32_t node) {
  greatest_[node] = std::max(greatest_[2 * node], greatest_[2 * node + 1]) + added_[node];
}

void PeakTree::Add(int32_t lower, int32_t upper, int64_t amount) {
  const int32_t first = lower + leaves_, last = upper + leaves_;
  for (int32_t low = first, high = last + 1; low < high; low /= 2, high /= 2) {
    if (low & 1) {
      added_[low] += amount;
      greatest_[low++] += amount;
    }
    if (high & 1) {
      added_[--high] += amount;
      greatest_[high] += amount;
    }
  }
  for (int32_t node = first / 2; node >= 1; node /= 2) Pull(node);
  for (int32_t node = last / 2; node >= 1; node /= 2) Pull(node);
}

int32_t PeakTree::ArgMax() const {
  int32_t node = 1;
  while (node < leaves_) node = 2 * node + (greatest_[2 * node + 1] > greatest_[2 * node]);
  return node - leaves_;
}

int64_t PeakTree::MaxIn(int32_t lower, int32_t upper) const {
  // Sums of the parts left and right of the range's middle, each with what their ancestors add.
  int64_t left = std::numeric_limits<int64_t>::min() / 2, right = left;
  int32_t low = lower + leaves_, high = upper + leaves_;
  left = greatest_[low];
  right = greatest_[high];
  while (low / 2 != high / 2) {
    if (!(low & 1)) left = std::max(left, greatest_[low + 1]);
    if (high & 1) right = std::max(right, greatest_[high - 1]);
    low /= 2;
    high /= 2;
    left += added_[low];
    right += added_[high];
  }
  int64_t most = std::max(left, right);
  for (int32_t node = low / 2; node >= 1; node /= 2) most += added_[node];
  return most;
}

}  // namespace memc
