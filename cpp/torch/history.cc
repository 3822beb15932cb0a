// SPDX-License-Identifier: Apache-2.0
#include "history.h"

#include <algorithm>

namespace memc_torch {

using c10::CachingDeviceAllocator::RecordContext;

void History::Record(bool enabled, c10::CachingDeviceAllocator::CreateContextFn context,
                     size_t entries, RecordContext when, bool clear,
                     const std::vector<std::string>& skipped) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (enabled && !clock_) clock_ = std::make_unique<c10::ApproximateClockToUnixTimeConverter>();
  context_ = context;
  when_ = when;
  most_ = std::max<size_t>(1, entries);
  skipped_.clear();
  for (const std::string& name : skipped) {
    skipped_.push_back(c10::CachingDeviceAllocator::parseTraceEntryAction(name));
  }
  if (!enabled || clear) entries_.clear();
  on_ = enabled;
}

void History::Add(TraceEntry::Action action, c10::DeviceIndex device, void* address, int64_t bytes,
                  cudaStream_t stream) {
  const RecordContext least =
      action == TraceEntry::ALLOC ? RecordContext::ALLOC : RecordContext::ALL;
  const auto wanted = context_ != nullptr && when_ >= least ? context_ : nullptr;
  // Without the lock: it may wait for the interpreter's.
  std::shared_ptr<c10::GatheredContext> context = wanted ? wanted() : nullptr;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (std::count(skipped_.begin(), skipped_.end(), action) != 0) return;
  entries_.emplace_back(action, device, reinterpret_cast<size_t>(address),
                        static_cast<size_t>(bytes), stream, c10::MempoolId_t{0, 0},
                        c10::getApproximateTime(), std::move(context));
  if (entries_.size() > most_) entries_.pop_front();
}

void History::AddTo(std::vector<TraceEntry>& entries) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!clock_ || entries_.empty()) return;
  const auto nanoseconds = clock_->makeConverter();
  for (TraceEntry entry : entries_) {
    entry.time_.t_ = nanoseconds(entry.time_.approx_t_) / 1000;
    entries.push_back(std::move(entry));
  }
  std::stable_sort(entries.begin(), entries.end(), [](const TraceEntry& a, const TraceEntry& b) {
    return a.time_.t_ < b.time_.t_;
  });
}

}  // namespace memc_torch
