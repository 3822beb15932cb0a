// SPDX-License-Identifier: Apache-2.0
#include "allocators/caching.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace memc {

namespace {

constexpr int64_t kMinBlock = 512;
constexpr int64_t kSmall = 1 << 20;  // the largest request of the small pool
constexpr int64_t kSmallSegment = 2 << 20;
constexpr int64_t kMinOwnSegment = 10 << 20;  // from here on, a request's segment is its own
constexpr int64_t kSegmentUnit = 2 << 20;
constexpr int64_t kMostBytes = int64_t{1} << 60;
constexpr int64_t kMostBlocks = (int64_t{1} << 31) - 1;

int64_t RoundUp(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

// To the next of `divisions` equal steps between powers of two.
int64_t RoundToDivision(int64_t bytes, int64_t divisions) {
  if ((bytes & (bytes - 1)) == 0) return bytes;
  const int64_t floor = int64_t{1} << FloorLog2(bytes);
  const int64_t step = floor >> FloorLog2(divisions);
  if (step == 0) return floor << 1;
  return RoundUp(bytes, step);
}

}  // namespace

CachingAllocator::CachingAllocator(Device device, const CachingOptions& options)
    : Allocator(std::move(device)), options_(options) {
  if (options.large_segment <= 0 || options.max_split <= 0 || options.max_non_split_rounding < 0 ||
      options.device_total <= 0 || options.device_total > kMostBytes) {
    throw std::invalid_argument("options of the caching allocator must be positive");
  }
  for (const int64_t divisions : options.divisions) {
    if (divisions < 0 || (divisions & (divisions - 1)) != 0) {
      throw std::invalid_argument("roundup divisions must be 0 or a power of two");
    }
  }
  if (options.memory_fraction >= 0) {
    allowed_ =
        static_cast<int64_t>(options.memory_fraction * static_cast<double>(options.device_total));
  }
}

int64_t CachingAllocator::RoundSize(int64_t bytes) const {
  if (bytes < kMinBlock) return kMinBlock;
  const int interval = FloorLog2(bytes) - FloorLog2(kSmall);
  const int64_t divisions =
      options_.divisions[std::clamp<int64_t>(interval, 0, CachingOptions::kIntervals - 1)];
  if (divisions > 1 && bytes > kMinBlock * divisions) return RoundToDivision(bytes, divisions);
  return RoundUp(bytes, kMinBlock);
}

bool CachingAllocator::Allocate(const Event& event) {
  if (event.bytes < 0 || event.bytes > kMostBytes) {
    throw std::invalid_argument("a request of " + std::to_string(event.bytes) +
                                " bytes is not within [0, 2^60]");
  }
  if (event.block < 0 || event.block > kMostBlocks) {
    throw std::invalid_argument("block " + std::to_string(event.block) +
                                " is not within [0, 2^31)");
  }
  if (static_cast<size_t>(event.block) >= block_of_.size()) {
    block_of_.resize(std::max<size_t>(event.block + 1, 2 * block_of_.size()), kNone);
  }
  if (block_of_[event.block] != kNone) {
    throw std::invalid_argument("block " + std::to_string(event.block) + " is live already");
  }
  if (event.bytes == 0) {
    block_of_[event.block] = kNone - 1;
    return true;
  }
  const bool apart = event.pool != 0;  // In a private pool: while others are kept from changing.
  if (!apart) PassEvents(options_.events_complete);
  Request request;
  request.size = RoundSize(event.bytes);
  const bool small = request.size <= kSmall;
  request.segment = small                           ? kSmallSegment
                    : request.size < kMinOwnSegment ? options_.large_segment
                                                    : RoundUp(request.size, kSegmentUnit);
  request.group = GroupOf(event.pool, small, event.stream);
  int32_t block = TakeFreeBlock(request);
  if (block == kNone) {
    if (options_.memory_fraction >= 0 && options_.garbage_collection_threshold > 0)
      CollectGarbage();
    block = NewSegment(request);
    if (block == kNone && ReleaseForRequest(request)) block = NewSegment(request);
    if (block == kNone && !apart) {
      ReleaseCached();
      ++stats.retries;
      block = NewSegment(request);
    }
    if (block == kNone) return false;
  }
  Hand(block, request, event);
  return true;
}

int32_t CachingAllocator::TakeFreeBlock(const Request& request) {
  Group& group = groups_[request.group];
  ++searches_[group.sizes];
  FreeBlocks::Place place = group.free.LowerBound({request.size, 0, 0});
  if (group.free.AtEnd(place)) return kNone;
  if (options_.expandable_segments) {
    // The size of a block is what it can grow to.
    const auto reach = [&](FreeBlocks::Place at) {
      const Block& block = blocks_[group.free.At(at).block];
      const bool grows = block.next != kNone && !blocks_[block.next].mapped;
      return block.size + (grows ? blocks_[block.next].size : 0);
    };
    FreeBlocks::Place next = group.free.Next(place);
    while (!group.free.AtEnd(next) && reach(next) < reach(place)) {
      place = next;
      next = group.free.Next(next);
    }
  }
  const FreeBlock found = group.free.At(place);
  if (request.size < options_.max_split) {
    if (found.size >= options_.max_split) return kNone;
  } else if (found.size - request.size >= options_.max_non_split_rounding) {
    return kNone;
  }
  group.free.Erase(place);
  return found.block;
}

int32_t CachingAllocator::NewSegment(const Request& request) {
  if (request.segment > allowed_ - stats.reserved.current) return kNone;
  if (options_.expandable_segments) return TakeExpandable(request);
  const int64_t address = TakeSegment(request.segment, groups_[request.group].stream);
  return address < 0 ? kNone : NewBlock(request.group, address, request.segment);
}

bool CachingAllocator::ShouldSplit(const Block& block, int64_t size) const {
  const int64_t rest = block.size - size;
  if (groups_[block.group].small || options_.expandable_segments) return rest >= kMinBlock;
  return size < options_.max_split && rest > kSmall;
}

// Gives the request the front of the block, or all of it.
void CachingAllocator::Hand(int32_t index, const Request& request, const Event& event) {
  const bool was_split = IsSplit(blocks_[index]);
  const bool counts =
      blocks_[index].segment == kNone;  // Pages of expandable segments can be given back.
  if (ShouldSplit(blocks_[index], request.size)) {
    const int32_t rest = index;
    index = NewBlock(request.group, blocks_[rest].address, request.size);
    blocks_[index].segment = blocks_[rest].segment;
    InsertBetween(index, blocks_[rest].previous, rest);
    blocks_[rest].address += request.size;
    blocks_[rest].size -= request.size;
    InsertFree(rest);
    if (counts) stats.inactive_split.Add(was_split ? -request.size : blocks_[rest].size);
  } else if (was_split && counts) {
    stats.inactive_split.Add(-blocks_[index].size);
  }
  Block& block = blocks_[index];
  block.allocated = true;
  block.requested = event.bytes;
  block_of_[event.block] = index;
  stats.allocated.Add(block.size);
  stats.active.Add(block.size);
  stats.requested.Add(event.bytes);
}

void CachingAllocator::EndUse(int32_t block) {
  blocks_[block].allocated = false;
  stats.allocated.Add(-blocks_[block].size);
}

// Makes a block free that nothing uses any more.
void CachingAllocator::Recycle(int32_t index) {
  stats.active.Add(-blocks_[index].size);
  stats.requested.Add(-blocks_[index].requested);
  int64_t change = -Merge(index, blocks_[index].previous);
  change -= Merge(index, blocks_[index].next);
  InsertFree(index);
  if (IsSplit(blocks_[index])) change += blocks_[index].size;
  if (blocks_[index].segment == kNone) stats.inactive_split.Add(change);
}

// Takes a free neighbour into the block; returns its bytes.
int64_t CachingAllocator::Merge(int32_t index, int32_t other) {
  if (other == kNone || !Free(blocks_[other]) || blocks_[other].mapped != blocks_[index].mapped) {
    return 0;
  }
  Block& block = blocks_[index];
  const Block& taken = blocks_[other];
  if (taken.mapped) {
    EraseFree(other);
  } else {
    groups_[taken.group].unmapped.erase({taken.address, other});
  }
  if (block.previous == other) {
    block.address = taken.address;
    block.previous = taken.previous;
    if (block.previous != kNone) blocks_[block.previous].next = index;
  } else {
    block.next = taken.next;
    if (block.next != kNone) blocks_[block.next].previous = index;
  }
  block.size += taken.size;
  unused_.push_back(other);
  return taken.size;
}

int32_t CachingAllocator::NewBlock(int32_t group, int64_t address, int64_t size) {
  int32_t index;
  if (unused_.empty()) {
    index = static_cast<int32_t>(blocks_.size());
    blocks_.emplace_back();
  } else {
    index = unused_.back();
    unused_.pop_back();
    blocks_[index] = Block();
  }
  blocks_[index].address = address;
  blocks_[index].size = size;
  blocks_[index].group = group;
  return index;
}

int32_t CachingAllocator::GroupOf(int64_t pool, bool small, int64_t stream) {
  const auto fits = [&](const Group& group) {
    return group.small == small && group.stream == stream && group.pool == pool;
  };
  if (last_group_ != kNone && fits(groups_[last_group_])) return last_group_;
  const auto found = std::find_if(groups_.begin(), groups_.end(), fits);
  last_group_ = static_cast<int32_t>(found - groups_.begin());
  if (found != groups_.end()) return last_group_;
  const auto sizes = size_classes_.emplace(std::pair(pool, small), searches_.size());
  if (sizes.second) searches_.push_back(0);
  Group group;
  group.pool = pool;
  group.stream = stream;
  group.small = small;
  group.sizes = sizes.first->second;
  groups_.push_back(std::move(group));
  return last_group_;
}

int32_t CachingAllocator::LiveBlock(int64_t id) const {
  const bool known = id >= 0 && static_cast<size_t>(id) < block_of_.size();
  if (!known || block_of_[id] == kNone) {
    throw std::invalid_argument("block " + std::to_string(id) + " is not live");
  }
  return block_of_[id];
}

int64_t CachingAllocator::AddressOf(int64_t block) const {
  const int32_t index = LiveBlock(block);
  return index < 0 ? -1 : blocks_[index].address;
}

void CachingAllocator::InsertFree(int32_t index) {
  Block& block = blocks_[index];
  Group& group = groups_[block.group];
  block.uses_of_pool = searches_[group.sizes];
  group.free.Insert({block.size, block.address, index});
}

void CachingAllocator::EraseFree(int32_t index) {
  const Block& block = blocks_[index];
  groups_[block.group].free.EraseBlock({block.size, block.address, index});
}

void CachingAllocator::InsertBetween(int32_t block, int32_t before, int32_t after) {
  blocks_[block].previous = before;
  blocks_[block].next = after;
  if (before != kNone) blocks_[before].next = block;
  if (after != kNone) blocks_[after].previous = block;
}

}  // namespace memc
