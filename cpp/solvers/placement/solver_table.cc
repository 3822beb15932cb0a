// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>

#include "solvers/placement/lower_bound.h"
#include "solvers/placement/solvers.h"

namespace memc {

namespace {

// A heuristic's plan, with the largest live set as bound.
template <Solution (*kHeuristic)(const Problem&)>
Outcome Bounded(const Problem& problem, const SolverOptions&) {
  return {kHeuristic(problem), LowerBound(problem)};
}

template <Order kOrder>
Solution FirstFitBy(const Problem& problem) {
  return FirstFit(problem, kOrder);
}

}  // namespace

const std::vector<SolverEntry>& SolverTable() {
  static const std::vector<SolverEntry> table = {
      {"auto", Auto},
      {"best-fit", Bounded<BestFit>},
      {"first-fit", Bounded<FirstFitBy<Order::kSize>>},
      {"first-fit-area", Bounded<FirstFitBy<Order::kArea>>},
      {"first-fit-arrival", Bounded<FirstFitBy<Order::kArrival>>},
      {"first-fit-departure", Bounded<FirstFitBy<Order::kDeparture>>},
      {"first-fit-given", Bounded<FirstFitBy<Order::kGiven>>},
      {"first-fit-lifetime", Bounded<FirstFitBy<Order::kLifetime>>},
      {"search", Search},
      {"sequential", Bounded<Sequential>},
  };
  return table;
}

Solver FindSolver(const std::string& name) {
  std::string known;
  for (const SolverEntry& entry : SolverTable()) {
    if (name == entry.name) return entry.solve;
    known += known.empty() ? "" : ", ";
    known += entry.name;
  }
  throw std::invalid_argument("no solver \"" + name + "\"; there are: " + known);
}

}  // namespace memc
