// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>

#include "memc/solvers.h"

namespace memc {

const std::vector<SolverEntry>& SolverTable() {
  static const std::vector<SolverEntry> table = {
      {"auto", Search},
      {"best-fit", BestFit},
      {"first-fit", [](const Problem& p) { return FirstFit(p, Order::kSize); }},
      {"first-fit-area", [](const Problem& p) { return FirstFit(p, Order::kArea); }},
      {"first-fit-given", [](const Problem& p) { return FirstFit(p, Order::kGiven); }},
      {"first-fit-lifetime", [](const Problem& p) { return FirstFit(p, Order::kLifetime); }},
      {"sequential", Sequential},
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
