// SPDX-License-Identifier: Apache-2.0
// The step of the search for recomputation that lowers a sequence's peak: at the fullest moment, it
// does what frees the most bytes for its cost.
#ifndef MEMC_RECOMPUTE_RELIEF_H_
#define MEMC_RECOMPUTE_RELIEF_H_

#include <cstdint>
#include <unordered_set>
#include <vector>

#include "solvers/recompute/copy_costs.h"
#include "solvers/recompute/recompute.h"
#include "solvers/recompute/recompute_random.h"
#include "solvers/recompute/recompute_state.h"

namespace memc {

// Changes `state` and draws from `random`; neither is owned, nor is `copies`, by which values may
// be elsewhere for a while; null if none may.
class RecomputeRelief {
 public:
  RecomputeRelief(const RecomputeProblem& problem, RecomputeState* state, RecomputeRandom* random,
                  const CopyCosts* copies = nullptr);

  // Moves ops and adds recomputations until the peak keeps the limit, or the cost is above `most`,
  // or `reliefs` of them or `work` steps are done. `vary`: ranks are varied at random.
  bool Relieve(int64_t limit, bool vary, int64_t most, int64_t reliefs, int64_t work);

  // Removes a run, and the repeats of its operands' makers that nobody reads then.
  void RemoveWithUnread(int32_t run);

  // Whether the next calls of Relieve may recompute and move ops.
  void AllowRuns(bool allowed) { runs_allowed_ = allowed; }

  // How many ops the next call of Relieve may move.
  void AllowMoves(int64_t moves) { moves_ = moves; }

  // Values and ops looked at since ResetWork.
  int64_t work() const { return work_; }
  void ResetWork() { work_ = 0; }

 private:
  struct Chain {
    std::vector<int32_t> ops;      // To run, in this order.
    std::vector<int32_t> fetched;  // Values that they read and that are elsewhere by then.
    int64_t cost = 0;
    int64_t held = 0;  // Bytes at the moment to relieve that operands kept for longer take.
  };

  struct Hoist {
    int32_t reader = -1;
    double gain = 0;  // Bytes.
  };

  struct Candidate {
    int32_t value, run;  // What is recomputed or fetched, and for whom.
    int64_t cost;  // Of that op: none if it runs there instead of earlier. Of a copy: its stall.
    double rank;
    bool copied;
  };
  struct IsWorse {
    bool operator()(const Candidate& a, const Candidate& b) const {
      return a.rank != b.rank ? a.rank < b.rank : a.value > b.value;
    }
  };

  int64_t Pair(int32_t op, int32_t reader) const { return op * problem_.ops() + reader; }
  bool RelieveOnce(int64_t limit, bool vary);
  void Remove(int32_t run);
  void AddCopy(int32_t value, const RecomputeState::Uses& uses, bool vary);
  Hoist FindCandidates(int32_t moment, bool vary);
  const Candidate* ChooseChain(int32_t moment, int64_t limit, bool vary, double least);
  double HoistGain(int32_t run, int32_t moment) const;
  void Repeat(int32_t before);
  bool MayFetch(int32_t value, int32_t run, int32_t moment, int32_t last, bool elsewhere,
                Chain* chain);
  void FetchFor(int32_t value, const std::vector<int32_t>& runs, int32_t before);
  bool Provide(int32_t value, int32_t run, int32_t moment, int64_t limit, bool vary, Chain* chain);
  bool Need(int32_t op, int32_t run, int32_t moment, int64_t limit, bool vary, Chain* chain);

  const RecomputeProblem& problem_;
  RecomputeState* state_;
  RecomputeRandom* random_;
  const CopyCosts* copies_;
  bool runs_allowed_ = true;
  std::vector<int32_t> values_;
  std::vector<int64_t> mark_;  // Of each op: the epoch in which it came into the chain.
  int64_t epoch_ = 0;
  std::vector<int64_t> moved_;  // Of each op: the round in which it was moved or repeated last.
  int64_t round_ = 0;
  int64_t moves_ = 0;         // How many ops may still be moved in this round.
  int64_t work_ = 0;          // Values and ops looked at.
  CopyCosts::Moment here_{};  // The moment to relieve.
  std::vector<Candidate> candidates_;
  Chain chain_;
  // Of this round: ops with a reader right before which they were recomputed. Where a reader's many
  // operands are the peak, each of them would go behind the others again and again.
  std::unordered_set<int64_t> delayed_;
};

}  // namespace memc

#endif  // MEMC_RECOMPUTE_RELIEF_H_
