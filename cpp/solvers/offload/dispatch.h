// SPDX-License-Identifier: Apache-2.0
// When copies start and end, for given runs and absences: as early as there is room for values that
// come back, and as late as there is for those that leave.
#ifndef MEMC_DISPATCH_H_
#define MEMC_DISPATCH_H_

#include <cstdint>

#include "solvers/offload/schedule.h"
#include "solvers/recompute/recompute_state.h"

namespace memc {

// A schedule within `limit` bytes, which the state's peak keeps. Its items and peaks are left out
// unless `list`.
Schedule Dispatch(const OffloadProblem& problem, const RecomputeState& state, int64_t limit,
                  bool list);

}  // namespace memc

#endif  // MEMC_DISPATCH_H_
