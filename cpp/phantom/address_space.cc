// SPDX-License-Identifier: Apache-2.0
#include "address_space.h"

#include <sys/mman.h>

#include <iterator>
#include <map>
#include <mutex>

#include "device.h"

namespace phantom {

namespace {

constexpr size_t kChunk = size_t{32} << 20;
constexpr uintptr_t kBottom = uintptr_t{0x100000000000}, kTop = uintptr_t{0x500000000000};

struct Space {
  std::mutex mutex;
  // Free ranges, bytes by address. A context leaves some above all that comes later: 96 and 32 MiB
  // fit most jobs that were recorded.
  std::map<uintptr_t, size_t> left = {{kTop, 3 * kChunk}, {kTop + 8 * kChunk, kChunk}};
  uintptr_t lowest = kTop;       // of all chunks
  uintptr_t long_end = kBottom;  // of those of expandable segments, which lie below
};

// Kept until the process ends: memory is given back when static objects are gone.
Space& TheSpace() {
  static auto* const space = new Space;
  return *space;
}

bool Map(uintptr_t address, size_t bytes) {
  void* const at = reinterpret_cast<void*>(address);
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
  return mmap(at, bytes, PROT_READ | PROT_WRITE, kFlags, -1, 0) == at;
}

void Leave(Space& space, uintptr_t address, size_t bytes) {
  auto next = space.left.lower_bound(address);
  if (next != space.left.end() && address + bytes == next->first) {
    bytes += next->second;
    next = space.left.erase(next);
  }
  if (next != space.left.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == address) {
      before->second += bytes;
      return;
    }
  }
  space.left[address] = bytes;
}

// 0 for none.
uintptr_t Find(Space& space, size_t bytes) {
  for (auto it = space.left.begin(); it != space.left.end(); ++it) {
    if (it->second < bytes) continue;
    const auto [address, free] = *it;
    space.left.erase(it);
    if (free > bytes) space.left[address + bytes] = free - bytes;
    return address;
  }
  const size_t chunk = (bytes + kChunk - 1) / kChunk * kChunk;
  if (space.lowest - space.long_end < chunk) return 0;
  space.lowest -= chunk;
  if (chunk > bytes) Leave(space, space.lowest + bytes, chunk - bytes);
  return space.lowest;
}

}  // namespace

uintptr_t ReserveRange(size_t bytes) {
  bytes = Pages(bytes);
  Space& space = TheSpace();
  const std::lock_guard<std::mutex> lock(space.mutex);
  const uintptr_t address = Find(space, bytes);
  return address != 0 && Map(address, bytes) ? address : 0;
}

void ReleaseRange(uintptr_t address, size_t bytes) {
  bytes = Pages(bytes);
  Space& space = TheSpace();
  const std::lock_guard<std::mutex> lock(space.mutex);
  munmap(reinterpret_cast<void*>(address), bytes);
  Leave(space, address, bytes);
}

uintptr_t ReserveLongRange(size_t bytes) {
  bytes = Pages(bytes);
  Space& space = TheSpace();
  const std::lock_guard<std::mutex> lock(space.mutex);
  const uintptr_t address = space.long_end;
  if (space.lowest - address < bytes || !Map(address, bytes)) return 0;
  space.long_end += bytes;
  return address;
}

void ReleaseLongRange(uintptr_t address, size_t bytes) {
  munmap(reinterpret_cast<void*>(address), Pages(bytes));
}

bool OnDevice(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  return kBottom <= at && at < kTop + 16 * kChunk;
}

}  // namespace phantom
