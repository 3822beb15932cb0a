// SPDX-License-Identifier: Apache-2.0
// When a solver must stop.
#ifndef MEMC_BUDGET_H_
#define MEMC_BUDGET_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <thread>

#include "solvers/common/watch.h"

namespace memc {

struct SolverOptions {
  double time_limit = -1;  // Seconds of wall time; negative: bounded by work, hence deterministic.
  int64_t threads = 0;     // 0: as many as there are cores.
  double effort = 1;       // Share of the usual work that a search may do, with a time limit too.
  // Whether a search ends after its first round, with a small part of its work. More rounds lower
  // what that gives, or leave it.
  bool one_round = false;
  Watch watch{};
};

// The time limit as a moment, and the threads.
struct Budget {
  std::optional<std::chrono::steady_clock::time_point> deadline;
  int64_t threads = 1;
  Watch watch{};

  explicit Budget(const SolverOptions& options) : threads(options.threads), watch(options.watch) {
    using Clock = std::chrono::steady_clock;
    constexpr double kForever = 1e9;  // Seconds; keeps the sum below the clock's range.
    if (options.time_limit >= 0 && options.time_limit < kForever) {
      const std::chrono::duration<double> seconds(options.time_limit);
      deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(seconds);
    }
    if (threads <= 0) threads = std::thread::hardware_concurrency();
    if (threads <= 0) threads = 1;
  }

  // Looks at the clock if there is a time limit. Throws Cancelled if the search is to end.
  bool Over() const {
    watch.Check();
    return deadline && std::chrono::steady_clock::now() >= *deadline;
  }
};

}  // namespace memc

#endif  // MEMC_BUDGET_H_
