// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_CREDIT_H_
#define MEMC_CREDIT_H_

#include <cstdint>
#include <vector>

#include "solvers/offload/schedule.h"

namespace memc {

// What copies can take off at each op of the sequence that runs every op once: no more than leaves
// in the time before it and comes back in the time after it, nor than may be elsewhere meanwhile.
//
// A search for recomputation whose limit is raised by as much recomputes where copies cannot help.
struct Credit {
  std::vector<int64_t> shades;  // Of each op: the greatest credit of any, less its own. Bytes.
  int64_t most = 0;             // That greatest credit.
};

// The given part, 0 to 1, of what the lanes can do counts.
Credit CreditOf(const OffloadProblem& problem, double part);

}  // namespace memc

#endif  // MEMC_CREDIT_H_
