// SPDX-License-Identifier: Apache-2.0
#include "figures.h"

#include <algorithm>

namespace memc_torch {

namespace {

using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;

const Stat& All(const StatArray& array) { return array[static_cast<size_t>(StatType::AGGREGATE)]; }

Blocks InUse(const Figures::Stats& stats) {
  return {All(stats.allocation).current, All(stats.allocated_bytes).current,
          All(stats.requested_bytes).current};
}

Blocks Peaks(const Figures::Stats& stats) {
  return {All(stats.allocation).peak, All(stats.allocated_bytes).peak,
          All(stats.requested_bytes).peak};
}

Blocks Largest(const Blocks& a, const Blocks& b) {
  return {std::max(a.count, b.count), std::max(a.allocated, b.allocated),
          std::max(a.requested, b.requested)};
}

// Of one figure: what is in use in place of arenas, the peak of the sum, and the totals.
void Replace(StatArray& array, int64_t current, int64_t peak, int64_t allocated, int64_t freed) {
  for (const StatType type : {StatType::AGGREGATE, StatType::LARGE_POOL}) {
    Stat& stat = array[static_cast<size_t>(type)];
    stat.current += current;
    stat.allocated += allocated;
    stat.freed += freed;
    // How the pools' peaks lie in time is not known: their own, without arenas, are no less.
    stat.peak =
        type == StatType::AGGREGATE ? peak : std::max(std::min(stat.peak, peak), stat.current);
  }
}

}  // namespace

void Figures::Begin() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (arenas_.count != 0) return;
  has_arena_ = false;
  peak_ = made_ = removed_ = {};
  served_at_reset_ = served_;
  live_at_reset_ = LiveLocked();
}

void Figures::AddArena(const Stats& before, const Stats& after) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!has_arena()) peak_ = Largest(peak_, Peaks(before));
  const Blocks arena = InUse(after) - InUse(before);
  arenas_ = arenas_ + arena;
  made_ = made_ + arena;
  RaisePeak(after);
  has_arena_ = true;
}

void Figures::RemoveArena(const Stats& before, const Stats& after) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Blocks arena = InUse(before) - InUse(after);
  arenas_ = arenas_ - arena;
  removed_ = removed_ + arena;
  RaisePeak(after);
}

bool Figures::Serve(int64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  packed_ += Packed(bytes);
  served_ = served_ + Blocks{1, Rounded(bytes), bytes};
  const Blocks all = LiveLocked() + native_;
  return all.count > peak_.count || all.allocated > peak_.allocated ||
         all.requested > peak_.requested;
}

Blocks Figures::LiveLocked() const {
  const int64_t requested = served_.requested - freed_requested_.load(std::memory_order_relaxed);
  const uint64_t live = packed_ - freed_.load(std::memory_order_relaxed);
  return {static_cast<int64_t>(live & ((1ULL << kCountBits) - 1)),
          static_cast<int64_t>(live >> kCountBits) * kAlignment, requested};
}

Blocks Figures::Live() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return LiveLocked();
}

void Figures::RaisePeak(const Stats& native) {
  native_ = InUse(native) - arenas_;
  peak_ = Largest(peak_, native_ + LiveLocked());
}

void Figures::Refresh(const Stats& native) {
  const std::lock_guard<std::mutex> lock(mutex_);
  RaisePeak(native);
}

Figures::Stats Figures::Together(Stats native) const {
  if (!has_arena()) return native;
  const std::lock_guard<std::mutex> lock(mutex_);
  const Blocks live = LiveLocked(), now = live - arenas_;
  const Blocks made = served_ - served_at_reset_ - made_;
  const Blocks freed = made - live + live_at_reset_ + made_ - removed_;
  const auto put = [&](StatArray& array, int64_t Blocks::* field) {
    const int64_t current = All(array).current + now.*field;
    Replace(array, now.*field, std::max(peak_.*field, current), made.*field, freed.*field);
  };
  put(native.allocation, &Blocks::count);
  put(native.active, &Blocks::count);
  put(native.allocated_bytes, &Blocks::allocated);
  put(native.active_bytes, &Blocks::allocated);
  put(native.requested_bytes, &Blocks::requested);
  return native;
}

void Figures::ResetPeak(const Stats& native) {
  const std::lock_guard<std::mutex> lock(mutex_);
  peak_ = {};
  RaisePeak(native);
}

void Figures::ResetAccumulated() {
  const std::lock_guard<std::mutex> lock(mutex_);
  served_at_reset_ = served_;
  live_at_reset_ = LiveLocked();
  made_ = removed_ = {};
}

}  // namespace memc_torch
