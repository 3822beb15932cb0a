// SPDX-License-Identifier: Apache-2.0
// The solvers, and the table by which callers name them. Without a time limit, a solver is a pure
// function of the problem: the same problem gives the same plan on every machine and with any
// number of threads.
#ifndef MEMC_SOLVERS_H_
#define MEMC_SOLVERS_H_

#include <string>
#include <vector>

#include "solvers/common/budget.h"
#include "solvers/placement/problem.h"

namespace memc {

enum class Order {
  kGiven,      // As the buffers come.
  kSize,       // Largest first.
  kLifetime,   // Longest lifetime first.
  kArea,       // Largest size x lifetime first.
  kArrival,    // Earliest beginning first.
  kDeparture,  // Latest end first.
};

// Every buffer its own bytes, one after another in the given order; no reuse.
Solution Sequential(const Problem& problem);

// Puts the buffers, in this order, each at the lowest offset free throughout its lifetime; those
// with fixed offsets first. O(n log n + p log p) with p = OverlapPairs; quadratic where p is beyond
// 2^25 and the pairs are not kept. By arrival or departure, be it by chance, and for a plain
// problem without fixed offsets: O(n log n).
Solution FirstFit(const Problem& problem, Order order);

// Up to this OverlapPairs, a first fit takes about 0.5 s at most (2^24 pairs: some 6,000 buffers
// all live together, or 100,000 with 300 at a time); a portfolio leaves it out above, but for
// arrival and departure: a million buffers in some 2 s.
constexpr int64_t kFirstFitPairs = int64_t{1} << 24;

// The best-fit heuristic of Sekiyama et al. 2018, section 3.2. With fixed offsets, gaps in
// lifetimes or alignments that differ, a first fit in the order of its offsets. O(n log n) on all
// shapes measured, whatever OverlapPairs is, but for that first fit: a million buffers in some 5 s.
Solution BestFit(const Problem& problem);

// Plans of these heuristics, best-fit first, until one has a peak of at most `target` bytes.
// Where there are more than kFirstFitPairs, only those in O(n log n).
std::vector<Solution> Heuristics(const Problem& problem, int64_t target, const Watch& watch = {});

struct Outcome {
  Solution solution;
  int64_t lower_bound = 0;  // Bytes: no plan has a lower peak. Equal to the peak: proven optimal.
};

// The heuristics' best plan, then a complete search for better ones until the least peak is proven
// (or a plan keeps the problem's capacity, or none can), the time limit is over or, without one, a
// fixed amount of work is done (some 10 s at most). Parts of more than 4,096 buffers are left as
// the heuristics place them.
Outcome Search(const Problem& problem, const SolverOptions& options);

// The same, and where the complete search gives up, plans are repaired near what is too high in
// them, whatever the number of buffers (some 5 s more), and first fit over orders is improved step
// by step.
Outcome Auto(const Problem& problem, const SolverOptions& options);

using Solver = Outcome (*)(const Problem&, const SolverOptions&);

struct SolverEntry {
  const char* name;  // Kebab-case.
  Solver solve;
};

// All solvers by name.
const std::vector<SolverEntry>& SolverTable();

// Throws std::invalid_argument listing the known names if there is none of this name.
Solver FindSolver(const std::string& name);

}  // namespace memc

#endif  // MEMC_SOLVERS_H_
