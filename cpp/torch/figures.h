// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_TORCH_FIGURES_H_
#define MEMC_TORCH_FIGURES_H_

#include <c10/cuda/CUDACachingAllocator.h>

#include <atomic>
#include <cstdint>
#include <mutex>

namespace memc_torch {

constexpr int64_t kAlignment = 512;  // Bytes: of offsets in an arena, and of rounded sizes.

inline int64_t Rounded(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// What PyTorch's statistics say of blocks: their number, rounded bytes, and bytes as asked for.
struct Blocks {
  int64_t count = 0, allocated = 0, requested = 0;
};

inline Blocks operator+(const Blocks& a, const Blocks& b) {
  return {a.count + b.count, a.allocated + b.allocated, a.requested + b.requested};
}
inline Blocks operator-(const Blocks& a, const Blocks& b) {
  return {a.count - b.count, a.allocated - b.allocated, a.requested - b.requested};
}

// The statistics of a device with arenas. To the allocator that they are from an arena is a block
// in use; in the figures the blocks served from it stand in its place. Peaks are those of the sum:
// the allocator is asked for its part only when there may be a new one.
class Figures {
 public:
  using Stats = c10::CachingDeviceAllocator::DeviceStats;

  // Service begins. Without arenas of an earlier one the allocator's own statistics stand.
  void Begin();
  // An arena was got of the allocator, or went back to it: the statistics before and after.
  void AddArena(const Stats& before, const Stats& after);
  void RemoveArena(const Stats& before, const Stats& after);
  bool has_arena() const { return has_arena_.load(std::memory_order_relaxed); }

  // A block of an arena is served. Whether there may be a new peak, so that Refresh is due.
  bool Serve(int64_t bytes);
  // It is freed; from any thread, without a lock.
  void Free(int64_t bytes) {
    freed_.fetch_add(Packed(bytes), std::memory_order_relaxed);
    freed_requested_.fetch_add(bytes, std::memory_order_relaxed);
  }

  // Blocks of arenas in use.
  Blocks Live() const;

  // Takes in peaks, now that the allocator's statistics are these.
  void Refresh(const Stats& native);

  Stats Together(Stats native) const;
  void ResetPeak(const Stats& native);
  void ResetAccumulated();

 private:
  // Blocks and their units of kAlignment in one number, so that one addition counts both. The
  // difference of two sums is right though a sum's count runs over.
  static constexpr int kCountBits = 20;
  static uint64_t Packed(int64_t bytes) {
    return (static_cast<uint64_t>(Rounded(bytes) / kAlignment) << kCountBits) + 1;
  }
  Blocks LiveLocked() const;
  void RaisePeak(const Stats& native);

  mutable std::mutex mutex_;
  std::atomic<bool> has_arena_{false};
  std::atomic<uint64_t> freed_{0};
  std::atomic<int64_t> freed_requested_{0};
  uint64_t packed_ = 0;                     // All served.
  Blocks served_;                           // The same.
  Blocks arenas_;                           // What arenas are to the allocator now.
  Blocks made_, removed_;                   // All of them so far, which its totals count.
  Blocks native_;                           // Its blocks in use without arenas, when last seen.
  Blocks peak_;                             // Of the sum since the last reset.
  Blocks live_at_reset_, served_at_reset_;  // Of totals.
};

}  // namespace memc_torch

#endif  // MEMC_TORCH_FIGURES_H_
