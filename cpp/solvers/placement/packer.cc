// SPDX-License-Identifier: Apache-2.0
#include "solvers/placement/packer.h"

#include <algorithm>

namespace memc {

namespace {

constexpr int64_t kMaxPairs = int64_t{1} << 25;  // Keeps the neighbour lists below 256 MiB.
// Buffers: above, sparse ones are not kept sorted, since moving them costs more than it saves.
constexpr int64_t kMaxSorted = 4096;

// Calls pair(i, j) for every two buffers that are live together, empty ones left out.
template <typename Fn>
void ForEachPair(const Problem& problem, Fn pair) {
  const bool gaps = !problem.lives.empty();
  std::vector<int32_t> by_lower;
  for (size_t i = 0; i < problem.buffers.size(); ++i) {
    if (problem.buffers[i].size > 0) by_lower.push_back(static_cast<int32_t>(i));
  }
  std::stable_sort(by_lower.begin(), by_lower.end(), [&](int32_t a, int32_t b) {
    return problem.buffers[a].lower < problem.buffers[b].lower;
  });
  for (size_t a = 0; a < by_lower.size(); ++a) {
    const int64_t upper = problem.buffers[by_lower[a]].upper;
    for (size_t b = a + 1; b < by_lower.size() && problem.buffers[by_lower[b]].lower < upper; ++b) {
      if (gaps && !Together(problem, by_lower[a], by_lower[b])) continue;
      pair(by_lower[a], by_lower[b]);
    }
  }
}

}  // namespace

Packer::Packer(const Problem& problem) : problem_(problem), sizes_(RoundedSizes(problem)) {
  const size_t n = problem.buffers.size();
  offsets_.assign(n, 0);
  placed_.assign(n, 0);
  for (size_t i = 0; i < n; ++i) {
    if (!problem.buffers[i].offset) movable_.push_back(static_cast<int32_t>(i));
  }
  const int64_t pairs = OverlapPairs(problem, kMaxPairs);
  if (pairs > kMaxPairs) return;
  const auto count = static_cast<int64_t>(n);
  sorted_ = count <= kMaxSorted || pairs / count > count / 16;
  std::vector<int64_t> degree(n + 1, 0);
  ForEachPair(problem, [&](int32_t a, int32_t b) {
    ++degree[a];
    ++degree[b];
  });
  first_.assign(n + 1, 0);
  for (size_t i = 0; i < n; ++i) first_[i + 1] = first_[i] + degree[i];
  neighbours_.resize(first_[n]);
  std::vector<int64_t> next(first_.begin(), first_.end() - 1);
  ForEachPair(problem, [&](int32_t a, int32_t b) {
    neighbours_[next[a]++] = b;
    neighbours_[next[b]++] = a;
  });
}

bool Packer::Pack(const std::vector<int32_t>& order, int64_t limit) {
  std::fill(placed_.begin(), placed_.end(), 0);
  by_offset_.clear();
  peak_ = 0;
  for (size_t i = 0; i < sizes_.size(); ++i) {
    const auto& fixed = problem_.buffers[i].offset;
    if (fixed) Put(static_cast<int32_t>(i), *fixed);
  }
  for (const int32_t index : order) {
    Put(index, LowestFree(index));
    if (peak_ > limit) return false;
  }
  return peak_ <= limit;  // Fixed buffers alone may be above it.
}

int64_t Packer::LowestFree(int32_t index) {
  const int64_t size = sizes_[index];
  if (size == 0) return 0;
  const int64_t alignment = problem_.AlignmentOf(index);
  const bool own = !problem_.alignments.empty();
  int64_t offset = 0;
  // True while the gap below [begin, end) is too small; then goes on above it.
  const auto blocked = [&](int64_t begin, int64_t end) {
    if (begin >= offset && begin - offset >= size) return false;
    offset = std::max(offset, own ? RoundUp(end, alignment) : end);
    return true;
  };
  const auto placed = static_cast<int64_t>(by_offset_.size());
  const int64_t degree = first_.empty() ? placed : first_[index + 1] - first_[index];
  if (!sorted_ || degree * 8 < placed) {
    work_ += degree * 4;
    taken_.clear();
    for (int64_t k = first_[index]; k < first_[index + 1]; ++k) {
      const int32_t other = neighbours_[k];
      if (placed_[other]) {
        taken_.emplace_back(offsets_[other], offsets_[other] + sizes_[other]);
      }
    }
    std::sort(taken_.begin(), taken_.end());
    for (const auto& [begin, end] : taken_) {
      if (!blocked(begin, end)) break;
    }
  } else {
    for (const int32_t other : by_offset_) {
      ++work_;
      if (!Together(problem_, other, index)) continue;
      if (!blocked(offsets_[other], offsets_[other] + sizes_[other])) break;
    }
  }
  return offset;
}

void Packer::Put(int32_t index, int64_t offset) {
  offsets_[index] = offset;
  placed_[index] = 1;
  if (sizes_[index] == 0) return;
  peak_ = std::max(peak_, AddBytes(offset, sizes_[index]));
  if (!sorted_) return;
  const auto at =
      std::upper_bound(by_offset_.begin(), by_offset_.end(), offset,
                       [&](int64_t value, int32_t other) { return value < offsets_[other]; });
  by_offset_.insert(at, index);
}

}  // namespace memc
