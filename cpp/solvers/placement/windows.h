// SPDX-License-Identifier: Apache-2.0
// Which buffers are live in a window of time.
#ifndef MEMC_WINDOWS_H_
#define MEMC_WINDOWS_H_

#include <cstdint>
#include <vector>

#include "solvers/placement/problem.h"

namespace memc {

// The buffers by the beginning of their lifetimes, with the latest end of every run of them: an
// implicit tree that finds those live at a moment in O(log n) each.
class Windows {
 public:
  // Keeps a reference to the problem, which must outlive it. O(n log n).
  explicit Windows(const Problem& problem);

  const std::vector<int32_t>& by_beginning() const { return by_lower_; }

  // Buffers whose lifetimes share time with [lower, upper), earliest beginning first. Gaps count
  // as live.
  std::vector<int32_t> Touching(int64_t lower, int64_t upper) const;

  // At least `count` buffers, if there are as many, whose lifetimes lie within one window of time
  // around that of `index`, itself among them, ascending by beginning. `shift` from -1 to 1 moves
  // the window to earlier or later times. At most `most` beginnings within the window are looked
  // at.
  std::vector<int32_t> Around(int32_t index, int64_t count, double shift, int64_t most) const;

 private:
  void Find(size_t node, size_t first, size_t width, int64_t lower, size_t end,
            std::vector<int32_t>& found) const;

  const Problem& problem_;
  std::vector<int32_t> by_lower_;
  std::vector<int64_t> place_;   // Of each buffer: its place in by_lower_.
  std::vector<int64_t> latest_;  // Of each node of the tree: the latest end of its buffers.
  size_t leaves_ = 1;
};

}  // namespace memc

#endif  // MEMC_WINDOWS_H_
