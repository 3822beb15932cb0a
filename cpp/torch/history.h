// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_TORCH_HISTORY_H_
#define MEMC_TORCH_HISTORY_H_

#include <c10/cuda/CUDACachingAllocator.h>

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace memc_torch {

using c10::CachingDeviceAllocator::TraceEntry;

// What a memory history (torch.cuda.memory._record_memory_history) tells of an arena's blocks.
class History {
 public:
  void Record(bool enabled, c10::CachingDeviceAllocator::CreateContextFn context, size_t entries,
              c10::CachingDeviceAllocator::RecordContext when, bool clear,
              const std::vector<std::string>& skipped);
  bool on() const { return on_.load(std::memory_order_relaxed); }

  void Add(TraceEntry::Action action, c10::DeviceIndex device, void* address, int64_t bytes,
           cudaStream_t stream);

  // Puts its entries among the others of the device, by time.
  void AddTo(std::vector<TraceEntry>& entries);

 private:
  std::atomic<bool> on_{false};
  std::mutex mutex_;
  c10::CachingDeviceAllocator::CreateContextFn context_ = nullptr;
  c10::CachingDeviceAllocator::RecordContext when_ =
      c10::CachingDeviceAllocator::RecordContext::NEVER;
  size_t most_ = 0;
  std::vector<TraceEntry::Action> skipped_;
  std::deque<TraceEntry> entries_;
  std::unique_ptr<c10::ApproximateClockToUnixTimeConverter> clock_;
};

}  // namespace memc_torch

#endif  // MEMC_TORCH_HISTORY_H_
