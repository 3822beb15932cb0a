// SPDX-License-Identifier: Apache-2.0
// What the caching allocator gives back to the device: when memory runs short, and when it is told
// to.
#include "allocators/caching.h"

namespace memc {

// Gives an unsplit free segment back.
void CachingAllocator::Release(int32_t index) {
  const Block& block = blocks_[index];
  EraseFree(index);
  GiveBackSegment(block.address, block.size, groups_[block.group].stream);
  unused_.push_back(index);
}

int64_t CachingAllocator::Age(const Block& block) const {
  return searches_[groups_[block.group].sizes] - block.uses_of_pool;
}

// Frees the unsplit segments of the large pool that were not taken for longest, once more is
// reserved than the threshold says.
void CachingAllocator::CollectGarbage() {
  const auto threshold =
      static_cast<int64_t>(options_.garbage_collection_threshold * static_cast<double>(allowed_));
  if (stats.reserved.current <= threshold) return;
  const int64_t target = stats.reserved.current - threshold;
  std::vector<int32_t> candidates;
  int64_t total_age = 0;
  for (Group& group : groups_) {
    if (group.small || group.pool != 0) continue;
    for (auto at = group.free.begin(); !group.free.AtEnd(at); at = group.free.Next(at)) {
      const int32_t index = group.free.At(at).block;
      if (IsSplit(blocks_[index])) continue;
      candidates.push_back(index);
      total_age += Age(blocks_[index]);
    }
  }
  int64_t freed = 0;
  for (bool any = true; any && freed < target && !candidates.empty();) {
    any = false;
    const double threshold_age =
        static_cast<double>(total_age) / static_cast<double>(candidates.size());
    std::vector<int32_t> kept;
    for (const int32_t index : candidates) {
      const Block& block = blocks_[index];
      if (block.segment != kNone || static_cast<double>(Age(block)) < threshold_age) {
        kept.push_back(index);
        continue;
      }
      any = true;
      freed += block.size;
      total_age -= Age(block);
      Release(index);
    }
    candidates.swap(kept);
  }
}

// Frees cached blocks too large to be split, just as many as the request needs. True if the request
// may be tried again.
bool CachingAllocator::ReleaseForRequest(const Request& request) {
  if (options_.max_split == kUnlimited) return false;
  FreeBlocks& free = groups_[request.group].free;
  const int64_t needed = std::max(request.size, options_.max_split);
  FreeBlocks::Place place = free.LowerBound({needed, 0, 0});
  if (!free.AtEnd(place) && blocks_[free.At(place).block].segment == kNone) {
    Release(free.At(place).block);
    return true;
  }
  // None is large enough: several, the largest first.
  int64_t released = 0;
  while (released < needed && !free.AtBegin(place)) {
    place = free.Previous(place);
    const FreeBlock found = free.At(place);
    if (found.size < options_.max_split) break;
    if (blocks_[found.block].segment != kNone) continue;
    released += found.size;
    Release(found.block);
    place = free.LowerBound(found);
  }
  return released >= needed;
}

void CachingAllocator::EmptyCache() { ReleaseCached(); }

void CachingAllocator::ReleaseCached() {
  PassEvents(true);
  for (Group& group : groups_) {
    if (group.pool == 0 || released_pools_.count(group.pool) != 0) ReleaseGroup(group);
  }
}

void CachingAllocator::ReleaseGroup(Group& group) {
  std::vector<int32_t> whole, expandable;
  for (auto at = group.free.begin(); !group.free.AtEnd(at); at = group.free.Next(at)) {
    const int32_t index = group.free.At(at).block;
    if (blocks_[index].segment != kNone) {
      expandable.push_back(index);
    } else if (!IsSplit(blocks_[index])) {
      whole.push_back(index);
    }
  }
  for (const int32_t index : whole) Release(index);
  for (const int32_t index : expandable) {
    Unmap(index);
    if (IsSplit(blocks_[index]) || blocks_[index].mapped) continue;
    group.unmapped.erase({blocks_[index].address, index});  // Nothing of the segment is left.
    unused_.push_back(index);
  }
}

void CachingAllocator::ReleasePool(int64_t pool) {
  if (pool <= 0) throw std::invalid_argument("a private pool has a number of 1 or more");
  released_pools_.insert(pool);
}

}  // namespace memc
