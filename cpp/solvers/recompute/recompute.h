// SPDX-License-Identifier: Apache-2.0
// Recomputation: which results are dropped and recomputed, so that the bytes live at one
// time keep a limit, at the least added cost.
//
// A sequence runs every op at least once, and no op before what it reads has been made. A value
// is made by each run of its op; a read sees the latest. The value is live from each run of its op
// to the last read before the next run, or for one step if nobody reads it. While an op runs,
// everything that it reads and makes and its scratch bytes are live, except that its first result
// takes over the bytes of the first value in `over` whose last read this is, and of every value in
// `parts` whose last read this is.
#ifndef MEMC_RECOMPUTE_H_
#define MEMC_RECOMPUTE_H_

#include <cstdint>
#include <vector>

#include "solvers/common/rows.h"
#include "solvers/common/watch.h"

namespace memc {

struct RecomputeProblem {
  std::vector<int64_t> sizes;    // Bytes of each value.
  std::vector<int64_t> costs;    // Of each op: what one more run costs, in any unit.
  std::vector<char> once;        // Of each op: whether it must not be recomputed.
  std::vector<int64_t> scratch;  // Of each op: bytes live during it only.
  Rows reads;                    // Of each op: values, without repeats.
  Rows makes;                    // Of each op: values. Each value is made by exactly one op.
  Rows over;                     // Of each op: values it reads, one of which its result may take.
  Rows parts;                    // Of each op: values it reads that may become parts of its result.
  Rows until;                    // Of each op: ops that run once, and after which it must not run.
  bool in_order = false;         // Whether ops must run the first time in the order of numbers.
  Watch watch{};                 // Of searches.

  int64_t ops() const { return reads.size(); }
};

struct RecomputePlan {
  std::vector<int32_t> sequence;  // Op numbers in execution order.
  int64_t peak = 0;               // Bytes.
  int64_t added_cost = 0;         // Of all runs but the first of each op.
};

// Throws std::invalid_argument naming the op or value if the problem is malformed.
void Validate(const RecomputeProblem& problem);

// Peak and added cost of a sequence, by definition. Throws std::invalid_argument if it is none of
// the problem's.
RecomputePlan MeasureSequence(const RecomputeProblem& problem, std::vector<int32_t> sequence);

// Plans at limits that fall by a fixed ratio from the peak without recomputation to about `lowest`
// bytes. Each has a lower peak or less added cost than each one before it. Ends early where no
// lower peak is found, or at `bound`, which no sequence is below. The first plan is the one in the
// order of numbers without recomputation.
//
// The plans do not depend on `lowest` but in their number. So whoever takes the cheapest plan that
// keeps a budget gets a peak that never rises as the budget falls.
std::vector<RecomputePlan> RecomputeLadder(const RecomputeProblem& problem, int64_t lowest,
                                           int64_t bound = 0);

}  // namespace memc

#endif  // MEMC_RECOMPUTE_H_
