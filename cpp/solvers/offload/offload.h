// SPDX-License-Identifier: Apache-2.0
// Plans of recomputation and copies at falling limits.
#ifndef MEMC_OFFLOAD_H_
#define MEMC_OFFLOAD_H_

#include <cstdint>
#include <vector>

#include "solvers/offload/schedule.h"

namespace memc {

// The plans of `RecomputeLadder`, and then others with copies, beside each of which no other is as
// low and much quicker.
std::vector<Schedule> OffloadLadder(const OffloadProblem& problem, int64_t lowest,
                                    int64_t bound = 0);

}  // namespace memc

#endif  // MEMC_OFFLOAD_H_
