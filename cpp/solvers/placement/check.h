// SPDX-License-Identifier: Apache-2.0
// Whether a plan is valid. Shares no code with the solvers, on purpose.
#ifndef MEMC_CHECK_H_
#define MEMC_CHECK_H_

#include "solvers/placement/problem.h"

namespace memc {

enum class Violation : int64_t {
  kNone = 0,
  kWrongCount = 1,    // Not one offset for each buffer.
  kNegative = 2,      // An offset below zero.
  kMisaligned = 3,    // An offset that is no multiple of the buffer's alignment.
  kMoved = 4,         // A buffer with a fixed offset lies elsewhere.
  kOverCapacity = 5,  // A buffer ends beyond the capacity (or beyond int64).
  kOverlap = 6,       // Two buffers share bytes while both are live.
  kWrongPeak = 7,     // The stated peak is not the greatest end.
};

struct CheckResult {
  Violation violation = Violation::kNone;
  int64_t first = -1;   // Index of the offending buffer, -1 if none.
  int64_t second = -1;  // Index of the buffer it overlaps with, -1 if none.
};

// Sweeps over time with the live buffers ordered by offset: O(n log n).
CheckResult Check(const Problem& problem, const Solution& solution);

// The definition, pair by pair: O(n^2). For tests.
CheckResult CheckByDefinition(const Problem& problem, const Solution& solution);

}  // namespace memc

#endif  // MEMC_CHECK_H_
