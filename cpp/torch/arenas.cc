// SPDX-License-Identifier: Apache-2.0
// How a device's arenas show in snapshots and errors.
#include <algorithm>

#include "device.h"

namespace memc_torch {

namespace {

using c10::CachingDeviceAllocator::BlockInfo;
using c10::CachingDeviceAllocator::SegmentInfo;

BlockInfo Block(int64_t bytes, int64_t requested) {
  BlockInfo made;
  made.size = static_cast<size_t>(bytes);
  made.requested_size = static_cast<size_t>(requested);
  made.allocated = made.active = requested > 0;
  return made;
}

// An arena of `size` bytes at `base`, as blocks in use and the gaps between them.
std::vector<BlockInfo> Parts(const char* base, size_t size,
                             const std::vector<memc_replay_live>& live) {
  std::vector<BlockInfo> parts;
  int64_t at = 0;
  for (const memc_replay_live& each : live) {
    const int64_t begin = static_cast<const char*>(each.address) - base;
    if (begin < at || begin >= static_cast<int64_t>(size)) continue;
    if (begin > at) parts.push_back(Block(begin - at, 0));
    parts.push_back(Block(Rounded(each.bytes), each.bytes));
    at = begin + Rounded(each.bytes);
  }
  const int64_t rest = static_cast<int64_t>(size) - at;
  if (rest > 0) parts.push_back(Block(rest, 0));
  return parts;
}

// Puts the parts in the place of the segment's block at `base`.
void Split(SegmentInfo& segment, const char* base, const std::vector<memc_replay_live>& live) {
  size_t address = segment.address;
  for (size_t i = 0; i < segment.blocks.size(); address += segment.blocks[i++].size) {
    if (address != reinterpret_cast<size_t>(base)) continue;
    const BlockInfo arena = segment.blocks[i];
    std::vector<BlockInfo> parts = Parts(base, arena.size, live);
    segment.allocated_size -= arena.size;
    segment.active_size -= arena.size;
    segment.requested_size -= arena.requested_size;
    for (BlockInfo& part : parts) {
      if (!part.allocated) continue;
      part.context_when_allocated = arena.context_when_allocated;
      segment.allocated_size += part.size;
      segment.active_size += part.size;
      segment.requested_size += part.requested_size;
    }
    const auto place = segment.blocks.begin() + static_cast<std::ptrdiff_t>(i);
    segment.blocks.insert(segment.blocks.erase(place), parts.begin(), parts.end());
    return;
  }
}

}  // namespace

void Device::ShowArenas(std::vector<SegmentInfo>& segments) {
  memc_replay_engine* const of = engine();
  std::vector<std::pair<char*, size_t>> arenas;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    arenas = arenas_;
  }
  if (of == nullptr || arenas.empty()) return;
  std::vector<memc_replay_live> live(64);
  for (bool all = false; !all;) {
    const auto room = static_cast<int64_t>(live.size());
    const int64_t count = memc_replay_live_blocks(of, live.data(), room);
    all = count <= room;
    live.resize(static_cast<size_t>(count));
  }
  std::sort(live.begin(), live.end(),
            [](const auto& a, const auto& b) { return a.address < b.address; });
  for (SegmentInfo& segment : segments) {
    if (segment.device != index_) continue;
    for (const auto& [base, bytes] : arenas) {
      const auto address = reinterpret_cast<size_t>(base);
      if (address < segment.address || address >= segment.address + segment.total_size) continue;
      std::vector<memc_replay_live> inside;
      for (const memc_replay_live& each : live) {
        const auto place = reinterpret_cast<size_t>(each.address);
        if (place >= address && place < address + bytes) inside.push_back(each);
      }
      Split(segment, base, inside);
    }
  }
}

bool Device::ReleaseArena() {
  memc_replay_engine* const of = engine();
  return of != nullptr && !HasOpenPool() && memc_replay_release_arena(of) > 0;
}

std::string Device::AboutArena() {
  const Blocks live = figures.Live();
  return "memc.torch.planned_memory: its arena of " + std::to_string(ArenaBytes()) +
         " bytes counts as allocated; " + std::to_string(live.allocated) + " bytes of it, in " +
         std::to_string(live.count) + " blocks, are in use";
}

}  // namespace memc_torch
