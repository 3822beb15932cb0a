// SPDX-License-Identifier: Apache-2.0
// Which buffers do not fit into a capacity: a set from which none can be left out.
#ifndef MEMC_CONFLICT_H_
#define MEMC_CONFLICT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "solvers/placement/solvers.h"

namespace memc {

// Searches of subsets, and the share of a full search's work that each may take at most: some 20 s
// for all of them.
constexpr int64_t kConflictSearches = 256;
constexpr double kConflictEffort = 1.0 / 64;
// Buffers of which subsets are searched at all.
constexpr size_t kMostConflicting = 20'000;

struct Conflict {
  std::vector<int32_t> buffers;   // Indices, ascending; empty if all buffers fit.
  std::optional<int64_t> moment;  // When all of them are live and exceed the capacity, if they do.
  bool proven = false;            // Whether it is proven that they do not fit.
  bool minimal = false;           // Whether they fit with any one of them left out.
};

// A set of buffers that do not fit into the problem's capacity. Where a live set exceeds it: as few
// buffers of the largest live set as exceed it, largest first. Otherwise what deletion leaves:
// groups of buffers, then single ones, are left out as long as no plan of the others is found.
// After kConflictSearches searches, or at the time limit, the set found so far is returned; that of
// all buffers if there are more than kMostConflicting.
Conflict FindConflict(const Problem& problem, const SolverOptions& options);

}  // namespace memc

#endif  // MEMC_CONFLICT_H_
