// SPDX-License-Identifier: Apache-2.0
// The search for recomputation on small problems, against all sequences up to a length.
#include <algorithm>
#include <limits>
#include <map>
#include <stdexcept>

#include "check.h"
#include "solvers/recompute/random_recompute.h"
#include "solvers/recompute/recompute.h"

namespace {

using memc::RecomputePlan;
using memc::RecomputeProblem;
using memc::tests::RandomRecompute;

// Whether the value, made at some step, is live at step `at` of the sequence; and whether it is
// read last there.
struct Life {
  bool live = false;
  bool ends = false;
};

Life LifeAt(const RecomputeProblem& p, const std::vector<int32_t>& sequence, int32_t value,
            size_t at) {
  size_t made = sequence.size();
  for (size_t i = 0; i <= at; ++i) {
    if (std::count(p.makes.begin(sequence[i]), p.makes.end(sequence[i]), value) != 0) made = i;
  }
  if (made == sequence.size()) return {};
  size_t last = made;
  for (size_t i = made + 1; i < sequence.size(); ++i) {
    const int32_t op = sequence[i];
    if (std::count(p.reads.begin(op), p.reads.end(op), value) != 0) last = i;
    if (std::count(p.makes.begin(op), p.makes.end(op), value) != 0) break;
  }
  return {at <= last, at == last};
}

// By definition: for each step, every value's live range is looked up anew.
int64_t PeakOf(const RecomputeProblem& p, const std::vector<int32_t>& sequence) {
  int64_t peak = 0;
  for (size_t at = 0; at < sequence.size(); ++at) {
    const int32_t op = sequence[at];
    int64_t bytes = p.scratch[op];
    for (size_t v = 0; v < p.sizes.size(); ++v) {
      if (LifeAt(p, sequence, static_cast<int32_t>(v), at).live) bytes += p.sizes[v];
    }
    for (const int32_t* v = p.over.begin(op); v != p.over.end(op); ++v) {
      if (!LifeAt(p, sequence, *v, at).ends) continue;
      bytes -= p.sizes[*v];
      break;
    }
    for (const int32_t* v = p.parts.begin(op); v != p.parts.end(op); ++v) {
      if (LifeAt(p, sequence, *v, at).ends) bytes -= p.sizes[*v];
    }
    peak = std::max(peak, bytes);
  }
  return peak;
}

// All sequences with at most `most` runs.
class AllSequences {
 public:
  AllSequences(const RecomputeProblem& problem, size_t most)
      : problem_(problem), most_(most), runs_(problem.ops(), 0) {
    Extend();
  }

  // The least added cost of those with a peak of at most `limit` bytes; -1 if there is none.
  int64_t LeastCost(int64_t limit) const {
    int64_t least = -1;
    for (const auto& [peak, cost] : costs_) {
      if (peak <= limit && (least < 0 || cost < least)) least = cost;
    }
    return least;
  }

  int64_t LeastPeak() const { return costs_.begin()->first; }

 private:
  void Extend() {
    const auto ops = static_cast<int32_t>(problem_.ops());
    const auto missing = static_cast<size_t>(std::count(runs_.begin(), runs_.end(), 0));
    if (missing == 0) {
      const auto [found, is_new] = costs_.try_emplace(PeakOf(problem_, sequence_), cost_);
      if (!is_new) found->second = std::min(found->second, cost_);
    }
    if (sequence_.size() + std::max<size_t>(missing, 1) > most_) return;
    const int32_t next =
        static_cast<int32_t>(std::find(runs_.begin(), runs_.end(), 0) - runs_.begin());
    for (int32_t op = 0; op < ops; ++op) {
      const bool again = runs_[op] > 0;
      if (again && (problem_.once[op] || sequence_.size() + missing + 1 > most_)) continue;
      if (!again && problem_.in_order && op != next) continue;
      bool ready = true;
      for (const int32_t* v = problem_.reads.begin(op); v != problem_.reads.end(op); ++v) {
        ready = ready && runs_[*v] > 0;
      }
      if (!ready) continue;
      const int64_t added = again ? problem_.costs[op] : 0;
      ++runs_[op];
      cost_ += added;
      sequence_.push_back(op);
      Extend();
      sequence_.pop_back();
      cost_ -= added;
      --runs_[op];
    }
  }

  const RecomputeProblem& problem_;
  size_t most_;
  std::vector<int> runs_;
  std::vector<int32_t> sequence_;
  int64_t cost_ = 0;
  std::map<int64_t, int64_t> costs_;  // The least of each peak.
};

TEST(SequencesAreMeasuredByDefinition) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    memc::tests::Random random(seed);
    RecomputeProblem problem = RandomRecompute(random, 7);
    problem.once.assign(7, 0);
    std::vector<int32_t> sequence;
    int64_t cost = 0;
    for (int32_t next = 0; next < 7 || random.Below(4) != 0;) {
      const bool again = next == 7 || (next > 0 && random.Below(3) == 0);
      const auto op = static_cast<int32_t>(again ? random.Below(next) : next++);
      if (again) cost += problem.costs[op];
      sequence.push_back(op);
    }
    const RecomputePlan plan = memc::MeasureSequence(problem, sequence);
    CHECK_EQ(plan.peak, PeakOf(problem, sequence));
    CHECK_EQ(plan.added_cost, cost);
    CHECK(plan.sequence == sequence);
  }
}

TEST(LaddersAgainstAllSequences) {
  int limits = 0;
  int best = 0;
  for (uint32_t seed = 0; seed < 15; ++seed) {
    memc::tests::Random random(seed);
    const RecomputeProblem problem = RandomRecompute(random, 5);
    memc::Validate(problem);
    const AllSequences all(problem, 7);
    const std::vector<RecomputePlan> ladder = memc::RecomputeLadder(problem, 0);
    CHECK(!ladder.empty() && ladder.front().added_cost == 0);
    int64_t least = std::numeric_limits<int64_t>::max();
    for (const RecomputePlan& plan : ladder) {
      CHECK_EQ(plan.peak, PeakOf(problem, plan.sequence));
      CHECK_EQ(plan.added_cost, memc::MeasureSequence(problem, plan.sequence).added_cost);
      // Longer sequences than all that were tried may be better; no other.
      if (plan.sequence.size() <= 7) CHECK(plan.added_cost >= all.LeastCost(plan.peak));
      least = std::min(least, plan.peak);
    }
    for (int64_t limit = ladder.front().peak; limit >= all.LeastPeak(); --limit) {
      int64_t cost = -1;
      for (const RecomputePlan& plan : ladder) {
        if (plan.peak <= limit && (cost < 0 || plan.added_cost < cost)) cost = plan.added_cost;
      }
      ++limits;
      if (cost >= 0 && cost <= all.LeastCost(limit)) ++best;
    }
  }
  CHECK(best >= limits - 3);  // The search is a heuristic; it misses three.
}

TEST(LimitsOnlyEndALadder) {
  for (uint32_t seed = 0; seed < 4; ++seed) {
    memc::tests::Random random(seed);
    const RecomputeProblem problem = RandomRecompute(random, 9);
    const std::vector<RecomputePlan> whole = memc::RecomputeLadder(problem, 0);
    const std::vector<RecomputePlan> part =
        memc::RecomputeLadder(problem, whole.front().peak * 9 / 10);
    CHECK(part.size() <= whole.size());
    for (size_t i = 0; i < part.size(); ++i) CHECK(part[i].sequence == whole[i].sequence);
    for (size_t i = 0; i < whole.size(); ++i) {
      CHECK_EQ(whole[i].peak, PeakOf(problem, whole[i].sequence));
      for (size_t j = 0; j < i; ++j) {
        CHECK(whole[i].peak < whole[j].peak || whole[i].added_cost < whole[j].added_cost);
      }
    }
  }
}

TEST(SequencesThatAreNoneAreRefused) {
  memc::tests::Random random(3);
  RecomputeProblem problem = RandomRecompute(random, 3);
  problem.once = {0, 0, 1};
  problem.in_order = true;
  problem.reads = {{0, 0, 1, 2}, {0, 1}};
  problem.over = problem.parts = {{0, 0, 0, 0}, {}};
  memc::Validate(problem);
  CHECK_EQ(memc::MeasureSequence(problem, {0, 1, 0, 2}).added_cost, problem.costs[0]);
  CHECK_THROWS(std::invalid_argument, memc::MeasureSequence(problem, {0, 1}), "op 2 does not run");
  CHECK_THROWS(std::invalid_argument, memc::MeasureSequence(problem, {1, 0, 2}),
               "op 1 runs out of order");
  CHECK_THROWS(std::invalid_argument, memc::MeasureSequence(problem, {0, 1, 2, 2}),
               "op 2 must not be recomputed");
  CHECK_THROWS(std::invalid_argument, memc::MeasureSequence(problem, {0, 1, 3}), "no op 3");
  problem.in_order = false;
  CHECK_THROWS(std::invalid_argument, memc::MeasureSequence(problem, {1, 0, 2}),
               "before value 0, which it reads");
  problem.sizes[0] = -1;
  CHECK_THROWS(std::invalid_argument, memc::Validate(problem), "size of 0: expected 0 to");
}

}  // namespace
