// SPDX-License-Identifier: Apache-2.0
// Expandable segments: reserved addresses, of which pages are mapped as they are needed and
// unmapped when memory runs short.
#include "allocators/caching.h"

namespace memc {

namespace {

constexpr int64_t kSmallPage = 2 << 20;

}  // namespace

int64_t CachingAllocator::PageOf(const Group& group) const {
  return group.small ? kSmallPage : options_.large_segment;
}

// The first place, kNone if there is none, that can hold the request once its pages are mapped: a
// free block and unmapped ones side by side, the first of them perhaps mapped.
int32_t CachingAllocator::FindExpandable(const Request& request) {
  Group& group = groups_[request.group];
  const auto has_room = [&](int32_t index) {
    int64_t bytes = 0;
    for (; index != kNone && bytes < request.size && Free(blocks_[index]);
         index = blocks_[index].next) {
      bytes += blocks_[index].size;
    }
    return bytes >= request.size;
  };
  for (const auto& [address, index] : group.unmapped) {
    const int32_t before = blocks_[index].previous;
    const int32_t first = before != kNone && Free(blocks_[before]) ? before : index;
    if (has_room(first)) return first;
  }
  // Room for an eighth more than the device has, so that pages in the middle can move to the end.
  const int64_t page = PageOf(group);
  const int64_t bytes =
      (options_.device_total + options_.device_total / 8 + page - 1) / page * page;
  if (bytes < request.size) return kNone;  // More than the device has.
  const int32_t block = NewBlock(request.group, device().NewAddress(bytes), bytes);
  blocks_[block].mapped = false;
  blocks_[block].segment = static_cast<int32_t>(segment_base_.size());
  segment_base_.push_back(blocks_[block].address);
  group.unmapped.insert({blocks_[block].address, block});
  return block;
}

// A block that holds the request, taken out of the free ones; kNone where the device has no page
// left.
int32_t CachingAllocator::TakeExpandable(const Request& request) {
  int32_t block = FindExpandable(request);
  if (block == kNone) return kNone;
  if (!blocks_[block].mapped && !Map(block, std::min(blocks_[block].size, request.size)))
    return kNone;
  while (blocks_[block].size < request.size) {
    const int32_t next = blocks_[block].next;
    const int64_t missing = request.size - blocks_[block].size;
    if (!Map(next, std::min(missing, blocks_[next].size))) return kNone;
    block = next;  // Which has taken in the block before it.
  }
  EraseFree(block);
  return block;
}

// Maps the pages of the first `size` bytes of an unmapped block, which becomes a free one.
bool CachingAllocator::Map(int32_t index, int64_t size) {
  Group& group = groups_[blocks_[index].group];
  const int64_t page = PageOf(group);
  const int64_t address = blocks_[index].address;
  const int64_t bytes = (size + page - 1) / page * page;
  if (!device().Take(bytes / page * device().Pages(page))) return false;
  group.unmapped.erase({address, index});
  blocks_[index].mapped = true;
  if (bytes < blocks_[index].size) {
    const int32_t rest =
        NewBlock(blocks_[index].group, address + bytes, blocks_[index].size - bytes);
    blocks_[rest].mapped = false;
    blocks_[rest].segment = blocks_[index].segment;
    InsertBetween(rest, index, blocks_[index].next);
    group.unmapped.insert({blocks_[rest].address, rest});
    blocks_[index].size = bytes;
  }
  Merge(index, blocks_[index].previous);
  Merge(index, blocks_[index].next);
  InsertFree(index);
  stats.reserved.Add(bytes);
  CountDevice();
  Log(kSegmentMapped, address, bytes, group.stream);
  return true;
}

// Unmaps the whole pages of a free block. What is left of it at either end stays a free block.
void CachingAllocator::Unmap(int32_t index) {
  Group& group = groups_[blocks_[index].group];
  const int64_t page = PageOf(group);
  const int64_t base = segment_base_[blocks_[index].segment];
  const int64_t first = blocks_[index].address - base, last = first + blocks_[index].size;
  const int64_t begin = (first + page - 1) / page * page, end = last / page * page;
  if (begin >= end) return;
  EraseFree(index);
  const auto split_off = [&](int64_t from, int64_t to, int32_t before, int32_t after) {
    if (from == to) return;
    const int32_t part = NewBlock(blocks_[index].group, base + from, to - from);
    blocks_[part].segment = blocks_[index].segment;
    InsertBetween(part, before, after);
    InsertFree(part);
  };
  split_off(first, begin, blocks_[index].previous, index);
  split_off(end, last, index, blocks_[index].next);
  blocks_[index].address = base + begin;
  blocks_[index].size = end - begin;
  blocks_[index].mapped = false;
  Merge(index, blocks_[index].previous);
  Merge(index, blocks_[index].next);
  group.unmapped.insert({blocks_[index].address, index});
  device().GiveBack((end - begin) / page * device().Pages(page));
  stats.reserved.Add(begin - end);
  CountDevice();
  Log(kSegmentUnmapped, base + begin, end - begin, group.stream);
}

}  // namespace memc
