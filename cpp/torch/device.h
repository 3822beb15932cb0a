// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_TORCH_DEVICE_H_
#define MEMC_TORCH_DEVICE_H_

#include <c10/cuda/CUDACachingAllocator.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "figures.h"
#include "history.h"
#include "replay/replay.h"

namespace memc_torch {

using Native = c10::cuda::CUDACachingAllocator::CUDAAllocator;

// What is known of one device. It stays until the process ends, as blocks may be freed at any time.
class Device {
 public:
  Device(c10::DeviceIndex index, Native* native) : index_(index), native_(native) {}

  c10::DeviceIndex index() const { return index_; }
  // Null while nothing is planned or watched.
  memc_replay_engine* engine() const { return engine_.load(std::memory_order_acquire); }

  // Asks the engine for a block, which does not end meanwhile. Whether it gave one; `block` may
  // have a ticket otherwise, too.
  bool Ask(int64_t bytes, cudaStream_t stream, int thread_class, memc_replay_block* block) {
    asking_.fetch_add(1, std::memory_order_seq_cst);
    memc_replay_engine* const of = engine_.load(std::memory_order_seq_cst);
    const bool served =
        of != nullptr && memc_replay_allocate(of, bytes, reinterpret_cast<uint64_t>(stream),
                                              thread_class, block) == 1;
    asking_.fetch_sub(1, std::memory_order_release);
    return served;
  }

  // Begins service with a new engine; ends it. Blocks in use stay valid.
  void Open();
  void Close();

  // Whether requests of a stream go to a private pool, as those of a captured graph do.
  bool ToPool(cudaStream_t stream) {
    return pools_open_.load(std::memory_order_relaxed) != 0 && InFilters(stream);
  }
  void OpenPool(c10::MempoolId_t pool, std::function<bool(cudaStream_t)> filter);
  void ClosePool(c10::MempoolId_t pool);
  bool HasOpenPool() const { return pools_open_.load(std::memory_order_relaxed) != 0; }

  // The arena that holds an address: its base and bytes, null and 0 if none does.
  std::pair<char*, size_t> ArenaOf(const void* address);
  int64_t ArenaBytes();

  // A block was served from the arena.
  void Serve(int64_t bytes) {
    if (figures.Serve(bytes)) figures.Refresh(native_->getDeviceStats(index_));
  }
  // A block was served by PyTorch's allocator.
  void ServeNatively() {
    if (figures.has_arena()) figures.Refresh(native_->getDeviceStats(index_));
  }

  // Shows the blocks in use of arenas among those of the segments.
  void ShowArenas(std::vector<c10::CachingDeviceAllocator::SegmentInfo>& segments);

  // What `allocate` returns. If there is no memory, an arena without blocks in use goes back first;
  // otherwise the error says how much is in arenas.
  template <typename Allocate>
  auto OrTellOfArena(Allocate allocate) {
    try {
      return allocate();
    } catch (c10::OutOfMemoryError& error) {
      if (ArenaBytes() == 0) throw;
      if (!ReleaseArena()) {
        error.add_context(AboutArena());
        throw;
      }
    }
    return allocate();
  }

  Figures figures;
  History history;

 private:
  bool ReleaseArena();
  std::string AboutArena();
  bool InFilters(cudaStream_t stream);

  // What the engine calls.
  static void* AllocateArena(void* device, int64_t bytes);
  static void FreeArena(void* device, void* address, int64_t bytes);
  static void Synchronize(void* device);
  static uint64_t RecordEvent(void* device, uint64_t stream, uint64_t event);
  static int WaitEvent(void* device, uint64_t stream, uint64_t event);
  static void DestroyEvent(void* device, uint64_t event);

  const c10::DeviceIndex index_;
  Native* const native_;
  std::atomic<memc_replay_engine*> engine_{nullptr};
  std::atomic<int> asking_{0};  // Threads that are in the engine.
  std::atomic<int> pools_open_{0};
  std::mutex mutex_;  // Of what follows.
  std::vector<std::pair<c10::MempoolId_t, std::function<bool(cudaStream_t)>>> filters_;
  std::vector<std::pair<char*, size_t>> arenas_;
};

}  // namespace memc_torch

#endif  // MEMC_TORCH_DEVICE_H_
