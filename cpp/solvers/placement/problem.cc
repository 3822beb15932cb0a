// SPDX-License-Identifier: Apache-2.0
#include "solvers/placement/problem.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace memc {

namespace {

[[noreturn]] void Reject(size_t index, const std::string& what) {
  throw std::invalid_argument("buffer " + std::to_string(index) + ": " + what);
}

}  // namespace

void Validate(const Problem& problem) {
  if (problem.alignment < 1) {
    throw std::invalid_argument("alignment must be at least 1, got " +
                                std::to_string(problem.alignment));
  }
  for (size_t i = 0; i < problem.buffers.size(); ++i) {
    const Buffer& b = problem.buffers[i];
    if (b.size < 0 || b.size > kMaxSize) {
      Reject(i, "size must be 0 to 2^62 bytes, got " + std::to_string(b.size));
    }
    if (b.lower >= b.upper) {
      Reject(i, "lifetime [" + std::to_string(b.lower) + ", " + std::to_string(b.upper) +
                    ") is empty");
    }
    if (b.offset && (*b.offset < 0 || *b.offset % problem.alignment != 0)) {
      Reject(i, "fixed offset " + std::to_string(*b.offset) + " is not a multiple of " +
                    std::to_string(problem.alignment));
    }
  }
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

int64_t LowerBound(const Problem& problem) {
  Validate(problem);
  const std::vector<int64_t> sizes = RoundedSizes(problem);
  int64_t bound = 0;
  std::vector<std::pair<int64_t, int64_t>> events;  // (time, change in live bytes)
  events.reserve(2 * sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    const Buffer& b = problem.buffers[i];
    events.emplace_back(b.lower, sizes[i]);
    events.emplace_back(b.upper, -sizes[i]);
    if (b.offset && sizes[i] > 0) bound = std::max(bound, AddBytes(*b.offset, sizes[i]));
  }
  // Ends sort before beginnings at the same time, since their change is negative.
  std::sort(events.begin(), events.end());
  int64_t live = 0;
  for (const auto& [time, change] : events) {
    live = change >= 0 ? AddBytes(live, change) : live + change;
    bound = std::max(bound, live);
  }
  return bound;
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
