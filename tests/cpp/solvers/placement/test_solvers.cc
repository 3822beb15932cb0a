// SPDX-License-Identifier: Apache-2.0
// Every solver of the table on random problems: its plans are valid by the quadratic definition, no
// better than the least peak, and exact ones reach it.
#include <string>

#include "check.h"
#include "solvers/placement/check.h"
#include "solvers/placement/lower_bound.h"
#include "solvers/placement/random_problems.h"
#include "solvers/placement/solvers.h"

namespace {

using memc::Outcome;
using memc::Problem;
using memc::Solution;

bool IsValid(const Problem& problem, const Solution& solution) {
  return memc::CheckByDefinition(problem, solution).violation == memc::Violation::kNone;
}

// Live bytes at the fullest step, step by step.
int64_t FullestStep(const Problem& problem) {
  int64_t most = 0;
  for (const memc::Buffer& at : problem.buffers) {
    int64_t live = 0;
    for (const memc::Buffer& b : problem.buffers) {
      if (b.lower <= at.lower && at.lower < b.upper)
        live += memc::RoundUp(b.size, problem.alignment);
    }
    most = std::max(most, live);
  }
  return most;
}

void CheckSolvers(const Problem& problem, int64_t least) {
  for (const memc::SolverEntry& entry : memc::SolverTable()) {
    const Outcome found = entry.solve(problem, {});
    CHECK(IsValid(problem, found.solution));
    CHECK(found.lower_bound <= least && least <= found.solution.peak);
    const std::string name = entry.name;
    if (name != "search" && name != "auto") continue;
    CHECK_EQ(found.solution.peak, least);
    CHECK_EQ(found.lower_bound, least);  // Proven.
  }
}

TEST(SmallProblemsByBruteForce) {
  for (uint32_t seed = 0; seed < 150; ++seed) {
    memc::tests::Random random(seed);
    const Problem problem = memc::tests::RandomProblem(random, random.Below(7), 7, 20);
    CHECK_EQ(memc::LowerBound(problem), FullestStep(problem));
    CheckSolvers(problem, memc::tests::LeastPeak(problem));
  }
}

TEST(FixedOffsetsByBruteForce) {
  for (uint32_t seed = 0; seed < 150; ++seed) {
    memc::tests::Random random(seed);
    Problem problem = memc::tests::RandomProblem(random, random.Within(1, 6), 7, 20);
    memc::tests::Fix(random, memc::Sequential(problem), problem);
    CheckSolvers(problem, memc::tests::LeastPeak(problem));
  }
}

TEST(LargerProblemsAreValid) {
  for (uint32_t seed = 0; seed < 10; ++seed) {
    memc::tests::Random random(seed);
    Problem problem = memc::tests::RandomProblem(random, 150, 60, 1000);
    if (random.Flip()) memc::tests::Fix(random, memc::BestFit(problem), problem);
    for (const memc::SolverEntry& entry : memc::SolverTable()) {
      const std::string name = entry.name;
      if (name == "search" || name == "auto") continue;
      const Outcome found = entry.solve(problem, {});
      CHECK(IsValid(problem, found.solution));
      CHECK(found.solution.peak >= found.lower_bound);
    }
  }
}

// A row of squares cut from one: the peak is known, and heuristics miss it.
TEST(TilingsAreFoundAgain) {
  for (uint32_t seed = 0; seed < 30; ++seed) {
    memc::tests::Random random(seed);
    Problem problem;
    struct Rectangle {
      int64_t lower, upper, bottom, top;
    };
    std::vector<Rectangle> tiles{{0, 24, 0, 96}};
    while (tiles.size() < 14) {  // Guillotine cuts of the largest tile.
      const auto largest =
          std::max_element(tiles.begin(), tiles.end(), [](const Rectangle& a, const Rectangle& b) {
            return (a.upper - a.lower) * (a.top - a.bottom) <
                   (b.upper - b.lower) * (b.top - b.bottom);
          });
      Rectangle& tile = *largest;
      Rectangle rest = tile;
      if (random.Flip() && tile.upper - tile.lower > 1) {
        tile.upper = rest.lower = random.Within(tile.lower + 1, tile.upper - 1);
      } else if (tile.top - tile.bottom > 1) {
        tile.top = rest.bottom = random.Within(tile.bottom + 1, tile.top - 1);
      } else {
        continue;
      }
      tiles.push_back(rest);
    }
    for (const Rectangle& t : tiles)
      problem.buffers.push_back({t.top - t.bottom, t.lower, t.upper, {}});
    const Outcome found = memc::Search(problem, {});
    CHECK_EQ(found.lower_bound, 96);
    CHECK_EQ(found.solution.peak, 96);
    CHECK(IsValid(problem, found.solution));
  }
}

TEST(ThreadsChangeNothing) {
  for (uint32_t seed = 0; seed < 5; ++seed) {
    memc::tests::Random random(seed);
    const Problem problem = memc::tests::RandomProblem(random, 60, 40, 100);
    const Outcome one = memc::Auto(problem, {-1, 1});
    const Outcome three = memc::Auto(problem, {-1, 3});
    CHECK(one.solution.offsets == three.solution.offsets);
  }
}

TEST(AnEmptyProblemNeedsNothing) { CheckSolvers({}, 0); }

TEST(MalformedProblemsAreRefused) {
  Problem problem;
  problem.buffers = {{8, 3, 3, {}}};
  for (const memc::SolverEntry& entry : memc::SolverTable()) {
    CHECK_THROWS(std::invalid_argument, entry.solve(problem, {}),
                 "buffer 0: lifetime [3, 3) is empty");
  }
  CHECK_THROWS(std::invalid_argument, memc::FindSolver("none"), "no solver \"none\"");
}

TEST(SumsBeyondInt64AreRefused) {
  Problem problem;
  problem.buffers.assign(3, {memc::kMaxSize, 0, 1, {}});
  for (const memc::SolverEntry& entry : memc::SolverTable()) {
    CHECK_THROWS(std::overflow_error, entry.solve(problem, {}), "2^63 - 1 bytes");
  }
}

}  // namespace
