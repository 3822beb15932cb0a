// SPDX-License-Identifier: Apache-2.0
// Offload: values that are copied out of the arena between two uses, and back, while ops run.
//
// A schedule lists runs of ops and the starts and ends of copies. Ops run one after another; a copy
// begins after its start, when its lane has ended those that started before it, and what follows
// its `done` waits for its end. Starts and dones take ops some time, and so do copies beside them:
// what lanes have as `sync` and `drag`. A value's bytes are in the arena until its copy out is
// done, and from the start of its copy in on. It is copied out once; later absences find the copy
// there.
#ifndef MEMC_SCHEDULE_H_
#define MEMC_SCHEDULE_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "solvers/common/lanes.h"
#include "solvers/recompute/recompute.h"

namespace memc {

struct OffloadProblem {
  RecomputeProblem ops;       // Costs in picoseconds.
  std::vector<char> movable;  // Of each value: whether it may be copied.
  Lanes lanes;
  // Bytes of copies that searches may need at one time.
  int64_t host_budget = std::numeric_limits<int64_t>::max();
};

enum class Step : int32_t { kRun, kOutStart, kOutDone, kDrop, kInStart, kInDone };

struct Item {
  Step step = Step::kRun;
  int32_t number = 0;  // Of the op, or of the value that is copied. `kDrop`: it leaves the arena
                       // without a copy, since there is one.
};

struct Schedule {
  std::vector<Item> items;
  int64_t peak = 0;         // Bytes of the arena.
  int64_t copied_peak = 0;  // Bytes of copies that are needed at one time.
  int64_t makespan = 0;     // Picoseconds, copies included.
  int64_t computing = 0;    // Picoseconds of all runs.
  int64_t added_cost = 0;   // Of all runs but the first of each op.
  int64_t bytes_out = 0, bytes_in = 0;
};

// The figures of a schedule, by definition. Throws std::invalid_argument if it is none of the
// problem's.
Schedule MeasureSchedule(const OffloadProblem& problem, std::vector<Item> items);

}  // namespace memc

#endif  // MEMC_SCHEDULE_H_
