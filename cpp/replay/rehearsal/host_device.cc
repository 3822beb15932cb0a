// SPDX-License-Identifier: Apache-2.0
#include "replay/rehearsal/host_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace memc::replay {

namespace {

constexpr size_t kMostShadows = 1 << 15;  // From which forgotten ones are looked for.

HostDevice* Of(void* context) { return static_cast<HostDevice*>(context); }

int64_t At(const char* address) {
  return static_cast<int64_t>(reinterpret_cast<intptr_t>(address));
}

}  // namespace

HostDevice::~HostDevice() {
  for (const auto& [address, memory] : arenas_) {
    munmap(address, static_cast<size_t>(memory.bytes));
  }
}

memc_replay_backend HostDevice::Backend() {
  memc_replay_backend backend{};
  backend.context = this;
  backend.allocate_arena = [](void* context, int64_t bytes) {
    return Of(context)->Allocate(bytes);
  };
  backend.free_arena = [](void* context, void* address, int64_t bytes) {
    Of(context)->FreeArena(address, bytes);
  };
  backend.synchronize = [](void* context) { Of(context)->Synchronize(); };
  backend.record_event = [](void* context, uint64_t stream, uint64_t event) {
    return Of(context)->Record(stream, event);
  };
  backend.wait_event = [](void* context, uint64_t stream, uint64_t event) {
    return Of(context)->Wait(stream, event);
  };
  backend.destroy_event = [](void* context, uint64_t event) {
    const std::lock_guard<std::mutex> lock(Of(context)->mutex_);
    if (Of(context)->events_.erase(event) == 0) Of(context)->Wrong("an event destroyed twice");
  };
  return backend;
}

void* HostDevice::Allocate(int64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (bytes > capacity_ - arena_bytes_) return nullptr;
  const int access = fills_ ? PROT_READ | PROT_WRITE : PROT_NONE;
  void* found = mmap(nullptr, static_cast<size_t>(bytes), access,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) return nullptr;
  arenas_[static_cast<char*>(found)] = {bytes, false};
  arena_bytes_ += bytes;
  return found;
}

void HostDevice::FreeArena(void* address, int64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  char* const base = static_cast<char*>(address);
  const auto found = arenas_.find(base);
  if (found == arenas_.end() || found->second.bytes != bytes) {
    Wrong("an arena freed that is none");
    return;
  }
  const auto block = alive_at_.lower_bound(base);
  if (block != alive_at_.end() && block->first < base + bytes) {
    Wrong("an arena freed in which a block is alive");
  }
  if (found->second.worked) Wrong("an arena freed that streams may be at");
  arenas_.erase(found);
  arena_bytes_ -= bytes;
  munmap(address, static_cast<size_t>(bytes));
}

size_t HostDevice::IndexOf(uint64_t stream) {
  const auto [at, is_new] = indices_.try_emplace(stream, clocks_.size());
  if (is_new) clocks_.emplace_back();
  Clocks& clocks = clocks_[at->second];
  if (clocks.size() < clocks_.size()) clocks.resize(clocks_.size());
  return at->second;
}

void HostDevice::Wrong(const std::string& what) {
  if (wrong_++ == 0) first_wrong_ = what;
}

void HostDevice::Join(Clocks* into, const Clocks& from) const {
  if (into->size() < from.size()) into->resize(from.size());
  for (size_t i = 0; i < from.size(); ++i) (*into)[i] = std::max((*into)[i], from[i]);
}

void HostDevice::Synchronize() {
  const std::lock_guard<std::mutex> lock(mutex_);
  Clocks all;
  for (const Clocks& clocks : clocks_) Join(&all, clocks);
  for (Clocks& clocks : clocks_) Join(&clocks, all);
  for (auto& [address, memory] : arenas_) memory.worked = false;
}

uint64_t HostDevice::Record(uint64_t stream, uint64_t event) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (fails_) return 0;
  if (event == 0) event = next_event_++;
  events_[event] = clocks_[IndexOf(stream)];
  return event;
}

int HostDevice::Wait(uint64_t stream, uint64_t event) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = events_.find(event);
  if (fails_ || found == events_.end()) return 1;
  Join(&clocks_[IndexOf(stream)], found->second);
  return 0;
}

void HostDevice::Follow(uint64_t stream, uint64_t before) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Clocks clocks = clocks_[IndexOf(before)];
  Join(&clocks_[IndexOf(stream)], clocks);
}

void HostDevice::Begin(int64_t number, char* address, int64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto next = alive_at_.lower_bound(address);
  const bool after = next != alive_at_.end() && next->first < address + bytes;
  const bool before = next != alive_at_.begin() && std::prev(next)->second.first > address;
  if (after || before) {
    const int64_t other = after ? next->second.second : std::prev(next)->second.second;
    Wrong("blocks " + std::to_string(number) + " and " + std::to_string(other) + " overlap");
  }
  alive_at_[address] = {address + bytes, number};
  alive_[number] = {{address, bytes}, next_serial_++};
  if (fills_) std::memset(address, static_cast<int>(number & 0xff), static_cast<size_t>(bytes));
}

void HostDevice::End(int64_t number) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = alive_.find(number);
  if (found == alive_.end()) {
    Wrong("block " + std::to_string(number) + " freed twice");
    return;
  }
  const Block block = found->second.block;
  if (fills_) {
    const bool kept = std::all_of(block.address, block.address + block.bytes, [&](char byte) {
      return byte == static_cast<char>(number & 0xff);
    });
    if (!kept) Wrong("block " + std::to_string(number) + " has lost its bytes");
  }
  alive_at_.erase(block.address);
  alive_.erase(found);
}

void HostDevice::CheckRaces(const Block& block, int64_t number, int64_t serial, size_t stream) {
  const Clocks& clocks = clocks_[stream];
  shadow_.Each(At(block.address), At(block.address) + block.bytes, [&](int64_t owner) {
    if (owner == serial) return true;
    const Access& access = accesses_[owner];
    for (size_t other = 0; other < access.last.size(); ++other) {
      const int64_t over = other < clocks.size() ? clocks[other] : 0;
      if (access.last[other] <= over) continue;
      Wrong("block " + std::to_string(number) + " races with block " +
            std::to_string(access.block));
      return false;
    }
    return true;
  });
}

void HostDevice::Work(int64_t number, uint64_t stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = alive_.find(number);
  if (found == alive_.end()) {
    Wrong("work on block " + std::to_string(number) + ", which is not alive");
    return;
  }
  const auto& [block, serial] = found->second;
  const auto arena = arenas_.upper_bound(block.address);
  if (arena != arenas_.begin()) std::prev(arena)->second.worked = true;
  const size_t index = IndexOf(stream);
  CheckRaces(block, number, serial, index);
  Access& access = accesses_[serial];
  access.block = number;
  if (access.last.size() <= index) access.last.resize(index + 1);
  access.last[index] = ++clocks_[index][index];
  shadow_.Take(At(block.address), At(block.address) + block.bytes, serial);
  if (accesses_.size() < kMostShadows) return;
  std::unordered_map<int64_t, Access> kept;
  shadow_.Each(0, INT64_MAX, [&](int64_t owner) {
    kept[owner] = accesses_[owner];
    return true;
  });
  accesses_.swap(kept);
}

void HostDevice::FailEvents(bool fail) {
  const std::lock_guard<std::mutex> lock(mutex_);
  fails_ = fail;
}

void HostDevice::SetCapacity(int64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  capacity_ = bytes;
}

int64_t HostDevice::wrong() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return wrong_;
}

std::string HostDevice::first_wrong() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return first_wrong_;
}

int64_t HostDevice::arena_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return arena_bytes_;
}

int64_t HostDevice::events() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<int64_t>(events_.size());
}

}  // namespace memc::replay
