// SPDX-License-Identifier: Apache-2.0
#include "solvers/placement/lower_bound.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "solvers/common/bytes.h"

namespace memc {

int64_t LowerBound(const Problem& problem) {
  Validate(problem);
  const std::vector<int64_t> sizes = RoundedSizes(problem);
  int64_t bound = 0;
  std::vector<std::pair<int64_t, int64_t>> events;  // (time, change in live bytes)
  events.reserve(2 * sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    const Buffer& b = problem.buffers[i];
    ForEachLive(problem, i, [&](int64_t lower, int64_t upper) {
      events.emplace_back(lower, sizes[i]);
      events.emplace_back(upper, -sizes[i]);
    });
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

}  // namespace memc
