// SPDX-License-Identifier: Apache-2.0
#include "address_space.h"

#include <sys/mman.h>

#include <iterator>
#include <map>
#include <mutex>

#include "device.h"

namespace phantom {

namespace {

constexpr size_t kMib = size_t{1} << 20, kChunk = 32 * kMib;

// Ranges for expandable segments begin where no kernel maps anything by itself.
constexpr uintptr_t kLongBottom = uintptr_t{0x100000000000}, kLongTop = uintptr_t{0x500000000000};

// A context's own chunks as seen. Local memory leaves some of its chunk free:
//
//     | local memory, 414 | free, 2 |  | used, 72 | free, 24 | used, 32 |      MiB
constexpr size_t kLocal = 414 * kMib, kLocalChunk = 416 * kMib;
constexpr size_t kContextChunk = 128 * kMib, kHole = 72 * kMib, kHoleBytes = 24 * kMib;
constexpr size_t kMoreLocal = 506 * kMib;  // what the driver goes over to

struct Chunk {
  size_t bytes = 0;
  size_t number = 0;                 // in order of their making
  std::map<uintptr_t, size_t> left;  // free ranges, bytes by address
};

struct Space {
  std::mutex mutex;
  std::map<uintptr_t, Chunk> chunks;
  size_t made = 0;
  uintptr_t local_memory = 0;
  bool local_memory_grew = false;
  uintptr_t long_end = kLongBottom;
};

// Kept until the process ends: memory is given back when static objects are gone.
Space& TheSpace() {
  static auto* const space = new Space;
  return *space;
}

constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

uintptr_t Map(size_t bytes) {
  void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kFlags, -1, 0);
  return at == MAP_FAILED ? 0 : reinterpret_cast<uintptr_t>(at);
}

void Unmap(uintptr_t address, size_t bytes) {
  if (bytes > 0) munmap(reinterpret_cast<void*>(address), bytes);
}

// An aligned range of the host's choice; 0 for none.
uintptr_t MapAligned(size_t bytes) {
  uintptr_t at = Map(bytes);
  if (at % kChunk == 0) return at;
  Unmap(at, bytes);
  at = Map(bytes + kChunk);
  if (at == 0) return 0;
  // The highest place in it, so that the next one may follow below.
  const uintptr_t aligned = (at + kChunk) / kChunk * kChunk;
  Unmap(at, aligned - at);
  Unmap(aligned + bytes, at + kChunk - aligned);
  return aligned;
}

Chunk* NewChunk(Space& space, size_t bytes) {
  const uintptr_t address = MapAligned(bytes);
  if (address == 0) return nullptr;
  Chunk& chunk = space.chunks[address];
  chunk = {bytes, ++space.made, {{address, bytes}}};
  return &chunk;
}

// The chunk that holds an address, or the end.
std::map<uintptr_t, Chunk>::iterator Holder(Space& space, uintptr_t address) {
  auto next = space.chunks.upper_bound(address);
  if (next == space.chunks.begin()) return space.chunks.end();
  --next;
  return address < next->first + next->second.bytes ? next : space.chunks.end();
}

void Leave(Chunk& chunk, uintptr_t address, size_t bytes) {
  auto next = chunk.left.lower_bound(address);
  if (next != chunk.left.end() && address + bytes == next->first) {
    bytes += next->second;
    next = chunk.left.erase(next);
  }
  if (next != chunk.left.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == address) {
      before->second += bytes;
      return;
    }
  }
  chunk.left[address] = bytes;
}

// The smallest free range of a chunk that is large enough.
std::map<uintptr_t, size_t>::iterator Smallest(Chunk& chunk, size_t bytes) {
  auto best = chunk.left.end();
  for (auto it = chunk.left.begin(); it != chunk.left.end(); ++it) {
    if (it->second >= bytes && (best == chunk.left.end() || it->second < best->second)) best = it;
  }
  return best;
}

bool MakeContext(Space& space) {
  if (space.local_memory != 0) return true;
  Chunk* const own = NewChunk(space, kContextChunk);
  if (own == nullptr) return false;
  own->left = {{own->left.begin()->first + kHole, kHoleBytes}};
  Chunk* const local = NewChunk(space, kLocalChunk);
  if (local == nullptr) return false;
  space.local_memory = local->left.begin()->first;
  local->left = {{space.local_memory + kLocal, kLocalChunk - kLocal}};
  return true;
}

uintptr_t Reserve(Space& space, size_t bytes) {
  if (!MakeContext(space)) return 0;
  Chunk* newest = nullptr;
  for (auto& [start, chunk] : space.chunks) {
    if (newest != nullptr && chunk.number < newest->number) continue;
    if (Smallest(chunk, bytes) != chunk.left.end()) newest = &chunk;
  }
  if (newest == nullptr) newest = NewChunk(space, (bytes + kChunk - 1) / kChunk * kChunk);
  if (newest == nullptr) return 0;
  const auto [address, free] = *Smallest(*newest, bytes);
  newest->left.erase(address);
  if (free > bytes) newest->left[address + bytes] = free - bytes;
  return address;
}

void Release(Space& space, uintptr_t address, size_t bytes) {
  const auto holder = Holder(space, address);
  if (holder == space.chunks.end()) return;
  Chunk& chunk = holder->second;
  Leave(chunk, address, bytes);
  if (chunk.left.begin()->second == chunk.bytes) {
    Unmap(holder->first, chunk.bytes);
    space.chunks.erase(holder);
  } else {
    madvise(reinterpret_cast<void*>(address), bytes, MADV_DONTNEED);
  }
}

}  // namespace

uintptr_t ReserveRange(size_t bytes) {
  Space& space = TheSpace();
  const std::lock_guard<std::mutex> lock(space.mutex);
  return Reserve(space, Pages(bytes));
}

void ReleaseRange(uintptr_t address, size_t bytes) {
  Space& space = TheSpace();
  const std::lock_guard<std::mutex> lock(space.mutex);
  Release(space, address, Pages(bytes));
}

void GrowLocalMemory() {
  Space& space = TheSpace();
  const std::lock_guard<std::mutex> lock(space.mutex);
  if (space.local_memory_grew) return;
  space.local_memory_grew = true;
  if (Reserve(space, kMoreLocal) != 0) Release(space, space.local_memory, kLocal);
}

uintptr_t ReserveLongRange(size_t bytes) {
  bytes = Pages(bytes);
  Space& space = TheSpace();
  const std::lock_guard<std::mutex> lock(space.mutex);
  void* const at = reinterpret_cast<void*>(space.long_end);
  if (kLongTop - space.long_end < bytes) return 0;
  constexpr int kFixed = kFlags | MAP_FIXED_NOREPLACE;
  if (mmap(at, bytes, PROT_READ | PROT_WRITE, kFixed, -1, 0) != at) return 0;
  space.long_end += bytes;
  return reinterpret_cast<uintptr_t>(at);
}

void ReleaseLongRange(uintptr_t address, size_t bytes) { Unmap(address, Pages(bytes)); }

bool OnDevice(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  Space& space = TheSpace();
  const std::lock_guard<std::mutex> lock(space.mutex);
  return (kLongBottom <= at && at < space.long_end) || Holder(space, at) != space.chunks.end();
}

}  // namespace phantom
