// SPDX-License-Identifier: Apache-2.0
// Time as the searches see it.
#ifndef MEMC_SECTIONS_H_
#define MEMC_SECTIONS_H_

#include <cstdint>
#include <vector>

#include "solvers/placement/problem.h"

namespace memc {

// The moments at which the set of live buffers is not part of that at another moment, in order. Any
// two buffers live together are so in one of them: the other moments add no constraint.
struct Sections {
  int32_t count = 0;
  // Of buffer i: the sections [begin[i], end[i]) in which it is live.
  std::vector<int32_t> begin, end;
  // Of section s: the buffers live[live_first[s] .. live_first[s + 1]), ascending.
  std::vector<int64_t> live_first;
  std::vector<int32_t> live;
  // Of buffer i: those live together with it, neighbours[neighbours_first[i] .. [i + 1]), by the
  // beginning of their lifetimes.
  std::vector<int64_t> neighbours_first;
  std::vector<int32_t> neighbours;
};

// O(n log n + pairs).
Sections MakeSections(const std::vector<Buffer>& buffers);

}  // namespace memc

#endif  // MEMC_SECTIONS_H_
