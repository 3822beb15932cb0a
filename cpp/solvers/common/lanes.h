// SPDX-License-Identifier: Apache-2.0
// Copies between the arena and memory that lies elsewhere. Those of each direction run one after
// another, in a lane of their own beside the ops. Durations are picoseconds.
#ifndef MEMC_LANES_H_
#define MEMC_LANES_H_

#include <cstdint>

namespace memc {

// Parts of full speed, in which the progress of a copy is counted.
constexpr int64_t kFullSpeed = 1024;

struct Lane {
  int64_t latency = 0;    // Picoseconds that each copy takes beside those of its bytes.
  int64_t per_mib = 0;    // Picoseconds for 2^20 bytes while the other lane is idle.
  int64_t shared = 1024;  // Speed while the other lane is busy, of kFullSpeed.
  int64_t sync = 0;  // Picoseconds that a copy takes ops: half of them where it is started, and
                     // the rest where it is waited for.
  int64_t drag = 0;  // By how much ops are slower while the lane is busy, of kFullSpeed.

  int64_t fork() const { return sync / 2; }
  int64_t join() const { return sync - fork(); }

  // The duration of so many bytes in so many copies beside an idle lane, rounded up.
  int64_t Duration(int64_t bytes, int64_t copies = 1) const {
    const auto scaled = static_cast<__int128>(bytes) * per_mib;
    return copies * latency + static_cast<int64_t>((scaled + (1 << 20) - 1) >> 20);
  }
};

struct Lanes {
  Lane out;  // From the arena.
  Lane in;   // Into it.
};

}  // namespace memc

#endif  // MEMC_LANES_H_
