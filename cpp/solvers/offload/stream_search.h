// SPDX-License-Identifier: Apache-2.0
// Which weights are streamed so that memory is kept, in the least time.
#ifndef MEMC_STREAM_SEARCH_H_
#define MEMC_STREAM_SEARCH_H_

#include <cstdint>
#include <vector>

#include "solvers/offload/stream_schedule.h"

namespace memc {

// Plans from the one without streams down to the fewest bytes that streams reach, of which no other
// is as low and as quick; lowest first. Each limit of some between the two has one, so that a
// budget takes the quickest that fits: its peak then never rises as the budget falls, nor does its
// time fall. Throws std::invalid_argument for a malformed problem.
std::vector<StreamPlan> StreamLadder(const StreamProblem& problem);

// Bytes that no plan is below.
int64_t LeastStreamed(const StreamProblem& problem);

}  // namespace memc

#endif  // MEMC_STREAM_SEARCH_H_
