// SPDX-License-Identifier: Apache-2.0
#include "solvers/recompute/recompute.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "solvers/common/bytes.h"

namespace memc {

namespace {

std::string OpName(int64_t op) { return "op " + std::to_string(op); }

bool Contains(const Rows& rows, int64_t row, int32_t entry) {
  return std::find(rows.begin(row), rows.end(row), entry) != rows.end(row);
}

void CheckAmounts(const std::vector<int64_t>& amounts, int64_t limit, const char* what) {
  for (size_t i = 0; i < amounts.size(); ++i) {
    if (amounts[i] < 0 || amounts[i] > limit) {
      throw std::invalid_argument(std::string(what) + " of " + std::to_string(i) +
                                  ": expected 0 to " + std::to_string(limit) + ", got " +
                                  std::to_string(amounts[i]));
    }
  }
}

// Where the values of a sequence end to be live.
using Ends = std::vector<std::vector<int32_t>>;  // Of each position: values whose last use it is.

// Checks a sequence, sums up its added cost, and finds the ends of its values' live ranges.
Ends WalkSequence(const RecomputeProblem& problem, const std::vector<int32_t>& sequence,
                  int64_t* added_cost) {
  const int64_t ops = problem.ops();
  const auto length = static_cast<int64_t>(sequence.size());
  std::vector<int64_t> runs(ops, 0);
  std::vector<int64_t> made(problem.sizes.size(), -1);  // Where each value was made last.
  std::vector<int64_t> used(problem.sizes.size(), -1);  // Where it was made or read last.
  Ends ends(length);
  int64_t first_runs = 0;
  for (int64_t at = 0; at < length; ++at) {
    const int32_t op = sequence[at];
    if (op < 0 || op >= ops) throw std::invalid_argument("no " + OpName(op));
    if (runs[op]++ == 0) {
      if (op != first_runs++ && problem.in_order) {
        throw std::invalid_argument(OpName(op) + " runs out of order");
      }
    } else {
      if (problem.once[op]) throw std::invalid_argument(OpName(op) + " must not be recomputed");
      *added_cost += problem.costs[op];
    }
    for (const int32_t* i = problem.until.begin(op); i != problem.until.end(op); ++i) {
      if (runs[*i] > 0) {
        throw std::invalid_argument(OpName(op) + " must not run after op " + std::to_string(*i));
      }
    }
    for (const int32_t* v = problem.reads.begin(op); v != problem.reads.end(op); ++v) {
      if (made[*v] < 0) {
        throw std::invalid_argument(OpName(op) + " runs before value " + std::to_string(*v) +
                                    ", which it reads, is made");
      }
      used[*v] = at;
    }
    for (const int32_t* v = problem.makes.begin(op); v != problem.makes.end(op); ++v) {
      if (made[*v] >= 0) ends[used[*v]].push_back(*v);
      made[*v] = used[*v] = at;
    }
  }
  const auto idle = std::find(runs.begin(), runs.end(), 0);
  if (idle != runs.end())
    throw std::invalid_argument(OpName(idle - runs.begin()) + " does not run");
  for (size_t v = 0; v < used.size(); ++v) ends[used[v]].push_back(static_cast<int32_t>(v));
  return ends;
}

// The most bytes that are live at one position.
int64_t PeakOf(const RecomputeProblem& problem, const std::vector<int32_t>& sequence,
               const Ends& ends) {
  int64_t peak = 0;
  int64_t live = 0;
  for (size_t at = 0; at < sequence.size(); ++at) {
    const int32_t op = sequence[at];
    for (const int32_t* v = problem.makes.begin(op); v != problem.makes.end(op); ++v) {
      live += problem.sizes[*v];
    }
    int64_t taken = 0;
    for (const int32_t* v = problem.over.begin(op); v != problem.over.end(op); ++v) {
      if (std::find(ends[at].begin(), ends[at].end(), *v) != ends[at].end()) {
        taken = problem.sizes[*v];
        break;
      }
    }
    for (int32_t v : ends[at]) {
      if (Contains(problem.parts, op, v)) taken += problem.sizes[v];
    }
    peak = std::max(peak, live - taken + problem.scratch[op]);
    for (int32_t v : ends[at]) live -= problem.sizes[v];
  }
  return peak;
}

}  // namespace

void Validate(const RecomputeProblem& problem) {
  constexpr int64_t kMaxOps = 1 << 24;  // Tags of the search must fit in int32.
  const auto ops = static_cast<int64_t>(problem.costs.size());
  const auto values = static_cast<int64_t>(problem.sizes.size());
  if (ops > kMaxOps) throw std::invalid_argument("more than 2^24 ops");
  if (static_cast<int64_t>(problem.once.size()) != ops ||
      static_cast<int64_t>(problem.scratch.size()) != ops) {
    throw std::invalid_argument("expected cost, `once` and scratch of each op");
  }
  // Sums of all of them must stay within int64.
  CheckAmounts(problem.sizes, kMaxSize / std::max<int64_t>(1, values + ops), "size");
  CheckAmounts(problem.scratch, kMaxSize / std::max<int64_t>(1, values + ops), "scratch");
  CheckAmounts(problem.costs, kMaxSize / std::max<int64_t>(1, 64 * ops), "cost");
  CheckRows(problem.reads, ops, values, "value read");
  CheckRows(problem.makes, ops, values, "value made");
  CheckRows(problem.over, ops, values, "value taken over");
  CheckRows(problem.parts, ops, values, "part");
  CheckRows(problem.until, ops, ops, "last op");
  std::vector<int64_t> maker(values, -1);
  for (int64_t op = 0; op < ops; ++op) {
    for (const int32_t* v = problem.reads.begin(op); v != problem.reads.end(op); ++v) {
      if (maker[*v] < 0) {
        throw std::invalid_argument(OpName(op) + " reads value " + std::to_string(*v) +
                                    ", which no op before it makes");
      }
    }
    for (const Rows* rows : {&problem.over, &problem.parts}) {
      for (const int32_t* v = rows->begin(op); v != rows->end(op); ++v) {
        if (!Contains(problem.reads, op, *v)) {
          throw std::invalid_argument(OpName(op) + " takes over value " + std::to_string(*v) +
                                      ", which it does not read");
        }
        if (rows == &problem.parts && Contains(problem.over, op, *v)) {
          throw std::invalid_argument(OpName(op) + ": value " + std::to_string(*v) +
                                      " is taken over in two ways");
        }
      }
    }
    for (const int32_t* v = problem.makes.begin(op); v != problem.makes.end(op); ++v) {
      if (maker[*v] >= 0) {
        throw std::invalid_argument("value " + std::to_string(*v) + " is made by two ops");
      }
      maker[*v] = op;
    }
    for (const int32_t* i = problem.until.begin(op); i != problem.until.end(op); ++i) {
      if (*i <= op || !problem.once[*i]) {
        throw std::invalid_argument(OpName(op) + ": its last op " + std::to_string(*i) +
                                    " must come later and run once");
      }
    }
  }
  if (std::find(maker.begin(), maker.end(), -1) != maker.end()) {
    throw std::invalid_argument("a value is made by no op");
  }
}

RecomputePlan MeasureSequence(const RecomputeProblem& problem, std::vector<int32_t> sequence) {
  RecomputePlan plan;
  const Ends ends = WalkSequence(problem, sequence, &plan.added_cost);
  plan.peak = PeakOf(problem, sequence, ends);
  plan.sequence = std::move(sequence);
  return plan;
}

}  // namespace memc
