// SPDX-License-Identifier: Apache-2.0
// When copies start and end, for given runs and absences: as early as there is room for values that
// come back, and as late as there is for those that leave.
#ifndef MEMC_DISPATCH_H_
#define MEMC_DISPATCH_H_

#include <cstdint>
#include <vector>

#include "solvers/offload/schedule.h"
#include "solvers/recompute/recompute_state.h"

namespace memc {

// Positions of runs by tags, which the next dispatch of the same state overwrites: there are far
// more tags than runs.
using Positions = std::vector<int32_t>;

// A schedule within `limit` bytes, which the state's peak keeps. Its items and peaks are left out
// unless `list`. Where it takes longer than `most`, its makespan is a lower bound above that, and
// the rest is left out; so it is where its copies do not keep the host budget, with a makespan
// above all others.
Schedule Dispatch(const OffloadProblem& problem, const RecomputeState& state, int64_t limit,
                  bool list, int64_t most, Positions* positions);

}  // namespace memc

#endif  // MEMC_DISPATCH_H_
