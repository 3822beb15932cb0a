// SPDX-License-Identifier: Apache-2.0
// The sweep against the quadratic definition, on plans that are right, and on plans that are
// spoiled.
#include "check.h"
#include "solvers/placement/check.h"
#include "solvers/placement/random_problems.h"
#include "solvers/placement/solvers.h"

namespace {

using memc::Check;
using memc::CheckByDefinition;
using memc::Problem;
using memc::Solution;
using memc::Violation;

void Spoil(memc::tests::Random& random, const Problem& problem, Solution& solution) {
  if (solution.offsets.empty()) return;
  int64_t& offset = solution.offsets[random.Below(static_cast<int64_t>(solution.offsets.size()))];
  switch (random.Below(5)) {
    case 0:
      offset = random.Below(40) * problem.alignment;
      break;
    case 1:
      offset = -problem.alignment;
      break;
    case 2:
      offset += 1;
      break;
    case 3:
      solution.peak += random.Within(-2, 2);
      return;
    default:
      solution.offsets.pop_back();
      return;
  }
  if (random.Flip() && solution.offsets.size() == problem.buffers.size()) {
    solution.peak = memc::Peak(problem, solution.offsets);
  }
}

TEST(AgreesWithTheDefinition) {
  int seen[8] = {};
  for (uint32_t seed = 0; seed < 4000; ++seed) {
    memc::tests::Random random(seed);
    Problem problem = memc::tests::RandomProblem(random, random.Below(12), 8, 20);
    Solution solution = memc::FirstFit(problem, memc::Order::kSize);
    if (random.Flip()) memc::tests::Fix(random, solution, problem);
    if (random.Below(4) == 0) problem.capacity = random.Below(60);
    if (random.Below(5) != 0) Spoil(random, problem, solution);
    const Violation expected = CheckByDefinition(problem, solution).violation;
    const memc::CheckResult found = Check(problem, solution);
    CHECK_EQ(static_cast<int64_t>(found.violation), static_cast<int64_t>(expected));
    ++seen[static_cast<int64_t>(expected)];
    if (found.violation != Violation::kOverlap) continue;
    CHECK(memc::tests::Meet(problem.buffers[found.first], problem.buffers[found.second]));
  }
  for (const int count : seen) CHECK(count > 10);  // The plans are spoiled in every way.
}

TEST(NeighboursDoNotOverlap) {
  Problem problem;
  problem.buffers = {{8, 0, 2, {}}, {8, 2, 4, {}}, {8, 0, 4, {}}};
  CHECK_EQ(static_cast<int>(Check(problem, {{0, 0, 8}, 16}).violation),
           static_cast<int>(Violation::kNone));
  const memc::CheckResult overlap = Check(problem, {{0, 0, 7}, 15});
  CHECK_EQ(static_cast<int>(overlap.violation), static_cast<int>(Violation::kOverlap));
  CHECK_EQ(overlap.second, 2);
}

}  // namespace
