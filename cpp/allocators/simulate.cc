// SPDX-License-Identifier: Apache-2.0
#include "allocators/simulate.h"

#include <stdexcept>
#include <string>

namespace memc {

Simulation Simulate(Allocator& allocator, const EventColumns& events,
                    const SimulationTrace& trace) {
  Simulation result;
  int64_t allocated = 0, reserved = 0, i = 0;
  try {
    for (; i < events.count; ++i) {
      const Event event{static_cast<EventKind>(events.kinds[i]), events.blocks[i], events.bytes[i],
                        events.streams[i], events.pools[i]};
      if (trace.segments) allocator.LogSegments(i);
      const bool done = allocator.Apply(event);
      const Statistics& stats = allocator.stats;
      if (stats.allocated.peak > allocated) {
        allocated = stats.allocated.peak;
        result.peak_allocated_at = i;
      }
      if (stats.reserved.peak > reserved) {
        reserved = stats.reserved.peak;
        result.peak_reserved_at = i;
      }
      if (trace.allocated != nullptr) trace.allocated[i] = stats.allocated.current;
      if (trace.reserved != nullptr) trace.reserved[i] = stats.reserved.current;
      if (trace.addresses != nullptr) {
        const bool request = done && event.kind == EventKind::kAllocate;
        trace.addresses[i] = request ? allocator.AddressOf(event.block) : -1;
      }
      if (!done) {
        result.failed = i;
        return result;
      }
    }
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument("event " + std::to_string(i) + ": " + error.what());
  }
  return result;
}

}  // namespace memc
