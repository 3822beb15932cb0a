// SPDX-License-Identifier: Apache-2.0
// Search for recomputation and copies together, by ruin and recreate under simulated annealing:
// `recompute_search.h` with one more remedy at the fullest moment, and the makespan as the cost.
#ifndef MEMC_OFFLOAD_SEARCH_H_
#define MEMC_OFFLOAD_SEARCH_H_

#include <cstdint>

#include "solvers/offload/dispatch.h"
#include "solvers/offload/schedule.h"
#include "solvers/recompute/copy_costs.h"
#include "solvers/recompute/recompute_random.h"
#include "solvers/recompute/recompute_relief.h"
#include "solvers/recompute/recompute_state.h"

namespace memc {

class OffloadSearch {
 public:
  // Begins with the runs of `state`. `recompute`: whether there may be more of them.
  OffloadSearch(const OffloadProblem& problem, RecomputeState state, uint64_t seed, bool recompute);
  OffloadSearch(const OffloadSearch&) = delete;
  OffloadSearch& operator=(const OffloadSearch&) = delete;

  // Brings the peak to the limit, where it is above it, and then lowers the makespan in `rounds`.
  // Leaves the state as it was if the limit is not reached in about `work` steps.
  bool Lower(int64_t limit, int64_t work, int64_t rounds);

  int64_t makespan() const { return makespan_; }
  // The plan at the limit reached last.
  Schedule Plan() const { return Dispatch(true, INT64_MAX); }

 private:
  Schedule Dispatch(bool list, int64_t most) const;
  bool Reach(int64_t work);
  bool Attempt(int attempt, int64_t work);
  void Prune();
  void Refine(int64_t rounds);
  void Ruin();
  bool Settle(int64_t most);

  const OffloadProblem& problem_;
  const bool recompute_;
  RecomputeState state_;
  RecomputeRandom random_;
  CopyCosts copies_;
  RecomputeRelief relief_;  // Refers to the three above.
  int64_t limit_ = 0;
  int64_t makespan_ = 0;
  mutable Positions positions_;
};

}  // namespace memc

#endif  // MEMC_OFFLOAD_SEARCH_H_
