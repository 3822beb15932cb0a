// SPDX-License-Identifier: Apache-2.0
#include "solvers/placement/problem.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace memc {

namespace {

[[noreturn]] void Reject(size_t index, const std::string& what) {
  throw std::invalid_argument("buffer " + std::to_string(index) + ": " + what);
}

void ValidateLives(const Buffer& buffer, const std::vector<Live>& lives, size_t index) {
  if (lives.empty()) return;
  bool valid = lives.front().lower == buffer.lower && lives.back().upper == buffer.upper;
  for (size_t k = 0; k < lives.size(); ++k) {
    valid = valid && lives[k].lower < lives[k].upper;
    valid = valid && (k == 0 || lives[k - 1].upper < lives[k].lower);
  }
  if (!valid) {
    Reject(index,
           "the intervals in which it is live must be ascending, with gaps between them, from " +
               std::to_string(buffer.lower) + " to " + std::to_string(buffer.upper));
  }
}

// Checks that the tables are there for all buffers or for none.
void ValidateTables(const Problem& problem) {
  const size_t n = problem.buffers.size();
  for (const size_t count : {problem.alignments.size(), problem.lives.size()}) {
    if (count != 0 && count != n) {
      throw std::invalid_argument("expected alignments and intervals of " + std::to_string(n) +
                                  " buffers, got " + std::to_string(count));
    }
  }
  for (size_t i = 0; i < problem.lives.size(); ++i) {
    ValidateLives(problem.buffers[i], problem.lives[i], i);
  }
  for (size_t i = 0; i < problem.alignments.size(); ++i) {
    const int64_t own = problem.alignments[i];
    if (own < 1 || own > kMaxSize || own % problem.alignment != 0) {
      Reject(i, "alignment must be a multiple of the problem's, " +
                    std::to_string(problem.alignment) + ", up to 2^62, got " + std::to_string(own));
    }
  }
}

}  // namespace

void Validate(const Problem& problem) {
  if (problem.alignment < 1) {
    throw std::invalid_argument("alignment must be at least 1, got " +
                                std::to_string(problem.alignment));
  }
  ValidateTables(problem);
  for (size_t i = 0; i < problem.buffers.size(); ++i) {
    const Buffer& b = problem.buffers[i];
    if (b.size < 0 || b.size > kMaxSize) {
      Reject(i, "size must be 0 to 2^62 bytes, got " + std::to_string(b.size));
    }
    if (b.lower >= b.upper) {
      Reject(i, "lifetime [" + std::to_string(b.lower) + ", " + std::to_string(b.upper) +
                    ") is empty");
    }
    if (b.offset && (*b.offset < 0 || *b.offset % problem.AlignmentOf(i) != 0)) {
      Reject(i, "fixed offset " + std::to_string(*b.offset) + " is not a multiple of " +
                    std::to_string(problem.AlignmentOf(i)));
    }
  }
}

bool Together(const Problem& problem, size_t a, size_t b) {
  const Buffer& x = problem.buffers[a];
  const Buffer& y = problem.buffers[b];
  if (x.lower >= y.upper || y.lower >= x.upper) return false;
  if (!problem.HasGaps(a) && !problem.HasGaps(b)) return true;
  bool together = false;
  ForEachLive(problem, a, [&](int64_t lower, int64_t upper) {
    ForEachLive(problem, b, [&](int64_t begin, int64_t end) {
      together = together || (lower < end && begin < upper);
    });
  });
  return together;
}

Problem Subproblem(const Problem& problem, const std::vector<int32_t>& indices) {
  Problem part;
  part.alignment = problem.alignment;
  part.capacity = problem.capacity;
  part.buffers.reserve(indices.size());
  for (const int32_t i : indices) {
    part.buffers.push_back(problem.buffers[i]);
    if (!problem.alignments.empty()) part.alignments.push_back(problem.alignments[i]);
    if (!problem.lives.empty()) part.lives.push_back(problem.lives[i]);
  }
  return part;
}

std::vector<int64_t> RoundedSizes(const Problem& problem) {
  std::vector<int64_t> sizes;
  sizes.reserve(problem.buffers.size());
  for (const Buffer& b : problem.buffers) sizes.push_back(RoundUp(b.size, problem.alignment));
  return sizes;
}

int64_t Peak(const Problem& problem, const std::vector<int64_t>& offsets) {
  int64_t peak = 0;
  for (size_t i = 0; i < offsets.size(); ++i) {
    const int64_t size = RoundUp(problem.buffers[i].size, problem.alignment);
    if (size > 0) peak = std::max(peak, AddBytes(offsets[i], size));
  }
  return peak;
}

int64_t OverlapPairs(const Problem& problem, int64_t limit) {
  std::vector<int64_t> lowers;
  std::vector<int64_t> uppers;
  for (const Buffer& b : problem.buffers) {
    if (b.size == 0) continue;
    lowers.push_back(b.lower);
    uppers.push_back(b.upper);
  }
  std::sort(lowers.begin(), lowers.end());
  std::sort(uppers.begin(), uppers.end());
  // A buffer that begins makes a pair with each one begun before and not yet ended.
  int64_t pairs = 0;
  size_t ended = 0;
  for (size_t begun = 0; begun < lowers.size() && pairs <= limit; ++begun) {
    while (uppers[ended] <= lowers[begun]) ++ended;
    pairs += static_cast<int64_t>(begun - ended);
  }
  return pairs;
}

}  // namespace memc
