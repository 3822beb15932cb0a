// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_REPLAY_SPIN_LOCK_H_
#define MEMC_REPLAY_SPIN_LOCK_H_

#include <atomic>
#include <thread>

namespace memc::replay {

// A lock that is nearly always free: one atomic exchange takes it, where a mutex needs two and two
// calls. A thread that has to wait lets others run.
class SpinLock {
 public:
  void lock() {
    while (taken_.exchange(true, std::memory_order_acquire)) {
      for (int tries = 0; taken_.load(std::memory_order_relaxed); ++tries) {
        if (tries >= kTries) std::this_thread::yield();
      }
    }
  }
  void unlock() { taken_.store(false, std::memory_order_release); }

 private:
  static constexpr int kTries = 64;
  std::atomic<bool> taken_{false};
};

}  // namespace memc::replay

#endif  // MEMC_REPLAY_SPIN_LOCK_H_
