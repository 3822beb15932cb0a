// SPDX-License-Identifier: Apache-2.0
#include "solvers/recompute/recompute_search.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace memc {

namespace {

constexpr int64_t kReliefs = 96;             // Recomputations added in one round at most.
constexpr int64_t kMoves = 8;                // Ops moved in one of them at most.
constexpr int64_t kAttemptWork = 1'000'000;  // Of one attempt, which may go round in circles.
constexpr int64_t kAnyWork = std::numeric_limits<int64_t>::max();
constexpr double kWarmth = 0.01;  // Of the added cost: what a worse plan may cost more.

}  // namespace

RecomputeSearch::RecomputeSearch(const RecomputeProblem& problem, uint64_t seed,
                                 std::vector<int64_t> shades, int64_t rounds)
    : problem_(problem),
      rounds_(rounds),
      state_(problem, std::move(shades)),
      random_(seed),
      relief_(problem, &state_, &random_) {}

bool RecomputeSearch::Lower(int64_t limit, int64_t work) {
  if (state_.peak() <= limit) return true;
  if (!Reach(limit, work)) return false;
  Prune(limit);
  Refine(limit, rounds_);
  return true;
}

bool RecomputeSearch::Reach(int64_t limit, int64_t work) {
  constexpr int64_t kAnyCost = std::numeric_limits<int64_t>::max();
  relief_.ResetWork();
  const int plain = problem_.in_order ? 1 : 2;  // Attempts by rank alone: without and with moves.
  for (int attempt = 0; relief_.work() < work; ++attempt) {
    problem_.watch.Check();
    const bool vary = attempt >= plain;
    if (vary && !state_.repeats().empty() && random_.Below(4) != 0) Ruin();
    state_.Update();
    relief_.AllowMoves((vary ? random_.Below(2) == 0 : attempt == 1) ? problem_.ops() : 0);
    if (relief_.Relieve(limit, vary, kAnyCost, problem_.ops(), std::min(work, kAttemptWork))) {
      state_.Commit();
      return true;
    }
    state_.RollBack();
  }
  return false;
}

// Takes back every recomputation that the limit does not need, the most expensive first.
void RecomputeSearch::Prune(int64_t limit) {
  std::vector<int32_t> runs = state_.repeats();
  std::stable_sort(runs.begin(), runs.end(), [&](int32_t a, int32_t b) {
    const int64_t cost_a = problem_.costs[state_.op_of(a)];
    const int64_t cost_b = problem_.costs[state_.op_of(b)];
    return cost_a != cost_b ? cost_a > cost_b : state_.tag_of(a) < state_.tag_of(b);
  });
  for (int32_t run : runs) {
    if (!state_.is_repeat(run)) continue;  // Gone with another.
    relief_.RemoveWithUnread(run);
    state_.Update();
    if (state_.peak() > limit) {
      state_.RollBack();
    } else {
      state_.Commit();
    }
  }
}

// Lowers the cost within the limit, which the state keeps.
void RecomputeSearch::Refine(int64_t limit, int64_t rounds) {
  for (int64_t round = 0; round < rounds && state_.added_cost() > 0; ++round) {
    problem_.watch.Check();
    const double left = 1.0 - static_cast<double>(round) / static_cast<double>(rounds);
    const double warmth = kWarmth * left * left * static_cast<double>(state_.added_cost());
    const double drawn = -std::log(1.0 - random_.Uniform());
    const int64_t most = state_.added_cost() + static_cast<int64_t>(warmth * drawn);
    Ruin();
    state_.Update();
    relief_.AllowMoves(random_.Below(2) == 0 ? kMoves : 0);
    if (relief_.Relieve(limit, true, most, kReliefs, kAnyWork) && state_.added_cost() <= most) {
      state_.Commit();
    } else {
      state_.RollBack();
    }
  }
  Prune(limit);
}

// Takes some recomputations back.
void RecomputeSearch::Ruin() {
  const size_t kind = random_.Below(10);
  const size_t count = kind < 4 ? 1 : 2 + random_.Below(kind < 8 ? 7 : 3);
  int32_t run = state_.repeats()[random_.Below(state_.repeats().size())];
  for (size_t i = 0; i < count && !state_.repeats().empty(); ++i) {
    const int32_t tag = state_.tag_of(run);
    relief_.RemoveWithUnread(run);
    if (state_.repeats().empty()) break;
    if (kind < 8) {
      // The next one along the sequence.
      int32_t next = -1;
      for (int32_t other : state_.repeats()) {
        if (state_.tag_of(other) > tag &&
            (next < 0 || state_.tag_of(other) < state_.tag_of(next))) {
          next = other;
        }
      }
      if (next < 0) break;
      run = next;
    } else {
      run = state_.repeats()[random_.Below(state_.repeats().size())];
    }
  }
}

}  // namespace memc
