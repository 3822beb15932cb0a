// SPDX-License-Identifier: Apache-2.0
// Windows of time by definition; repairs of plans of problems that are long in time.
#include <set>
#include <string>

#include "check.h"
#include "solvers/placement/check.h"
#include "solvers/placement/lower_bound.h"
#include "solvers/placement/random_problems.h"
#include "solvers/placement/repair.h"
#include "solvers/placement/solvers.h"
#include "solvers/placement/windows.h"

namespace {

using memc::Outcome;
using memc::Problem;
using memc::Solution;
using memc::tests::Random;

bool IsValid(const Problem& problem, const Solution& solution) {
  return memc::Check(problem, solution).violation == memc::Violation::kNone;
}

// Buffer k lives from k to k + length.
Problem Chain(Random& random, int64_t buffers, int64_t length) {
  Problem problem;
  for (int64_t k = 0; k < buffers; ++k) {
    problem.buffers.push_back({random.Within(1, 1'000'000), k, k + length, {}});
  }
  return problem;
}

// Blocks of a branch of two to four steps beside what it is added to.
Problem Residual(Random& random, int64_t blocks) {
  Problem problem;
  for (int64_t k = 0, step = 0; k < blocks; ++k) {
    const int64_t steps = random.Within(2, 4);
    problem.buffers.push_back({random.Within(1, 1'000'000), step, step + steps + 1, {}});
    for (int64_t j = 1; j < steps; ++j) {
      problem.buffers.push_back({random.Within(1, 1'000'000), step + j, step + j + 2, {}});
    }
    step += steps;
  }
  return problem;
}

TEST(WindowsByDefinition) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    const Problem problem = memc::tests::RandomProblem(random, random.Below(40), 30, 20);
    const std::vector<memc::Buffer>& all = problem.buffers;
    const memc::Windows windows(problem);
    const int64_t lower = random.Below(30);
    const int64_t upper = random.Within(lower + 1, 31);
    std::set<int32_t> expected;
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i].lower < upper && lower < all[i].upper) expected.insert(static_cast<int32_t>(i));
    }
    const std::vector<int32_t> found = windows.Touching(lower, upper);
    CHECK(std::set<int32_t>(found.begin(), found.end()) == expected);
    CHECK_EQ(found.size(), expected.size());
    for (size_t i = 0; i < all.size(); ++i) {
      const auto index = static_cast<int32_t>(i);
      const int64_t count = random.Within(1, 12);
      const std::vector<int32_t> around = windows.Around(index, count, 0.25, 1000);
      CHECK(std::count(around.begin(), around.end(), index) == 1);
      CHECK(static_cast<int64_t>(around.size()) >=
            std::min(count, static_cast<int64_t>(all.size())));
    }
  }
}

// Even ones at the bottom and odd ones on top meet the bound, where heuristics are 30 % above it.
TEST(LongChainsMeetTheBound) {
  for (const int64_t length : {2, 3, 5}) {
    Random random(static_cast<uint32_t>(length));
    const Problem problem = Chain(random, 8000, length);
    const Outcome found = memc::Auto(problem, {});
    CHECK(IsValid(problem, found.solution));
    CHECK(memc::BestFit(problem).peak * 10 > found.lower_bound * 11);
    CHECK_EQ(found.solution.peak, found.lower_bound);
  }
}

TEST(LongResidualBlocksMeetTheBound) {
  Random random(1);
  const Problem problem = Residual(random, 3000);
  const Outcome found = memc::Auto(problem, {});
  CHECK(IsValid(problem, found.solution));
  CHECK(memc::BestFit(problem).peak > found.lower_bound);
  CHECK_EQ(found.solution.peak, found.lower_bound);
}

// Fixed offsets, gaps and alignments of single buffers are kept, and the peak never rises.
TEST(RepairsKeepWhatIsSaid) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    Problem problem = Chain(random, 300, random.Within(2, 6));
    problem.alignment = 8;
    if (random.Flip()) {
      for (size_t i = 0; i < problem.buffers.size(); ++i) {
        problem.alignments.push_back(random.Flip() ? 8 : 1 << 10);
      }
    }
    if (random.Flip()) {
      for (const memc::Buffer& b : problem.buffers) {
        const bool gap = b.upper - b.lower >= 3 && random.Flip();
        problem.lives.push_back({});
        if (gap) problem.lives.back() = {{b.lower, b.lower + 1}, {b.upper - 1, b.upper}};
      }
    }
    Solution start = memc::BestFit(problem);
    if (random.Flip()) {
      const Solution plan = start;
      for (size_t i = 0; i < problem.buffers.size(); ++i) {
        if (random.Below(20) == 0) problem.buffers[i].offset = plan.offsets[i];
      }
    }
    for (memc::Buffer& b : problem.buffers) b.size = memc::RoundUp(b.size, 8);
    const Solution repaired = memc::RepairPlan(problem, start, memc::LowerBound(problem),
                                               20'000'000, seed, memc::Budget({}));
    CHECK(IsValid(problem, repaired));
    CHECK(repaired.peak <= start.peak);
  }
}

TEST(RepairsDependOnNoThreads) {
  Random random(3);
  const Problem problem = Chain(random, 600, 8);
  const Solution start = memc::BestFit(problem);
  const int64_t bound = memc::LowerBound(problem);
  const Solution one =
      memc::RepairPlan(problem, start, bound, 50'000'000, 1, memc::Budget({-1, 1}));
  const Solution three =
      memc::RepairPlan(problem, start, bound, 50'000'000, 1, memc::Budget({-1, 3}));
  CHECK(one.offsets == three.offsets);
  CHECK(one.peak < start.peak);
}

}  // namespace
