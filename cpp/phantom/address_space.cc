// SPDX-License-Identifier: Apache-2.0
#include "address_space.h"

#include <sys/mman.h>

#include <mutex>

#include "device.h"

namespace phantom {

namespace {

constexpr uintptr_t kBottom = uintptr_t{0x100000000000}, kTop = uintptr_t{0x500000000000};

struct Space {
  std::mutex mutex;
  uintptr_t lowest = kTop;       // of all ranges
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

}  // namespace

uintptr_t ReserveRange(size_t bytes) {
  bytes = Pages(bytes);
  Space& space = TheSpace();
  const std::lock_guard<std::mutex> lock(space.mutex);
  if (space.lowest - space.long_end < bytes) return 0;
  space.lowest -= bytes;
  return Map(space.lowest, bytes) ? space.lowest : 0;
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

void ReleaseRange(uintptr_t address, size_t bytes) {
  munmap(reinterpret_cast<void*>(address), Pages(bytes));
}

bool OnDevice(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  return kBottom <= at && at < kTop;
}

}  // namespace phantom
