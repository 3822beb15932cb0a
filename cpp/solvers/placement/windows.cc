// SPDX-License-Identifier: Apache-2.0
#include "solvers/placement/windows.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace memc {

Windows::Windows(const Problem& problem) : problem_(problem) {
  const std::vector<Buffer>& all = problem.buffers;
  by_lower_.resize(all.size());
  std::iota(by_lower_.begin(), by_lower_.end(), 0);
  std::stable_sort(by_lower_.begin(), by_lower_.end(),
                   [&](int32_t a, int32_t b) { return all[a].lower < all[b].lower; });
  place_.resize(all.size());
  for (size_t k = 0; k < by_lower_.size(); ++k) place_[by_lower_[k]] = static_cast<int64_t>(k);
  while (leaves_ < all.size()) leaves_ *= 2;
  latest_.assign(2 * leaves_, std::numeric_limits<int64_t>::min());
  for (size_t k = 0; k < by_lower_.size(); ++k) latest_[leaves_ + k] = all[by_lower_[k]].upper;
  for (size_t k = leaves_ - 1; k > 0; --k) {
    latest_[k] = std::max(latest_[2 * k], latest_[2 * k + 1]);
  }
}

std::vector<int32_t> Windows::Touching(int64_t lower, int64_t upper) const {
  const auto begins_before = [&](int32_t i, int64_t time) {
    return problem_.buffers[i].lower < time;
  };
  const auto end = std::lower_bound(by_lower_.begin(), by_lower_.end(), upper, begins_before);
  std::vector<int32_t> found;
  Find(1, 0, leaves_, lower, static_cast<size_t>(end - by_lower_.begin()), found);
  return found;
}

// Adds the buffers under the node, which holds `width` places from `first` on, that are at places
// before `end` and end after `lower`.
void Windows::Find(size_t node, size_t first, size_t width, int64_t lower, size_t end,
                   std::vector<int32_t>& found) const {
  if (first >= end || latest_[node] <= lower) return;
  if (width == 1) {
    found.push_back(by_lower_[first]);
    return;
  }
  Find(2 * node, first, width / 2, lower, end, found);
  Find(2 * node + 1, first + width / 2, width / 2, lower, end, found);
}

std::vector<int32_t> Windows::Around(int32_t index, int64_t count, double shift,
                                     int64_t most) const {
  const std::vector<Buffer>& all = problem_.buffers;
  const auto n = static_cast<int64_t>(by_lower_.size());
  std::vector<int32_t> found;
  for (int64_t reach = count;; reach *= 2) {
    const auto earlier = static_cast<int64_t>(static_cast<double>(reach) * (1 - shift) / 2);
    const int64_t first = std::max<int64_t>(0, place_[index] - earlier);
    const int64_t last = std::min(n, place_[index] + (reach - earlier) + 1);
    const int64_t upper =
        std::max(all[index].upper,
                 last < n ? all[by_lower_[last]].lower : std::numeric_limits<int64_t>::max());
    found.clear();
    for (int64_t k = first; k < n && all[by_lower_[k]].lower < upper; ++k) {
      if (all[by_lower_[k]].upper <= upper) found.push_back(by_lower_[k]);
    }
    const bool whole = first == 0 && last == n;
    if (static_cast<int64_t>(found.size()) >= count || whole || reach >= most) return found;
  }
}

}  // namespace memc
