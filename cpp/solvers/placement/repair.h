// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_REPAIR_H_
#define MEMC_REPAIR_H_

#include <cstdint>

#include "solvers/common/budget.h"
#include "solvers/placement/problem.h"

namespace memc {

// A plan with a lower peak than the valid plan `start`, if one is found; otherwise `start`. Buffers
// that end above a limit, the `target` at first, are taken out of the plan, and room is made for
// each by placing anew what is live near it in time, all else staying where it is. For problems
// that are long in time, of any number of buffers. Stops at a peak of `target` bytes, when `work`
// (about 10^8 in 0.3 s) or the time is over. Another `seed` takes other windows. What is accepted:
// see CanonicalSearch.
Solution RepairPlan(const Problem& problem, const Solution& start, int64_t target, int64_t work,
                    uint64_t seed, const Budget& budget);

}  // namespace memc

#endif  // MEMC_REPAIR_H_
