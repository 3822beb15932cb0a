// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_RACE_H_
#define MEMC_RACE_H_

#include <cstdint>
#include <vector>

#include "solvers/common/budget.h"
#include "solvers/placement/canonical_search.h"

namespace memc {

struct RaceResult {
  CanonicalSearch::Status status = CanonicalSearch::Status::kRunning;  // Still, if it gave up.
  std::vector<int64_t> offsets;  // Bytes for each buffer, if found.
  int64_t work = 0;              // To be charged, whatever was saved by stopping early.
};

// A plan of at most `limit` bytes, or a proof that there is none, by complete searches that prefer
// different buffers, within about `work` in all. What is accepted: see CanonicalSearch.
RaceResult Race(const Problem& problem, int64_t limit, int64_t work, const Budget& budget);

}  // namespace memc

#endif  // MEMC_RACE_H_
