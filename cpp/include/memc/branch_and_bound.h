// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_BRANCH_AND_BOUND_H_
#define MEMC_BRANCH_AND_BOUND_H_

#include <optional>

#include "memc/problem.h"

namespace memc {

// A plan whose peak is at most `limit` bytes, by depth-first search; none if there is none or if it
// was not found within `work`, which bounds the time (about 10^9 per second). The problem must be
// valid and have no fixed offsets.
std::optional<Solution> BranchAndBound(const Problem& problem, int64_t limit, int64_t work);

}  // namespace memc

#endif  // MEMC_BRANCH_AND_BOUND_H_
