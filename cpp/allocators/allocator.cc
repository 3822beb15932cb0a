// SPDX-License-Identifier: Apache-2.0
#include "allocators/allocator.h"

namespace memc {

int64_t Device::NewAddress(int64_t bytes) {
  if (next_known_ < known_.size()) return known_[next_known_++];
  const int64_t room = Pages(bytes);
  if (room > (high_ - low_) / 2) throw std::overflow_error("segments exceed the address space");
  if (descending_) return high_ -= room;
  low_ += room;
  return low_ - room;
}

void Allocator::CountDevice() {
  stats.device.current = 0;
  stats.device.Add(device_.used());
}

int64_t Allocator::TakeSegment(int64_t bytes, int64_t stream) {
  if (!device_.Take(bytes)) return -1;
  const int64_t address = device_.NewAddress(bytes);
  stats.segments.Add(1);
  stats.reserved.Add(bytes);
  CountDevice();
  Log(kSegmentAllocated, address, bytes, stream);
  return address;
}

void Allocator::GiveBackSegment(int64_t address, int64_t bytes, int64_t stream) {
  device_.GiveBack(bytes);
  stats.segments.Add(-1);
  stats.reserved.Add(-bytes);
  CountDevice();
  Log(kSegmentFreed, address, bytes, stream);
}

bool Allocator::Apply(const Event& event) {
  switch (event.kind) {
    case EventKind::kAllocate:
      return Allocate(event);
    case EventKind::kFree:
      Free(event.block);
      return true;
    case EventKind::kRequestFree:
      RequestFree(event.block);
      return true;
    case EventKind::kCompleteFree:
      CompleteFree(event.block);
      return true;
    case EventKind::kRecordStream:
      RecordStream(event.block, event.stream);
      return true;
    case EventKind::kSynchronize:
      Synchronize(event.stream);
      return true;
    case EventKind::kEmptyCache:
      EmptyCache();
      return true;
    case EventKind::kReleasePool:
      ReleasePool(event.pool);
      return true;
  }
  throw std::invalid_argument("event kind " + std::to_string(static_cast<int64_t>(event.kind)) +
                              " is unknown");
}

}  // namespace memc
