// SPDX-License-Identifier: Apache-2.0
#include "allocators/coalescing.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace memc {

namespace {

constexpr int64_t kBfcUnit = 256;
constexpr int64_t kFirstRegion = 2 << 20;
constexpr int64_t kMostRest = 128 << 20;
constexpr int64_t kCupyUnit = 512;
constexpr int64_t kMostBytes = int64_t{1} << 60;
constexpr int64_t kMostBlocks = (int64_t{1} << 31) - 1;

}  // namespace

CoalescingAllocator::CoalescingAllocator(Device device, int64_t unit)
    : Allocator(std::move(device)), unit_(unit) {
  this->device().SetPage(unit);
}

bool CoalescingAllocator::Allocate(const Event& event) {
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
  const int64_t rounded = RoundUp(event.bytes), arena = ArenaOf(event.stream);
  int32_t index = Take(rounded, arena);
  if (index == kNone && Grow(rounded, arena)) index = Take(rounded, arena);
  if (index == kNone) return false;
  block_of_[event.block] = index;
  blocks_[index].requested = event.bytes;
  stats.allocated.Add(blocks_[index].size);
  stats.active.Add(blocks_[index].size);
  stats.requested.Add(event.bytes);
  return true;
}

void CoalescingAllocator::Free(int64_t id) {
  const int32_t index = LiveBlock(id);
  block_of_[id] = kNone;
  if (index < 0) return;
  Block& block = blocks_[index];
  stats.allocated.Add(-block.size);
  stats.active.Add(-block.size);
  stats.requested.Add(-block.requested);
  block.used = false;
  Merge(index, block.next);
  Merge(index, block.previous);
  InsertFree(index);
}

int32_t CoalescingAllocator::Take(int64_t rounded, int64_t arena) {
  FreeBlocks& free = free_[arena];
  const FreeBlocks::Place place =
      free.LowerBound({rounded, std::numeric_limits<int64_t>::min(), 0});
  if (free.AtEnd(place)) return kNone;
  const int32_t index = free.At(place).block;
  free.Erase(place);
  blocks_[index].used = true;
  if (ShouldSplit(blocks_[index].size, rounded)) {
    Block rest = blocks_[index];
    rest.used = false;
    rest.address += rounded;
    rest.size -= rounded;
    rest.previous = index;
    const int32_t added = NewBlock(rest);
    if (rest.next != kNone) blocks_[rest.next].previous = added;
    blocks_[index].next = added;
    blocks_[index].size = rounded;
    InsertFree(added);
  }
  return index;
}

void CoalescingAllocator::AddSegment(int64_t address, int64_t bytes, int64_t arena) {
  Block block;
  block.address = address;
  block.size = bytes;
  block.arena = arena;
  InsertFree(NewBlock(block));
}

int64_t CoalescingAllocator::FreeSegmentBytes() const {
  int64_t bytes = 0;
  for (const auto& [arena, free] : free_) {
    for (auto at = free.begin(); !free.AtEnd(at); at = free.Next(at)) {
      const Block& block = blocks_[free.At(at).block];
      if (block.previous == kNone && block.next == kNone) bytes += block.size;
    }
  }
  return bytes;
}

int64_t CoalescingAllocator::ReleaseFreeSegments() {
  int64_t bytes = 0;
  for (auto& [arena, free] : free_) {
    std::vector<FreeBlock> whole;
    for (auto at = free.begin(); !free.AtEnd(at); at = free.Next(at)) {
      const Block& block = blocks_[free.At(at).block];
      if (block.previous == kNone && block.next == kNone) whole.push_back(free.At(at));
    }
    for (const FreeBlock& entry : whole) {
      GiveBackSegment(blocks_[entry.block].address, entry.size, arena);
      bytes += entry.size;
      free.EraseBlock(entry);
      unused_.push_back(entry.block);
    }
  }
  return bytes;
}

int32_t CoalescingAllocator::NewBlock(const Block& block) {
  if (unused_.empty()) {
    blocks_.push_back(block);
    return static_cast<int32_t>(blocks_.size()) - 1;
  }
  const int32_t index = unused_.back();
  unused_.pop_back();
  blocks_[index] = block;
  return index;
}

void CoalescingAllocator::InsertFree(int32_t index) {
  Block& block = blocks_[index];
  block.key = KeyOf(block);
  free_[block.arena].Insert({block.size, block.key, index});
}

// Takes a free neighbour into the block.
void CoalescingAllocator::Merge(int32_t index, int32_t other) {
  if (other == kNone || blocks_[other].used) return;
  Block& block = blocks_[index];
  const Block& taken = blocks_[other];
  free_[taken.arena].EraseBlock({taken.size, taken.key, other});
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
}

int32_t CoalescingAllocator::LiveBlock(int64_t id) const {
  const bool known = id >= 0 && static_cast<size_t>(id) < block_of_.size();
  if (!known || block_of_[id] == kNone) {
    throw std::invalid_argument("block " + std::to_string(id) + " is not live");
  }
  return block_of_[id];
}

int64_t CoalescingAllocator::AddressOf(int64_t id) const {
  const int32_t index = LiveBlock(id);
  return index < 0 ? -1 : blocks_[index].address;
}

BfcAllocator::BfcAllocator(Device device, const BfcOptions& options)
    : CoalescingAllocator(std::move(device), kBfcUnit), options_(options) {
  if (options.limit <= 0 || options.limit > kMostBytes) {
    throw std::invalid_argument("the limit of a BFC allocator must be within [1, 2^60] bytes");
  }
  region_ = RoundUp(options.allow_growth ? std::min(options.limit, kFirstRegion) : options.limit);
}

bool BfcAllocator::ShouldSplit(int64_t size, int64_t rounded) const {
  const int64_t most = options_.fragmentation_fraction > 0
                           ? static_cast<int64_t>(options_.fragmentation_fraction *
                                                  static_cast<double>(options_.limit))
                           : kMostRest;
  return size >= 2 * rounded || size - rounded >= most;
}

bool BfcAllocator::Grow(int64_t rounded, int64_t) {
  if (Extend(rounded)) return true;
  if (!options_.garbage_collection) return false;
  const int64_t free = FreeSegmentBytes();
  if (free == 0 || rounded > options_.limit - stats.reserved.current + free) return false;
  ++stats.retries;
  ReleaseFreeSegments();
  return Extend(rounded);
}

bool BfcAllocator::Extend(int64_t rounded) {
  const int64_t available = (options_.limit - stats.reserved.current) / kBfcUnit * kBfcUnit;
  if (rounded > available) return false;
  const bool fits = rounded <= region_;
  while (rounded > region_) region_ *= 2;
  int64_t bytes = std::min(region_, available);
  int64_t address = TakeSegment(bytes, 0);
  while (address < 0) {
    bytes = RoundUp(static_cast<int64_t>(static_cast<double>(bytes) * 0.9));
    if (bytes < rounded || bytes <= kBfcUnit) return false;
    address = TakeSegment(bytes, 0);
  }
  if (fits && region_ < kMostBytes) region_ *= 2;
  AddSegment(address, bytes, 0);
  return true;
}

CupyAllocator::CupyAllocator(Device device, const CupyOptions& options)
    : CoalescingAllocator(std::move(device), kCupyUnit), options_(options) {
  if (options.limit <= 0) throw std::invalid_argument("the limit of CuPy's pool must be positive");
}

bool CupyAllocator::Grow(int64_t rounded, int64_t arena) {
  const auto take = [&] {
    if (rounded > options_.limit - stats.reserved.current) return int64_t{-1};
    return TakeSegment(rounded, arena);
  };
  int64_t address = take();
  if (address < 0) {
    ++stats.retries;
    ReleaseFreeSegments();
    address = take();
  }
  if (address < 0) return false;
  AddSegment(address, rounded, arena);
  return true;
}

}  // namespace memc
