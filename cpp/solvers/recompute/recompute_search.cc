// SPDX-License-Identifier: Apache-2.0
// Search for recomputation by ruin and recreate (Schrimpf et al. 2000) under simulated annealing:
// some recomputations are taken back, and whatever is then over the limit is relieved at the
// fullest moment, again and again, by recomputing what frees the most bytes for its cost.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <unordered_set>
#include <utility>
#include <vector>

#include "solvers/recompute/recompute.h"
#include "solvers/recompute/recompute_state.h"

namespace memc {

namespace {

constexpr int64_t kSteps = 100;     // A limit is below the one before it by this part.
constexpr size_t kChain = 128;      // Ops that one recomputation may run at most.
constexpr size_t kCandidates = 32;  // Values whose recomputation is compared.
constexpr int64_t kReliefs = 96;    // Recomputations added in one round at most.
constexpr int64_t kRungRounds = 60;
constexpr int64_t kMoves = 8;                // Ops moved in one of them at most.
constexpr int64_t kChangeWork = 30;          // Of one change of the sequence.
constexpr int64_t kReachWork = 3'000'000;    // Steps of trying to reach one limit,
constexpr int64_t kAttemptWork = 1'000'000;  // and of one attempt, which may go round in circles.
constexpr int64_t kSmall = 400;              // Ops of problems that are also searched from scratch:
constexpr int kRestarts = 4;                 // so often at each limit,
constexpr int64_t kRestartWork = 200'000;    // with so many steps to reach it.

class RecomputeSearch {
 public:
  RecomputeSearch(const RecomputeProblem& problem, uint64_t seed)
      : problem_(problem),
        state_(problem),
        random_(seed),
        mark_(problem.ops(), 0),
        moved_(problem.ops(), 0) {
    for (int32_t value = 0; value < static_cast<int32_t>(problem.sizes.size()); ++value) {
      if (problem.sizes[value] > 0) values_.push_back(value);
    }
  }

  int64_t added_cost() const { return state_.added_cost(); }
  RecomputePlan Plan() const { return {state_.Sequence(), state_.peak(), state_.added_cost()}; }

  // Lowers the peak to the limit, if it is above it, and then the cost. Leaves the state as it was
  // if the limit is not reached in about `work` steps.
  bool Lower(int64_t limit, int64_t work) {
    if (state_.peak() <= limit) return true;
    if (!Reach(limit, work)) return false;
    Prune(limit);
    Refine(limit, kRungRounds);
    return true;
  }

 private:
  static constexpr int64_t kAnyWork = std::numeric_limits<int64_t>::max();
  static constexpr double kWarmth = 0.01;  // Of the added cost: what a worse plan may cost more.

  struct Chain {
    std::vector<int32_t> ops;  // To run, in this order.
    int64_t cost = 0;
    int64_t held = 0;  // Bytes at the moment to relieve that operands kept for longer take.
  };

  struct Hoist {
    int32_t reader = -1;
    double gain = 0;  // Bytes.
  };

  struct Candidate {
    int32_t value, run;  // What is recomputed, and for whom.
    int64_t cost;        // Of that op: none if it runs there instead of earlier.
    double rank;
  };

  bool Reach(int64_t limit, int64_t work) {
    constexpr int64_t kAnyCost = std::numeric_limits<int64_t>::max();
    work_ = 0;
    const int plain = problem_.in_order ? 1 : 2;  // Attempts by rank alone: without and with moves.
    for (int attempt = 0; work_ < work; ++attempt) {
      const bool vary = attempt >= plain;
      if (vary && !state_.repeats().empty() && Below(4) != 0) Ruin();
      state_.Update();
      moves_ = (vary ? Below(2) == 0 : attempt == 1) ? problem_.ops() : 0;
      if (Relieve(limit, vary, kAnyCost, problem_.ops(), std::min(work, kAttemptWork))) {
        state_.Commit();
        return true;
      }
      state_.RollBack();
    }
    return false;
  }

  // Takes back every recomputation that the limit does not need, the most expensive first.
  void Prune(int64_t limit) {
    std::vector<int32_t> runs = state_.repeats();
    std::stable_sort(runs.begin(), runs.end(), [&](int32_t a, int32_t b) {
      const int64_t cost_a = problem_.costs[state_.op_of(a)];
      const int64_t cost_b = problem_.costs[state_.op_of(b)];
      return cost_a != cost_b ? cost_a > cost_b : state_.slot_of(a) < state_.slot_of(b);
    });
    for (int32_t run : runs) {
      if (!state_.is_repeat(run)) continue;  // Gone with another.
      RemoveWithUnread(run);
      state_.Update();
      if (state_.peak() > limit) {
        state_.RollBack();
      } else {
        state_.Commit();
      }
    }
  }

  // Lowers the cost within the limit, which the state keeps.
  void Refine(int64_t limit, int64_t rounds) {
    for (int64_t round = 0; round < rounds && state_.added_cost() > 0; ++round) {
      const double left = 1.0 - static_cast<double>(round) / static_cast<double>(rounds);
      const double warmth = kWarmth * left * left * static_cast<double>(state_.added_cost());
      const double drawn = -std::log(1.0 - Uniform());
      const int64_t most = state_.added_cost() + static_cast<int64_t>(warmth * drawn);
      Ruin();
      state_.Update();
      moves_ = Below(2) == 0 ? kMoves : 0;
      if (Relieve(limit, true, most, kReliefs, kAnyWork) && state_.added_cost() <= most) {
        state_.Commit();
      } else {
        state_.RollBack();
      }
    }
    Prune(limit);
  }

  int64_t Pair(int32_t op, int32_t reader) const { return op * problem_.ops() + reader; }
  double Uniform() { return static_cast<double>(random_() >> 11) * 0x1.0p-53; }
  double Factor() { return std::exp(Uniform() + Uniform() - 1.0); }
  size_t Below(size_t n) { return random_() % n; }

  // Removes a run, and the repeats of its operands' makers that nobody reads then.
  void RemoveWithUnread(int32_t run) {
    std::vector<int32_t> stack = {run};
    while (!stack.empty()) {
      const int32_t top = stack.back();
      stack.pop_back();
      const int32_t op = state_.op_of(top), slot = state_.slot_of(top);
      state_.Remove(top);
      for (const int32_t* v = problem_.reads.begin(op); v != problem_.reads.end(op); ++v) {
        const std::vector<int32_t>& made = state_.runs_of(state_.maker_of(*v));
        int32_t latest = -1;
        for (int32_t other : made) {
          if (state_.slot_of(other) < slot) latest = other;
        }
        const bool known = std::find(stack.begin(), stack.end(), latest) != stack.end();
        if (latest >= 0 && !known && state_.MayRemove(latest) && !state_.IsRead(latest)) {
          stack.push_back(latest);
        }
      }
    }
  }

  // Takes some recomputations back.
  void Ruin() {
    const size_t kind = Below(10);
    const size_t count = kind < 4 ? 1 : 2 + Below(kind < 8 ? 7 : 3);
    int32_t run = state_.repeats()[Below(state_.repeats().size())];
    for (size_t i = 0; i < count && !state_.repeats().empty(); ++i) {
      const int32_t slot = state_.slot_of(run);
      RemoveWithUnread(run);
      if (state_.repeats().empty()) break;
      if (kind < 8) {
        // The next one along the sequence.
        int32_t next = -1;
        for (int32_t other : state_.repeats()) {
          if (state_.slot_of(other) > slot &&
              (next < 0 || state_.slot_of(other) < state_.slot_of(next))) {
            next = other;
          }
        }
        if (next < 0) break;
        run = next;
      } else {
        run = state_.repeats()[Below(state_.repeats().size())];
      }
    }
  }

  // Moves ops and adds recomputations until the peak keeps the limit, or the cost is above `most`,
  // or `reliefs` of them or `work` steps are done. `vary`: ranks are varied at random.
  bool Relieve(int64_t limit, bool vary, int64_t most, int64_t reliefs, int64_t work) {
    if (problem_.in_order) moves_ = 0;
    ++round_;
    delayed_.clear();
    const int64_t before = work_;
    for (int64_t relief = 0; state_.peak() > limit; ++relief) {
      if (relief >= reliefs || work_ - before > work || state_.added_cost() > most) return false;
      if (!RelieveOnce(limit, vary)) return false;
    }
    return true;
  }

  // Does what frees the most bytes at the fullest moment for its cost: runs a reader of what is
  // live there earlier, or the maker of it once more, or later.
  bool RelieveOnce(int64_t limit, bool vary) {
    const int32_t moment = state_.tree().ArgMax();
    const Hoist hoist = FindCandidates(moment, vary);
    const Candidate* chosen = ChooseChain(moment, limit, vary, hoist.gain);
    if (chosen != nullptr) {
      if (chosen->cost == 0) --moves_;
      moved_[chain_.ops.back()] = round_;
      delayed_.insert(Pair(chain_.ops.back(), state_.op_of(chosen->run)));
      Repeat(chosen->run);
    } else if (hoist.reader >= 0) {
      --moves_;
      moved_[state_.op_of(hoist.reader)] = round_;
      state_.Insert(state_.op_of(hoist.reader), state_.run_at(moment));
      state_.Remove(hoist.reader);
      work_ += kChangeWork;
    } else {
      return false;
    }
    state_.Update();
    return true;
  }

  // Lists what is live across the moment and may be made later, the best first; returns the best
  // reader of it to run earlier.
  Hoist FindCandidates(int32_t moment, bool vary) {
    Hoist best;
    candidates_.clear();
    work_ += static_cast<int64_t>(values_.size());
    for (int32_t value : values_) {
      for (const RecomputeState::Stretch& stretch : state_.stretches_of(value)) {
        if (stretch.lower >= moment || stretch.upper < moment) continue;
        const int32_t run = state_.NextRead(value, moment);
        if (run < 0 || state_.slot_of(run) == moment) continue;
        double gain = moves_ > 0 ? HoistGain(run, moment) : 0.0;
        if (vary) gain *= Factor();
        if (gain > best.gain) best = {run, gain};
        const int32_t op = state_.maker_of(value), made = state_.run_at(stretch.lower);
        const bool moves =
            moves_ > 0 && moved_[op] < round_ && !state_.IsReadBefore(made, state_.slot_of(run));
        if (!state_.MayRun(op, run) || (problem_.once[op] && !moves)) continue;
        if (delayed_.count(Pair(op, state_.op_of(run))) != 0) continue;
        const int64_t cost = moves ? 0 : problem_.costs[op];
        double rank =
            static_cast<double>(problem_.sizes[value]) / (1.0 + static_cast<double>(cost));
        if (vary) rank *= Factor();
        candidates_.push_back({value, run, cost, rank});
      }
    }
    std::sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) {
      return a.rank != b.rank ? a.rank > b.rank : a.value < b.value;
    });
    return best;
  }

  // The candidate that frees the most bytes for the cost of its whole chain, which is then in
  // `chain_`; null if none has a better rank than `least`.
  const Candidate* ChooseChain(int32_t moment, int64_t limit, bool vary, double least) {
    const Candidate* chosen = nullptr;
    size_t useful = 0;
    for (size_t i = 0; i < candidates_.size() && useful < kCandidates; ++i) {
      const Candidate& candidate = candidates_[i];
      Chain chain;
      ++epoch_;
      const int32_t op = state_.maker_of(candidate.value);
      if (!Need(op, candidate.run, moment, limit, vary, &chain)) continue;
      const int64_t gain = problem_.sizes[candidate.value] - chain.held;
      if (gain <= 0) continue;
      ++useful;
      const int64_t cost = chain.cost - problem_.costs[op] + candidate.cost;
      double rank = static_cast<double>(gain) / (1.0 + static_cast<double>(cost));
      if (vary) rank *= Factor();
      if (rank > least) {
        least = rank;
        chosen = &candidate;
        chain_ = std::move(chain);
      }
    }
    return chosen;
  }

  // Bytes that are not live at the moment any more if `run` comes before it instead of after it.
  double HoistGain(int32_t run, int32_t moment) const {
    const int32_t op = state_.op_of(run), slot = state_.slot_of(run);
    if (moved_[op] == round_ || !state_.MayHoist(run, state_.run_at(moment))) return 0;
    int64_t gain = 0;
    for (const int32_t* v = problem_.makes.begin(op); v != problem_.makes.end(op); ++v) {
      gain -= problem_.sizes[*v];
    }
    for (const int32_t* v = problem_.reads.begin(op); v != problem_.reads.end(op); ++v) {
      if (problem_.sizes[*v] == 0) continue;
      const int32_t read = state_.NextRead(*v, moment);
      if (read < 0) return 0;  // Recomputed for this run.
      if (read == run && state_.NextRead(*v, slot + 1) < 0) gain += problem_.sizes[*v];
    }
    return static_cast<double>(gain);
  }

  // Runs the chain before `before`, and takes out the runs whose only readers read the new ones.
  void Repeat(int32_t before) {
    for (int32_t op : chain_.ops) state_.Insert(op, before);
    work_ += kChangeWork * static_cast<int64_t>(chain_.ops.size());
    for (int32_t op : chain_.ops) {
      for (size_t i = state_.runs_of(op).size(); i-- > 0;) {
        if (i >= state_.runs_of(op).size()) continue;
        const int32_t run = state_.runs_of(op)[i];
        if (state_.MayRemove(run) && !state_.IsRead(run)) RemoveWithUnread(run);
      }
    }
  }

  // Adds to the chain what must run before `run` so that `op` can: operands that are not live there
  // are kept for longer where that fits, else recomputed.
  bool Need(int32_t op, int32_t run, int32_t moment, int64_t limit, bool vary, Chain* chain) {
    if (mark_[op] == epoch_) return true;
    mark_[op] = epoch_;
    ++work_;
    if (chain->ops.size() >= kChain || !state_.MayRun(op, run)) return false;
    const int32_t slot = state_.slot_of(run);
    for (const int32_t* v = problem_.reads.begin(op); v != problem_.reads.end(op); ++v) {
      const int64_t size = problem_.sizes[*v];
      const int32_t maker = state_.maker_of(*v);
      if (size == 0) continue;  // Outside the arena, where it stays.
      if (mark_[maker] == epoch_ || state_.NextRead(*v, slot) >= 0) continue;
      const int32_t last = state_.LastUse(*v, slot);
      const bool held = last < moment;
      bool keep = !held && state_.tree().MaxIn(last + 1, slot) + size <= limit;
      if (vary && Below(8) == 0) keep = !keep && !held;
      if (!keep && state_.MayRepeat(maker, run)) {
        if (!Need(maker, run, moment, limit, vary, chain)) return false;
        continue;
      }
      if (held) chain->held += size;
    }
    chain->ops.push_back(op);
    chain->cost += problem_.costs[op];
    return true;
  }

  const RecomputeProblem& problem_;
  RecomputeState state_;
  std::mt19937_64 random_;
  std::vector<int32_t> values_;
  std::vector<int64_t> mark_;  // Of each op: the epoch in which it came into the chain.
  int64_t epoch_ = 0;
  std::vector<int64_t> moved_;  // Of each op: the round in which it was moved or repeated last.
  int64_t round_ = 0;
  int64_t moves_ = 0;  // How many ops may still be moved in this round.
  int64_t work_ = 0;   // Values and ops looked at.
  std::vector<Candidate> candidates_;
  Chain chain_;
  // Of this round: ops with a reader right before which they were made anew. Where a reader's many
  // operands are the peak, each of them would go behind the others again and again.
  std::unordered_set<int64_t> delayed_;
};

// Adds the plan unless one that is as low and as cheap is there.
void Add(RecomputePlan plan, std::vector<RecomputePlan>* plans) {
  const bool known = std::any_of(plans->begin(), plans->end(), [&](const RecomputePlan& other) {
    return other.peak <= plan.peak && other.added_cost <= plan.added_cost;
  });
  if (!known) plans->push_back(std::move(plan));
}

}  // namespace

std::vector<RecomputePlan> RecomputeLadder(const RecomputeProblem& problem, int64_t lowest,
                                           int64_t bound) {
  Validate(problem);
  std::vector<RecomputePlan> plans;
  if (problem.ops() == 0) return plans;
  uint64_t seed = 1;
  RecomputeSearch search(problem, seed);
  bool goes_on = true;
  // What is found on the way down from above may be far from the best further down. So small
  // problems, where that is cheap, have a second search: the best of those begun at some limit.
  std::unique_ptr<RecomputeSearch> second;
  const int restarts = problem.ops() <= kSmall ? kRestarts : 0;
  plans.push_back(search.Plan());
  int64_t limit = plans.front().peak, least = limit;
  while (least > lowest && limit > bound) {
    limit = std::max(bound, limit - std::max<int64_t>(1, limit / kSteps));
    if (limit <= 0) break;
    goes_on = goes_on && search.Lower(limit, kReachWork);
    if (second != nullptr && !second->Lower(limit, kRestartWork)) second.reset();
    for (int i = 0; i < restarts; ++i) {
      auto fresh = std::make_unique<RecomputeSearch>(problem, ++seed);
      if (!fresh->Lower(limit, kRestartWork)) continue;
      if (second == nullptr || fresh->added_cost() < second->added_cost()) {
        second = std::move(fresh);
      }
    }
    if (!goes_on && second == nullptr) break;
    if (goes_on) Add(search.Plan(), &plans);
    if (second != nullptr) Add(second->Plan(), &plans);
    for (const RecomputePlan& plan : plans) least = std::min(least, plan.peak);
  }
  return plans;
}

}  // namespace memc
