// SPDX-License-Identifier: Apache-2.0
#include "replay/device.h"

#include <pthread.h>

namespace memc::replay {

namespace {

std::atomic<uint32_t> forks{0};

void AfterFork() { forks.fetch_add(1, std::memory_order_relaxed); }

const int watched = pthread_atfork(nullptr, nullptr, AfterFork);

}  // namespace

uint32_t Forks() { return forks.load(std::memory_order_relaxed); }

void Device::Synchronize() const {
  if (reachable()) backend_.synchronize(backend_.context);
}

char* Device::AllocateArena(int64_t bytes) const {
  if (!reachable()) return nullptr;
  void* found = backend_.allocate_arena(backend_.context, bytes);
  // The bytes may have been another stream's, as far as the backend's allocator is concerned.
  if (found != nullptr) Synchronize();
  return static_cast<char*>(found);
}

void Device::FreeArena(char* address, int64_t bytes) const {
  if (!reachable()) return;
  backend_.synchronize(backend_.context);
  backend_.free_arena(backend_.context, address, bytes);
}

uint64_t Device::RecordEvent(uint64_t stream, uint64_t event) const {
  return reachable() ? backend_.record_event(backend_.context, stream, event) : 0;
}

bool Device::WaitEvent(uint64_t stream, uint64_t event) const {
  return reachable() && backend_.wait_event(backend_.context, stream, event) == 0;
}

void Device::DestroyEvent(uint64_t event) const {
  if (event != 0 && reachable()) backend_.destroy_event(backend_.context, event);
}

}  // namespace memc::replay
