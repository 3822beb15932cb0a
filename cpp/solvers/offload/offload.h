// SPDX-License-Identifier: Apache-2.0
// Plans of recomputation and copies at falling limits.
#ifndef MEMC_OFFLOAD_H_
#define MEMC_OFFLOAD_H_

#include <cstdint>
#include <vector>

#include "solvers/offload/schedule.h"

namespace memc {

// As `RecomputeLadder`, whose plans are among them; of those with copies, each has a lower peak than
// all that are as quick.
std::vector<Schedule> OffloadLadder(const OffloadProblem& problem, int64_t lowest,
                                    int64_t bound = 0);

}  // namespace memc

#endif  // MEMC_OFFLOAD_H_
