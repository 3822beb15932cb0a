// SPDX-License-Identifier: Apache-2.0
// Blocks that several streams use: given back on one, they are free once the others have passed an
// event.
#include <stdexcept>
#include <string>

#include "allocators/caching.h"

namespace memc {

void CachingAllocator::RequireHeld(int64_t id, int32_t block) const {
  if (blocks_[block].allocated) return;
  throw std::invalid_argument("block " + std::to_string(id) + " was given back before");
}

void CachingAllocator::RecordStream(int64_t id, int64_t stream) {
  const int32_t block = LiveBlock(id);
  if (block < 0) return;
  RequireHeld(id, block);
  if (groups_[blocks_[block].group].stream == stream) return;
  blocks_[block].used_elsewhere = true;
  streams_of_[block].insert(stream);
}

void CachingAllocator::Free(int64_t id) {
  const int32_t block = LiveBlock(id);
  if (block >= 0) RequireHeld(id, block);
  block_of_[id] = kNone;
  if (block < 0) return;
  EndUse(block);
  if (!blocks_[block].used_elsewhere) return Recycle(block);
  for (const int64_t stream : streams_of_[block]) {
    events_[stream].waiting.push_back(block);
    ++blocks_[block].waits_for;
  }
  streams_of_.erase(block);
  blocks_[block].used_elsewhere = false;
}

void CachingAllocator::RequestFree(int64_t id) {
  const int32_t block = LiveBlock(id);
  if (block < 0) return;
  RequireHeld(id, block);
  EndUse(block);
  if (blocks_[block].used_elsewhere) streams_of_.erase(block);
  blocks_[block].used_elsewhere = false;
  blocks_[block].waits_for = 1;  // The recording says when.
}

void CachingAllocator::CompleteFree(int64_t id) {
  const int32_t block = LiveBlock(id);
  if (block >= 0 && (blocks_[block].allocated || blocks_[block].waits_for != 1)) {
    throw std::invalid_argument("block " + std::to_string(id) + " was not given back");
  }
  block_of_[id] = kNone;
  if (block < 0) return;
  blocks_[block].waits_for = 0;
  Recycle(block);
}

void CachingAllocator::Synchronize(int64_t stream) {
  const auto found = events_.find(stream);
  if (found != events_.end()) found->second.complete = found->second.waiting.size();
}

// Frees the blocks whose streams have passed their events; with `all`, waits for all events.
void CachingAllocator::PassEvents(bool all) {
  if (events_.empty()) return;
  for (auto& [stream, events] : events_) {
    size_t passed = all ? events.waiting.size() : events.complete;
    events.complete = 0;
    for (; passed > 0; --passed) {
      const int32_t block = events.waiting.front();
      events.waiting.pop_front();
      if (--blocks_[block].waits_for == 0) Recycle(block);
    }
  }
}

}  // namespace memc
