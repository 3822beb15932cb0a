// SPDX-License-Identifier: Apache-2.0
// Time as the searches see it.
#ifndef MEMC_SECTIONS_H_
#define MEMC_SECTIONS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "solvers/placement/problem.h"

namespace memc {

// The moments at which the set of live buffers is not part of that at another moment, in order. Any
// two buffers live together are so in one of them: the other moments add no constraint.
struct Sections {
  int32_t count = 0;
  // Of buffer i: the sections [begin[i], end[i]) of its lifetime. It is live in all of them, unless
  // it has gaps.
  std::vector<int32_t> begin, end;
  // Of buffer i, if any buffer has gaps: runs[runs_first[i] .. runs_first[i + 1]), the runs of
  // sections [first, second) in which it is live. Otherwise empty.
  std::vector<int64_t> runs_first;
  std::vector<std::pair<int32_t, int32_t>> runs;

  // Calls each(s) for the sections in which buffer i is live.
  template <typename Fn>
  void ForEachOf(int32_t i, Fn each) const {
    if (runs_first.empty()) {
      for (int32_t s = begin[i]; s < end[i]; ++s) each(s);
      return;
    }
    for (int64_t k = runs_first[i]; k < runs_first[i + 1]; ++k) {
      for (int32_t s = runs[k].first; s < runs[k].second; ++s) each(s);
    }
  }

  // Of section s: the buffers live[live_first[s] .. live_first[s + 1]), ascending.
  std::vector<int64_t> live_first;
  std::vector<int32_t> live;
  // Of buffer i: those live together with it, neighbours[neighbours_first[i] .. [i + 1]), by the
  // beginning of their lifetimes.
  std::vector<int64_t> neighbours_first;
  std::vector<int32_t> neighbours;
};

// O(n log n + pairs).
Sections MakeSections(const Problem& problem);

}  // namespace memc

#endif  // MEMC_SECTIONS_H_
