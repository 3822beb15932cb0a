// SPDX-License-Identifier: Apache-2.0
// Search for recomputation by ruin and recreate (Schrimpf et al. 2000) under simulated annealing:
// some recomputations are taken back, and whatever is then over the limit is relieved at the
// fullest moment, again and again, by recomputing what frees the most bytes for its cost.
#ifndef MEMC_RECOMPUTE_SEARCH_H_
#define MEMC_RECOMPUTE_SEARCH_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "solvers/recompute/recompute.h"
#include "solvers/recompute/recompute_random.h"
#include "solvers/recompute/recompute_relief.h"
#include "solvers/recompute/recompute_state.h"

namespace memc {

class RecomputeSearch {
 public:
  // `shades`: as `RecomputeState` has them. `rounds`: of lowering the cost at each limit.
  RecomputeSearch(const RecomputeProblem& problem, uint64_t seed, std::vector<int64_t> shades = {},
                  int64_t rounds = 60);
  RecomputeSearch(const RecomputeSearch&) = delete;
  RecomputeSearch& operator=(const RecomputeSearch&) = delete;

  const RecomputeState& state() const { return state_; }
  int64_t added_cost() const { return state_.added_cost(); }
  RecomputePlan Plan() const { return {state_.Sequence(), state_.peak(), state_.added_cost()}; }

  // Lowers the peak to the limit, if it is above it, and then the cost. Leaves the state as it was
  // if the limit is not reached in about `work` steps.
  bool Lower(int64_t limit, int64_t work);

 private:
  bool Reach(int64_t limit, int64_t work);
  void Prune(int64_t limit);
  void Refine(int64_t limit, int64_t rounds);
  void Ruin();

  const RecomputeProblem& problem_;
  const int64_t rounds_;
  RecomputeState state_;
  RecomputeRandom random_;
  RecomputeRelief relief_;  // Refers to the two above.
};

}  // namespace memc

#endif  // MEMC_RECOMPUTE_SEARCH_H_
