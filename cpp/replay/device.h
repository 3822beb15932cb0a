// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_REPLAY_DEVICE_H_
#define MEMC_REPLAY_DEVICE_H_

#include <atomic>
#include <cstdint>

#include "replay/replay.h"

namespace memc::replay {

// How often this process is a forked child: a device's context does not survive the fork, and a
// thread of the parent's may hold any lock.
uint32_t Forks();

// The backend, as long as it may be called.
class Device {
 public:
  explicit Device(const memc_replay_backend& backend) : backend_(backend), forks_(Forks()) {}

  bool in_its_process() const { return forks_ == Forks(); }
  bool reachable() const { return !abandoned_.load(std::memory_order_acquire) && in_its_process(); }
  void Abandon() { abandoned_.store(true, std::memory_order_release); }

  void Synchronize() const;
  // Null if there are not as many bytes.
  char* AllocateArena(int64_t bytes) const;
  void FreeArena(char* address, int64_t bytes) const;
  // 0 if it failed.
  uint64_t RecordEvent(uint64_t stream, uint64_t event) const;
  bool WaitEvent(uint64_t stream, uint64_t event) const;
  void DestroyEvent(uint64_t event) const;

 private:
  const memc_replay_backend backend_;
  const uint32_t forks_;
  std::atomic<bool> abandoned_{false};
};

}  // namespace memc::replay

#endif  // MEMC_REPLAY_DEVICE_H_
