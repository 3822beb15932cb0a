// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_TESTS_RANDOM_RECOMPUTE_H_
#define MEMC_TESTS_RANDOM_RECOMPUTE_H_

#include <cstdint>
#include <vector>

#include "check.h"
#include "solvers/recompute/recompute.h"

namespace memc::tests {

inline void AddRow(Rows& rows, const std::vector<int32_t>& row) {
  rows.index.insert(rows.index.end(), row.begin(), row.end());
  rows.first.push_back(static_cast<int64_t>(rows.index.size()));
}

// Op i makes value i and reads some values before it; some results may take over what is read.
inline RecomputeProblem RandomRecompute(Random& random, int32_t ops) {
  RecomputeProblem problem;
  for (Rows* rows :
       {&problem.reads, &problem.makes, &problem.over, &problem.parts, &problem.until}) {
    rows->first = {0};
  }
  problem.in_order = random.Flip();
  for (int32_t op = 0; op < ops; ++op) {
    problem.sizes.push_back(random.Within(1, 9));
    problem.costs.push_back(random.Within(1, 5));
    problem.once.push_back(random.Below(5) == 0 ? 1 : 0);
    problem.scratch.push_back(random.Below(3) == 0 ? random.Below(5) : 0);
    std::vector<int32_t> reads;
    for (int32_t v = 0; v < op; ++v) {
      if (v + 1 == op ? random.Below(5) != 0 : random.Below(3) == 0) reads.push_back(v);
    }
    const bool takes = !reads.empty() && random.Below(3) == 0;
    AddRow(problem.reads, reads);
    AddRow(problem.makes, {op});
    AddRow(problem.over, takes ? std::vector<int32_t>{reads.front()} : std::vector<int32_t>{});
    AddRow(problem.parts,
           takes && reads.size() > 1 ? std::vector<int32_t>{reads.back()} : std::vector<int32_t>{});
    AddRow(problem.until, {});
  }
  return problem;
}

}  // namespace memc::tests

#endif  // MEMC_TESTS_RANDOM_RECOMPUTE_H_
