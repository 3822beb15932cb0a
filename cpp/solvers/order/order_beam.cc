// SPDX-License-Identifier: Apache-2.0
// Beam search for an order whose peak is at most a given limit. A state is a set of ops that have
// run; it says all there is to know, so equal sets reached on different ways are one state, and of
// those with equally many ops the ones with the fewest bytes live go on.
//
// A ready op that leaves no more bytes live and stays below the limit while it runs is run at once,
// and nothing else is tried there. No order is lost by that: what such an op brings to life and
// does not free is no more than what it frees, later as well as now, so running it first, before
// all that an order within the limit runs from there, makes another such order.
//
// Hence a beam that has never dropped a state has tried all orders, and if it fails, its limit is
// proven to be too low.
#include <algorithm>
#include <limits>
#include <memory>
#include <random>
#include <tuple>
#include <utility>

#include "solvers/order/order_bound.h"
#include "solvers/order/order_heuristics.h"

namespace memc {

namespace {

class Bits {
 public:
  void Clear(int64_t count) { words_.assign((count + 63) / 64, 0); }
  bool Has(int32_t i) const { return words_[i >> 6] >> (i & 63) & 1; }
  void Put(int32_t i) { words_[i >> 6] |= uint64_t{1} << (i & 63); }
  int64_t words() const { return static_cast<int64_t>(words_.size()); }

 private:
  std::vector<uint64_t> words_;
};

struct State {
  Bits done;     // Ops that have run.
  Bits touched;  // Storages that have come to life.
  std::vector<int32_t> ready;
  int64_t live = 0;
  uint64_t hash = 0;   // Of the set of ops that have run.
  int32_t count = 0;   // Of them.
  int32_t trace = -1;  // The last of them, in the search's list of steps.
};

// A state, or what one more op makes of it.
struct Candidate {
  std::shared_ptr<const State> from;
  int32_t op;  // -1: none.
  int64_t live;
  uint64_t hash;
};

class Beam {
 public:
  Beam(const OrderGraph& graph, int64_t limit, int64_t width, WorkBudget* budget)
      : graph_(graph), limit_(limit), width_(width), budget_(budget), code_(graph.ops()) {
    std::mt19937_64 random(1);
    for (uint64_t& code : code_) code = random();
  }

  BeamOutcome Run() {
    const int64_t ops = graph_.ops();
    std::vector<std::vector<Candidate>> levels(ops + 1);  // By number of ops that have run.
    const std::shared_ptr<const State> start = Start();
    if (start->live > limit_) return {false, {}, start->live};
    levels[0].push_back({start, -1, start->live, 0});
    for (int64_t level = 0; level < ops; ++level) {
      Prune(levels[level]);
      for (const Candidate& candidate : levels[level]) {
        if (budget_->spent()) return {};
        auto state = std::make_shared<State>(*candidate.from);
        if (candidate.op >= 0) Step(*state, candidate.op);
        RunSafe(*state);
        if (state->count > level) {
          Add({state, -1, state->live, state->hash}, levels[state->count]);
        } else {
          Expand(state, levels[level + 1]);
        }
      }
      levels[level] = {};
    }
    if (levels[ops].empty()) return {false, {}, complete_ ? least_refused_ : 0};
    const Candidate& last = levels[ops].front();
    BeamOutcome outcome{true, {}, 0};
    if (last.op >= 0) outcome.order.push_back(last.op);
    for (int32_t at = last.from->trace; at >= 0; at = steps_[at].before) {
      outcome.order.push_back(steps_[at].op);
    }
    std::reverse(outcome.order.begin(), outcome.order.end());
    return outcome;
  }

 private:
  struct Effect {
    int64_t rise;  // Bytes that come to live while the op runs,
    int64_t net;   // and that are left of them after it, less what it frees.
  };

  struct Taken {
    int32_t before;  // The step before it; -1: none.
    int32_t op;
  };

  std::shared_ptr<const State> Start() const {
    auto state = std::make_shared<State>();
    state->done.Clear(graph_.ops());
    state->touched.Clear(static_cast<int64_t>(graph_.sizes.size()));
    for (int64_t op = 0; op < graph_.ops(); ++op) {
      if (graph_.after.begin(op) == graph_.after.end(op)) {
        state->ready.push_back(static_cast<int32_t>(op));
      }
    }
    for (size_t s = 0; s < graph_.sizes.size(); ++s) {
      if (!graph_.from_start[s] || graph_.users.begin(s) == graph_.users.end(s)) continue;
      state->touched.Put(static_cast<int32_t>(s));
      state->live += graph_.sizes[s];
    }
    return state;
  }

  Effect EffectOf(const State& state, int32_t op) {
    Effect effect{graph_.scratch[op], 0};
    int64_t work = 1;
    for (const int32_t* s = graph_.touches.begin(op); s != graph_.touches.end(op); ++s) {
      if (!state.touched.Has(*s)) {
        effect.rise += graph_.sizes[*s];
        effect.net += graph_.sizes[*s];
      }
      if (graph_.to_end[*s]) continue;
      // From the last: it is the least likely to have run.
      const int32_t* user = graph_.users.end(*s);
      while (user != graph_.users.begin(*s) && (user[-1] == op || state.done.Has(user[-1]))) --user;
      if (user == graph_.users.begin(*s)) effect.net -= graph_.sizes[*s];
      work += graph_.users.end(*s) - user + 1;
    }
    budget_->Spend(work);
    return effect;
  }

  // Whether the op can run now within the limit.
  bool Fits(const State& state, const Effect& effect) {
    const int64_t bytes = state.live + effect.rise;
    if (bytes <= limit_) return true;
    least_refused_ = std::min(least_refused_, bytes);
    return false;
  }

  void Step(State& state, int32_t op) {
    state.live += EffectOf(state, op).net;
    state.hash ^= code_[op];
    state.done.Put(op);
    for (const int32_t* s = graph_.touches.begin(op); s != graph_.touches.end(op); ++s) {
      state.touched.Put(*s);
    }
    state.ready.erase(std::find(state.ready.begin(), state.ready.end(), op));
    int64_t work = static_cast<int64_t>(state.ready.size()) + state.done.words() +
                   state.touched.words();  // Of copying the state.
    for (const int32_t* next = graph_.before.begin(op); next != graph_.before.end(op); ++next) {
      const int32_t* first = graph_.after.begin(*next);
      const int32_t* last = graph_.after.end(*next);
      while (last != first && state.done.Has(last[-1])) --last;
      if (last == first) state.ready.push_back(*next);
      work += graph_.after.end(*next) - last + 1;
    }
    ++state.count;
    steps_.push_back({state.trace, op});
    state.trace = static_cast<int32_t>(steps_.size()) - 1;
    budget_->Spend(work);
  }

  void RunSafe(State& state) {
    for (size_t i = 0; i < state.ready.size();) {
      const int32_t op = state.ready[i];
      const Effect effect = EffectOf(state, op);
      if (effect.net <= 0 && Fits(state, effect)) {
        Step(state, op);
        i = 0;
      } else {
        ++i;
      }
    }
  }

  void Expand(const std::shared_ptr<const State>& state, std::vector<Candidate>& next) {
    for (int32_t op : state->ready) {
      const Effect effect = EffectOf(*state, op);
      if (!Fits(*state, effect)) continue;
      Add({state, op, state->live + effect.net, state->hash ^ code_[op]}, next);
    }
  }

  void Add(Candidate candidate, std::vector<Candidate>& level) {
    level.push_back(std::move(candidate));
    if (static_cast<int64_t>(level.size()) >= 8 * width_ + 64) Prune(level);
  }

  void Prune(std::vector<Candidate>& level) {
    std::sort(level.begin(), level.end(), [](const Candidate& a, const Candidate& b) {
      return std::tie(a.live, a.hash) < std::tie(b.live, b.hash);
    });
    const auto same = [](const Candidate& a, const Candidate& b) { return a.hash == b.hash; };
    level.erase(std::unique(level.begin(), level.end(), same), level.end());
    budget_->Spend(static_cast<int64_t>(level.size()));
    if (static_cast<int64_t>(level.size()) <= width_) return;
    level.erase(level.begin() + width_, level.end());
    complete_ = false;
  }

  const OrderGraph& graph_;
  const int64_t limit_;
  const int64_t width_;
  WorkBudget* budget_;
  std::vector<uint64_t> code_;  // Of each op: the hash of a set is their exclusive or.
  std::vector<Taken> steps_;
  bool complete_ = true;                                         // No state was dropped.
  int64_t least_refused_ = std::numeric_limits<int64_t>::max();  // Bytes while an op would run.
};

constexpr int64_t kBeamWork = 1'000'000'000;  // About 10 s at most.

}  // namespace

BeamOutcome BeamOrder(const OrderGraph& graph, int64_t limit, int64_t width, WorkBudget* budget) {
  return Beam(graph, limit, width, budget).Run();
}

void ImproveByBeam(const OrderProblem& problem, const OrderGraph& graph, int64_t width,
                   int64_t target, WorkBudget* budget, OrderResult* result) {
  int64_t low = std::max(result->lower_bound, target);  // The lowest peak still hoped for.
  int64_t limit = low;
  while (low < result->peak && !budget->spent()) {
    BeamOutcome outcome = BeamOrder(graph, limit, width, budget);
    if (outcome.found) {
      Offer(problem, std::move(outcome.order), result);
    } else {
      const int64_t bound = std::min(outcome.lower_bound, result->peak);
      result->lower_bound = std::max(result->lower_bound, bound);
      low = std::max(limit + 1, result->lower_bound);
      if (bound == 0) {  // States were dropped: is there anything better within this width at all?
        if (limit == result->peak - 1) return;
        limit = result->peak - 1;
        continue;
      }
    }
    limit = low + (result->peak - 1 - low) / 2;
  }
}

OrderResult BeamSolver(const OrderProblem& problem, const OrderOptions& options) {
  OrderResult result = ListSolver(problem, options);
  if (!SumsFit(problem)) return result;
  WorkBudget budget(kBeamWork, options.time_limit, options.watch);
  ImproveByBeam(problem, MakeOrderGraph(problem, Direction::kForward), options.beam_width,
                options.target, &budget, &result);
  return result;
}

}  // namespace memc
