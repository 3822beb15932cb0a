// SPDX-License-Identifier: Apache-2.0
#include "solvers/offload/credit.h"

#include <algorithm>
#include <numeric>

namespace memc {

namespace {

// Of each op: bytes of movable values that are live there and that it does not use.
std::vector<int64_t> MovableBytes(const OffloadProblem& problem) {
  const RecomputeProblem& ops = problem.ops;
  std::vector<int64_t> bytes(ops.ops() + 1, 0);
  std::vector<int64_t> used(ops.sizes.size(), -1);  // By which op each value was used last.
  for (int64_t op = 0; op < ops.ops(); ++op) {
    for (const int32_t* v = ops.reads.begin(op); v != ops.reads.end(op); ++v) {
      if (problem.movable[*v]) {
        bytes[used[*v] + 1] += ops.sizes[*v];
        bytes[op] -= ops.sizes[*v];
      }
      used[*v] = op;
    }
    for (const int32_t* v = ops.makes.begin(op); v != ops.makes.end(op); ++v) used[*v] = op;
  }
  std::partial_sum(bytes.begin(), bytes.end(), bytes.begin());
  bytes.pop_back();
  return bytes;
}

// Bytes that a lane moves in a picosecond, in copies of the values' sizes.
double Rate(const OffloadProblem& problem, const Lane& lane) {
  double bytes = 0, duration = 0;
  for (size_t value = 0; value < problem.movable.size(); ++value) {
    if (!problem.movable[value]) continue;
    bytes += static_cast<double>(problem.ops.sizes[value]);
    duration += static_cast<double>(lane.Duration(problem.ops.sizes[value]));
  }
  return duration > 0 ? bytes / duration : 0;
}

}  // namespace

Credit CreditOf(const OffloadProblem& problem, double part) {
  const std::vector<int64_t>& costs = problem.ops.costs;
  const double out = part * Rate(problem, problem.lanes.out);
  const double in = part * Rate(problem, problem.lanes.in);
  Credit credit;
  credit.shades = MovableBytes(problem);
  int64_t before = 0, after = std::accumulate(costs.begin(), costs.end(), int64_t{0});
  for (size_t op = 0; op < costs.size(); ++op) {
    after -= costs[op];
    const double moved =
        std::min(out * static_cast<double>(before), in * static_cast<double>(after));
    credit.shades[op] = std::min(credit.shades[op], static_cast<int64_t>(moved));
    credit.most = std::max(credit.most, credit.shades[op]);
    before += costs[op];
  }
  for (int64_t& shade : credit.shades) shade = credit.most - shade;
  return credit;
}

}  // namespace memc
