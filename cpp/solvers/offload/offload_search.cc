// SPDX-License-Identifier: Apache-2.0
#include "solvers/offload/offload_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "solvers/offload/dispatch.h"

namespace memc {

namespace {

constexpr int kAttempts = 8;                 // Of which the best one reaches a limit.
constexpr int64_t kReliefs = 96;             // Remedies in one round at most.
constexpr int64_t kMoves = 8;                // Ops moved in one of them at most.
constexpr int64_t kAttemptWork = 1'000'000;  // Of one attempt, which may go round in circles.
constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
constexpr double kWarmth = 0.03;  // Of the added time: what a worse plan may take more.

}  // namespace

OffloadSearch::OffloadSearch(const OffloadProblem& problem, RecomputeState state, uint64_t seed,
                             bool recompute)
    : problem_(problem),
      recompute_(recompute),
      state_(std::move(state)),
      random_(seed, true),
      copies_(problem.ops.sizes, problem.movable, problem.lanes, problem.host_budget),
      relief_(problem.ops, &state_, &random_, &copies_) {}

Schedule OffloadSearch::Dispatch(bool list, int64_t most) const {
  return memc::Dispatch(problem_, state_, limit_, list, most, &positions_);
}

bool OffloadSearch::Lower(int64_t limit, int64_t work, int64_t rounds) {
  const int64_t before = std::exchange(limit_, limit);
  if (state_.peak() > limit && !Reach(work)) {
    limit_ = before;
    return false;
  }
  makespan_ = Dispatch(false, kAny).makespan;
  Prune();
  Refine(rounds);
  return true;
}

// Brings the peak to the limit in the quickest of some ways.
bool OffloadSearch::Reach(int64_t work) {
  relief_.ResetWork();
  std::optional<RecomputeRandom> chosen;  // What the best attempt began to draw from,
  int chosen_attempt = 0;                 // and which it is.
  int64_t least = kAny;
  const auto goes_on = [&](int attempt) {
    if (!recompute_) return attempt == 0;
    return (attempt < kAttempts || !chosen) && relief_.work() < work;
  };
  for (int attempt = 0; goes_on(attempt); ++attempt) {
    problem_.ops.watch.Check();
    const RecomputeRandom before = random_;
    if (Attempt(attempt, work)) {
      const int64_t makespan = Dispatch(false, least - 1).makespan;
      if (makespan < least) {
        least = makespan;
        chosen = before;
        chosen_attempt = attempt;
      }
    }
    state_.RollBack();
  }
  if (!chosen) return false;
  const RecomputeRandom after = std::exchange(random_, *chosen);
  const bool reached = Attempt(chosen_attempt, work);
  random_ = after;
  if (reached) {
    state_.Commit();
  } else {
    state_.RollBack();
  }
  return reached;
}

// One way to bring the peak to the limit: the first three by rank alone, with recomputations, with
// moves of ops too, and by copies alone.
bool OffloadSearch::Attempt(int attempt, int64_t work) {
  const bool vary = attempt >= 3;
  size_t how = recompute_ ? static_cast<size_t>(attempt) : 2;
  if (vary) {
    how = random_.Below(2);
    if (random_.Below(4) != 0) Ruin();
  }
  state_.Update();
  relief_.AllowRuns(how < 2);
  relief_.AllowMoves(how == 1 ? problem_.ops.ops() : 0);
  return relief_.Relieve(limit_, vary, kAny, 2 * problem_.ops.ops(), std::min(work, kAttemptWork));
}

// Keeps the change of the state if it holds the limit and takes at most so long.
bool OffloadSearch::Settle(int64_t most) {
  state_.Update();
  if (state_.peak() <= limit_) {
    const int64_t makespan = Dispatch(false, most).makespan;
    if (makespan <= most) {
      makespan_ = makespan;
      state_.Commit();
      return true;
    }
  }
  state_.RollBack();
  return false;
}

// Takes back what the limit does not need, the most expensive first.
void OffloadSearch::Prune() {
  std::vector<int32_t> runs = state_.repeats();
  std::stable_sort(runs.begin(), runs.end(), [&](int32_t a, int32_t b) {
    const int64_t cost_a = problem_.ops.costs[state_.op_of(a)];
    const int64_t cost_b = problem_.ops.costs[state_.op_of(b)];
    return cost_a != cost_b ? cost_a > cost_b : state_.tag_of(a) < state_.tag_of(b);
  });
  for (int32_t run : runs) {
    if (!state_.is_repeat(run)) continue;  // Gone with another.
    relief_.RemoveWithUnread(run);
    Settle(makespan_);
  }
  std::vector<RecomputeState::Fetched> fetches = state_.fetches();
  std::stable_sort(fetches.begin(), fetches.end(), [&](const auto& a, const auto& b) {
    return problem_.ops.sizes[a.value] < problem_.ops.sizes[b.value];
  });
  for (const RecomputeState::Fetched& fetch : fetches) {
    if (!state_.IsFetched(fetch.value, fetch.run)) continue;
    state_.Keep(fetch.value, fetch.run);
    Settle(makespan_);
  }
}

// Lowers the makespan within the limit, which the state keeps.
void OffloadSearch::Refine(int64_t rounds) {
  int64_t computing = 0;
  for (int64_t cost : problem_.ops.costs) computing += cost;
  for (int64_t round = 0; round < rounds && makespan_ > computing; ++round) {
    problem_.ops.watch.Check();
    const double left = 1.0 - static_cast<double>(round) / static_cast<double>(rounds);
    const double warmth = kWarmth * left * left * static_cast<double>(makespan_ - computing);
    const double drawn = -std::log(1.0 - random_.Uniform());
    const int64_t most = makespan_ + static_cast<int64_t>(warmth * drawn);
    Ruin();
    state_.Update();
    relief_.AllowRuns(recompute_);
    relief_.AllowMoves(recompute_ && random_.Below(2) == 0 ? kMoves : 0);
    if (relief_.Relieve(limit_, true, most - computing, kReliefs, kAny)) {
      Settle(most);
    } else {
      state_.RollBack();
    }
  }
  Prune();
}

// Takes some recomputations and absences back.
void OffloadSearch::Ruin() {
  const size_t kind = random_.Below(10);
  const size_t count = kind < 4 ? 1 : 2 + random_.Below(kind < 8 ? 7 : 3);
  int32_t tag = -1;
  for (size_t i = 0; i < count; ++i) {
    const size_t runs = state_.repeats().size(), all = runs + state_.fetches().size();
    if (all == 0) return;
    size_t chosen = random_.Below(all);
    if (kind < 8 && i > 0) {
      // The next one along the sequence.
      int32_t next = -1;
      for (size_t other = 0; other < all; ++other) {
        const int32_t at = state_.tag_of(other < runs ? state_.repeats()[other]
                                                      : state_.fetches()[other - runs].run);
        if (at > tag && (next < 0 || at < next)) {
          next = at;
          chosen = other;
        }
      }
      if (next < 0) return;
    }
    if (chosen < runs) {
      const int32_t run = state_.repeats()[chosen];
      tag = state_.tag_of(run);
      relief_.RemoveWithUnread(run);
    } else {
      const RecomputeState::Fetched fetch = state_.fetches()[chosen - runs];
      tag = state_.tag_of(fetch.run);
      state_.Keep(fetch.value, fetch.run);
    }
  }
}

}  // namespace memc
