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
  std::map<uintptr_t, size_t> left;  // free ranges within chunks: bytes by address
  uintptr_t lowest = kTop;           // of all chunks
  uintptr_t long_end = kBottom;      // of ranges of expandable segments, which lie below
};

// Kept until the process ends: memory is given back when static objects are gone.
Space& TheSpace() {
  static auto* const space = new Space;
  return *space;
}

bool Map(uintptr_t address, size_t bytes) {
  void* const at = reinterpret_cast<void*>(address);
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  return mmap(at, bytes, PROT_READ | PROT_WRITE, kFlags, -1, 0) != MAP_FAILED;
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

}  // namespace

uintptr_t ReserveRange(size_t bytes) {
  bytes = Pages(bytes);
  Space& space = TheSpace();
  const std::lock_guard<std::mutex> lock(space.mutex);
  auto best = space.left.end();
  for (auto it = space.left.begin(); it != space.left.end(); ++it) {
    if (it->second >= bytes && (best == space.left.end() || it->second < best->second)) best = it;
  }
  uintptr_t address = 0;
  if (best != space.left.end()) {
    address = best->first;
    const size_t rest = best->second - bytes;
    space.left.erase(best);
    if (rest > 0) space.left[address + bytes] = rest;
  } else {
    const size_t chunk = (bytes + kChunk - 1) / kChunk * kChunk;
    if (space.lowest - space.long_end < chunk) return 0;
    space.lowest -= chunk;
    address = space.lowest;
    if (chunk > bytes) Leave(space, address + bytes, chunk - bytes);
  }
  if (Map(address, bytes)) return address;
  Leave(space, address, bytes);
  return 0;
}

void ReleaseRange(uintptr_t address, size_t bytes) {
  Space& space = TheSpace();
  const std::lock_guard<std::mutex> lock(space.mutex);
  munmap(reinterpret_cast<void*>(address), Pages(bytes));
  Leave(space, address, Pages(bytes));
}

uintptr_t ReserveLongRange(size_t bytes) {
  Space& space = TheSpace();
  const std::lock_guard<std::mutex> lock(space.mutex);
  const uintptr_t address = space.long_end;
  bytes = Pages(bytes);
  if (space.lowest - address < bytes || !Map(address, bytes)) return 0;
  space.long_end += bytes;
  return address;
}

void ReleaseLongRange(uintptr_t address, size_t bytes) {
  munmap(reinterpret_cast<void*>(address), Pages(bytes));
}

bool OnDevice(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  return kBottom <= at && at < kTop;
}

}  // namespace phantom
