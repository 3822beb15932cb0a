// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_ALLOCATORS_SIMULATE_H_
#define MEMC_ALLOCATORS_SIMULATE_H_

#include <cstdint>

#include "allocators/allocator.h"

namespace memc {

// Events as columns of equal length; see `Event`.
struct EventColumns {
  int64_t count = 0;
  const int64_t* kinds = nullptr;
  const int64_t* blocks = nullptr;
  const int64_t* bytes = nullptr;
  const int64_t* streams = nullptr;
  const int64_t* pools = nullptr;
};

// What to write down of every event; null for what nobody asks for.
struct SimulationTrace {
  int64_t* allocated = nullptr;  // bytes after it
  int64_t* reserved = nullptr;
  int64_t* addresses = nullptr;  // of the block that a request got; -1 for other events
  bool segments = false;         // whether the allocator logs changes of segments
};

struct Simulation {
  int64_t failed =
      -1;  // index of the request that runs out of memory, the last event that is applied
  int64_t peak_allocated_at = -1;  // index of the event with which the peak is reached first
  int64_t peak_reserved_at = -1;
};

// Throws std::invalid_argument naming the index of an event that cannot be.
Simulation Simulate(Allocator& allocator, const EventColumns& events, const SimulationTrace& trace);

}  // namespace memc

#endif  // MEMC_ALLOCATORS_SIMULATE_H_
