// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_LANE_NUMBERS_H_
#define MEMC_LANE_NUMBERS_H_

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "solvers/common/lanes.h"

namespace memc {

constexpr int64_t kLaneNumbers = 11;  // Five of each lane, and a host budget, negative for none.
constexpr int64_t kMostDrag = kFullSpeed / 4;
constexpr int64_t kLongest = int64_t{3600} * 1'000'000'000'000;  // Picoseconds.

// The lanes of copies out and of copies in: of each latency, picoseconds a MiB, shared speed, sync
// and drag. Throws std::invalid_argument for lanes that do not move or stop ops, and where a copy
// of one of the `sizes` would take too long.
inline Lanes MakeLanes(const std::vector<int64_t>& numbers, const std::vector<int64_t>& sizes) {
  const auto lane = [&](size_t at) {
    return Lane{numbers[at], numbers[at + 1], numbers[at + 2], numbers[at + 3], numbers[at + 4]};
  };
  const Lanes lanes{lane(0), lane(5)};
  for (const Lane& lane : {lanes.out, lanes.in}) {
    if (lane.latency < 0 || lane.per_mib < 0 || lane.shared < 1 || lane.shared > kFullSpeed) {
      throw std::invalid_argument("expected lanes of no negative duration that move");
    }
    if (lane.sync < 0 || lane.sync > kLongest || lane.drag < 0 || lane.drag > kMostDrag) {
      throw std::invalid_argument("expected ops that copies do not bring to a stand");
    }
    for (const int64_t size : sizes) {
      const auto scaled = static_cast<__int128>(size) * lane.per_mib;
      if (lane.latency > kLongest || scaled >> 20 > kLongest) {
        throw std::invalid_argument("expected copies of at most an hour each");
      }
    }
  }
  return lanes;
}

}  // namespace memc

#endif  // MEMC_LANE_NUMBERS_H_
