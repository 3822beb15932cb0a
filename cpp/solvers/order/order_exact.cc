// SPDX-License-Identifier: Apache-2.0
// Exact search over the closed sets of ops that can have run: the path from none to all of least
// peak, by growing a threshold (Dijkstra's algorithm with the maximum in place of the sum). Moves
// that need no more than the threshold are taken depth first; once none is left, the threshold
// rises to the least that any move needs, which is a bound on the optimum.
//
// Write live(D) for the bytes live after the ops in D, and at(D, w) for those live while w runs
// next. Both count storages touched on two sides of a cut, so they are submodular in D, and
// at(D, w) - live(D), the bytes that w brings to life, do not grow as D grows. Hence:
//
// Safe segments. Let X be ops that can run next in some sequence within the threshold, such that
// live(D + X) <= live(D + Y) for every closed Y within X, the empty one included. If any order
// within the threshold goes on from D, then one does that runs X first. For take that order, move
// X to its front, and let D + Z be a set it passes. live(D + Z + X) <= live(D + Z) + live(D + X) -
// live(D + Z.X) <= live(D + Z), and likewise for at(., w) of any w outside X, because
// at(D + X, w) <= at(D + Z.X, w). So no later moment needs more than before.
//
// Such segments are found in this form: a first op h1 and ops after it that depend on h1 and add
// no bytes; then h2, which depends on h1 and adds bytes, and ops after it that depend on h2 and
// add none; and so on, until no more bytes are live than at the start, for the first time. A
// closed Y that holds h1 to hj only lies within the part before h(j+1), and adding the rest of
// that part to it adds no bytes (an op's net effect does not grow with D); so it has no fewer
// bytes than the whole part, which has more than the start. A single op that adds none is the
// shortest case.
#include "solvers/order/order_exact.h"

#include <algorithm>
#include <queue>
#include <unordered_set>
#include <utility>

#include "solvers/order/order_bound.h"
#include "solvers/order/order_heuristics.h"
#include "solvers/order/order_moment.h"

namespace memc {

namespace {

constexpr int64_t kLongestSegment = 64;
constexpr int64_t kBoundWork = 100'000'000;    // About one second.
constexpr double kBoundShare = 0.25;           // Of the time, if that is limited.
constexpr int64_t kWork = 2'000'000'000;       // About ten seconds at most.
constexpr int64_t kFirstRound = 20'000'000;    // Work of one direction in the first round.
constexpr int64_t kStepsPerUnit = 3;           // Of work, where steps are fast.
constexpr int64_t kCachedOps = 4'096;          // Of a problem that a core's cache holds.
constexpr int64_t kUncachedCost = 8;           // Of a step where it does not hold much of it.
constexpr int64_t kMemory = int64_t{1} << 29;  // Bytes.

struct State {
  int32_t parent;            // -1: none.
  std::vector<int32_t> run;  // Ops run since the parent.
};

// A move not yet made: run the op after the state.
struct Move {
  int64_t need;  // Bytes.
  int64_t turn;  // Later moves of the same need come first.
  int32_t state;
  int32_t op;

  bool operator<(const Move& other) const {  // The greatest comes first in a priority queue.
    return need != other.need ? need > other.need : turn < other.turn;
  }
};

struct BitsHash {
  size_t operator()(const std::vector<uint64_t>& bits) const {
    uint64_t hash = 0x9e3779b97f4a7c15u;
    for (const uint64_t word : bits) {
      hash = (hash ^ word) * 0xff51afd7ed558ccdu;
      hash ^= hash >> 32;
    }
    return hash;
  }
};

class ExactSearch {
 public:
  ExactSearch(const OrderProblem& problem, Direction direction, int64_t work, int64_t memory,
              WorkBudget* budget, OrderResult* result)
      : problem_(problem),
        direction_(direction),
        graph_(MakeOrderGraph(problem, direction)),
        work_(work),
        memory_(memory),
        budget_(*budget),
        best_(*result),
        cost_(std::clamp<int64_t>(graph_.ops() / kCachedOps, 1, kUncachedCost)),
        threshold_(result->lower_bound),
        moment_(graph_),
        mark_(graph_.ops(), -1) {}

  // Whether the search has finished; if not, whether more work could help.
  enum class End { kFinished, kWork, kMemory };

  End Run() {
    Enter(-1);
    while (!moves_.empty() && !complete_) {
      const Move move = moves_.top();
      if (move.need > threshold_) {
        threshold_ = best_.lower_bound = move.need;
        best_.watch.Bound(move.need);
      }
      if (memory_ < 0) return End::kMemory;
      if (Spent()) return End::kWork;
      moves_.pop();
      if (move.state != current_) Return(move.state);
      moment_.Run(move.op);
      Enter(move.state);
    }
    if (!complete_) best_.lower_bound = best_.peak;  // Every better order has been ruled out.
    return End::kFinished;
  }

 private:
  // Charges for these steps and those of the moment.
  void Spend(int64_t steps) {
    steps_ += cost_ * (steps + moment_.TakeWork());
    work_ -= steps_ / kStepsPerUnit;
    budget_.Spend(steps_ / kStepsPerUnit);
    steps_ %= kStepsPerUnit;
  }

  bool Spent() const { return work_ < 0 || budget_.spent(); }

  // Makes a state of what the moment has become since `parent`, and lists its moves.
  void Enter(int32_t parent) {
    while (!Spent() && RunSafely()) {
    }
    current_ = -1;
    std::vector<uint64_t> bits = moment_.bits();
    Spend(4 * static_cast<int64_t>(bits.size()));  // Copied, hashed and compared.
    const int64_t bytes = static_cast<int64_t>(bits.size()) * 8 + 96;
    const auto id = static_cast<int32_t>(states_.size());
    if (!seen_.insert(std::move(bits)).second) return;
    memory_ -= bytes + static_cast<int64_t>(moment_.run().size()) * 4;
    states_.push_back({parent, moment_.run()});
    moment_.Forget();
    current_ = id;
    if (moment_.done()) return Finish(id);
    std::vector<std::pair<int64_t, int32_t>> ready;
    for (const int32_t op : moment_.ready()) ready.emplace_back(moment_.Net(op), op);
    std::sort(ready.rbegin(), ready.rend());  // The least net effect has its turn first.
    for (const auto& [net, op] : ready) {
      const int64_t need = std::max(threshold_, moment_.During(op));
      if (need < best_.peak) moves_.push({need, ++turns_, id, op});
      memory_ -= sizeof(Move);
    }
    Spend(static_cast<int64_t>(ready.size()) * 16);  // Sorted twice.
  }

  void Finish(int32_t id) {
    std::vector<int32_t> order = PathTo(id);
    if (direction_ == Direction::kBackward) std::reverse(order.begin(), order.end());
    Offer(problem_, std::move(order), &best_);
    best_.lower_bound = best_.peak;  // It is the threshold: all lower ones have been tried.
    complete_ = true;
  }

  void Return(int32_t state) {
    moment_.Load(PathTo(state));
    Spend(graph_.ops());
    current_ = state;
  }

  // The ops run up to the state, in order.
  std::vector<int32_t> PathTo(int32_t state) const {
    std::vector<int32_t> path;
    for (int32_t at = state; at >= 0; at = states_[at].parent) {
      path.insert(path.end(), states_[at].run.rbegin(), states_[at].run.rend());
    }
    std::reverse(path.begin(), path.end());
    return path;
  }

  // Runs a safe segment, if one is found before the budget is spent.
  bool RunSafely() {
    for (const int32_t op : moment_.ready()) {
      Spend(1);
      if (moment_.Net(op) <= 0 && moment_.During(op) <= threshold_) {
        moment_.Run(op);
        return true;
      }
    }
    const std::vector<int32_t> ready = moment_.ready();
    Spend(static_cast<int64_t>(ready.size()));
    for (const int32_t op : ready) {
      if (Spent()) return false;
      if (RunSegment(op)) return true;
    }
    return false;
  }

  bool RunSegment(int32_t first) {
    const int64_t start = moment_.live();
    int64_t length = 0;
    int32_t hill = first;
    std::vector<int32_t> open;  // Ready or nearly: they depend on the latest hill.
    while (hill >= 0 && length < kLongestSegment && moment_.During(hill) <= threshold_) {
      ++segment_;
      open.clear();
      for (int32_t op = hill; op >= 0; op = NextSafe(&open)) {
        moment_.Run(op);
        ++length;
        Spend(4);
        if (moment_.live() <= start) return true;
        for (const int32_t* i = graph_.before.begin(op); i != graph_.before.end(op); ++i) {
          if (mark_[*i] == segment_) continue;
          mark_[*i] = segment_;
          open.push_back(*i);
        }
      }
      hill = -1;
      int64_t least = 0;
      for (const int32_t op : open) {
        if (!moment_.Ready(op)) continue;
        const int64_t net = moment_.Net(op);
        if (hill < 0 || net < least) {
          hill = op;
          least = net;
        }
      }
    }
    for (; length > 0; --length) moment_.Undo();
    return false;
  }

  // One of the open ops that is ready, adds no bytes and fits; it is open no more. -1: none.
  int32_t NextSafe(std::vector<int32_t>* open) {
    for (size_t i = 0; i < open->size(); ++i) {
      const int32_t op = (*open)[i];
      Spend(1);
      if (!moment_.Ready(op) || moment_.Net(op) > 0 || moment_.During(op) > threshold_) continue;
      (*open)[i] = open->back();
      open->pop_back();
      return op;
    }
    return -1;
  }

  const OrderProblem& problem_;
  const Direction direction_;
  const OrderGraph graph_;
  int64_t work_;    // Steps left.
  int64_t memory_;  // Bytes left.
  WorkBudget& budget_;
  OrderResult& best_;
  const int64_t cost_;  // Of a step.
  int64_t steps_ = 0;   // Not charged yet.
  int64_t threshold_;   // Bytes; every order needs as much.
  OrderMoment moment_;
  int32_t current_ = -1;  // The state that the moment is at; -1: none.
  std::vector<State> states_;
  std::unordered_set<std::vector<uint64_t>, BitsHash> seen_;
  std::priority_queue<Move> moves_;
  int64_t turns_ = 0;
  std::vector<int64_t> mark_;  // Of each op: the last segment's part in which it was open.
  int64_t segment_ = 0;
  bool complete_ = false;
};

}  // namespace

void ImproveExactly(const OrderProblem& problem, int64_t memory, WorkBudget* budget,
                    OrderResult* result) {
  if (!SumsFit(problem)) return;
  // Which direction is the easy one differs from problem to problem by orders of magnitude, so
  // both are tried, each with ever more work.
  bool more = true;
  for (int64_t work = kFirstRound; more; work *= 8) {
    more = false;
    for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
      if (result->lower_bound >= result->peak || budget->spent()) return;
      ExactSearch search(problem, direction, work, memory, budget, result);
      const ExactSearch::End end = search.Run();
      if (end == ExactSearch::End::kFinished) return;
      more |= end == ExactSearch::End::kWork;
    }
  }
}

OrderResult ExactOrderSolver(const OrderProblem& problem, const OrderOptions& options) {
  WorkBudget budget(kWork, options.time_limit, options.watch);
  OrderResult result = ListSolver(problem, options);
  WorkBudget for_bound = budget.Stage(kBoundWork, kBoundShare);
  const int64_t bound = OrderLowerBound(problem, result.order, &for_bound);
  result.lower_bound = std::max(result.lower_bound, bound);
  if (result.peak > options.target) ImproveExactly(problem, kMemory, &budget, &result);
  return result;
}

}  // namespace memc
