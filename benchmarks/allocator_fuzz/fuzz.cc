// SPDX-License-Identifier: Apache-2.0
// The same random events for PyTorch's own caching allocator and for memc's simulation of it. After
// each event, addresses and all counts are compared; the first difference ends the program with 1.
//
//   fuzz SEED EVENTS BYTES STREAMS POOLS THRESHOLD FRACTION NUMBER...     (the numbers of
//   memc.estimation.allocators.Caching)
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "allocators/caching.h"
#include "accounts.h"

namespace c10::cuda::_internal {
C10_CUDA_API void setHasPrimaryContext(bool (*)(c10::DeviceIndex));
}

namespace {

namespace real = c10::cuda::CUDACachingAllocator;
constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kEdges[] = {
    1,         511,       512,       513,           kMiB - 1,  kMiB,          kMiB + 1,
    2 * kMiB,  3 * kMiB,  5 * kMiB,  10 * kMiB - 1, 10 * kMiB, 10 * kMiB + 1, 19 * kMiB,
    20 * kMiB, 21 * kMiB, 22 * kMiB, 32 * kMiB,     40 * kMiB, 41 * kMiB,     64 * kMiB};

class Fuzz {
 public:
  Fuzz(uint64_t seed, int streams, int pools, const memc::CachingOptions& options)
      : random_(seed),
        streams_(streams),
        pools_(pools),
        complete_(options.events_complete),
        simulated_(memc::Device(static_cast<int64_t>(accounts::total)), options) {
    frees_ = 0.40 + 0.1 * Share();
    largest_ = 20 + 8 * Share();
  }

  void Step(int64_t at) {
    at_ = at;
    const double dice = Share();
    if (dice < 0.0015) {
      what_ = "empty cache";
      simulated_.EmptyCache();
      real::get()->emptyCache({0, 0});
      for (int s = 0; s < streams_; ++s) accounts::passed[StreamOf(s)] = accounts::clock;
    } else if (dice < 0.0022 && !uses_.empty()) {
      ReleasePool();
    } else if (dice < 0.03 && streams_ > 1) {
      Synchronize(Below(streams_));
    } else if (dice < 0.08 && streams_ > 1 && !live_.empty()) {
      what_ = "record stream";
      auto& [pointer, block] = live_[Below(live_.size())];
      const int stream = Below(streams_);
      real::get()->recordStream(pointer, Stream(stream));
      simulated_.RecordStream(block, static_cast<int64_t>(StreamOf(stream)));
    } else if (dice < 0.08 + frees_ && !live_.empty()) {
      what_ = "free";
      std::swap(live_[Below(live_.size())], live_.back());
      const int64_t block = live_.back().second;
      live_.pop_back();
      simulated_.Free(block);
    } else {
      Allocate();
    }
    Compare();
  }

  int64_t failures = 0;
  int64_t retries() const { return simulated_.stats.retries; }

 private:
  double Share() { return static_cast<double>(random_() >> 11) * 0x1.0p-53; }
  template <typename Count>
  int Below(Count count) {
    return static_cast<int>(random_() % static_cast<uint64_t>(count));
  }
  static uintptr_t StreamOf(int stream) {
    return stream == 0 ? 0 : 0x100 + 16 * static_cast<uintptr_t>(stream);
  }
  static c10::cuda::CUDAStream Stream(int stream) {
    if (stream == 0) return c10::cuda::getDefaultCUDAStream(0);
    return c10::cuda::getStreamFromExternal(reinterpret_cast<cudaStream_t>(StreamOf(stream)), 0);
  }

  void Synchronize(int stream) {
    what_ = "synchronize";
    if (complete_) return;
    simulated_.Synchronize(static_cast<int64_t>(StreamOf(stream)));
    accounts::passed[StreamOf(stream)] = accounts::clock;
  }

  void ReleasePool() {
    what_ = "release pool";
    const auto [pool, uses] = *uses_.begin();
    for (int i = 0; i < uses; ++i) real::get()->releasePool(0, {static_cast<uint64_t>(pool), 0});
    uses_.erase(pool);
    released_.insert(pool);
    simulated_.ReleasePool(pool);
  }

  void Allocate() {
    memc::Event event;
    event.block = next_++;
    event.bytes = Share() < 0.7 ? static_cast<int64_t>(std::exp2(largest_ * Share()))
                                : kEdges[Below(std::size(kEdges))];
    const int stream = Below(streams_);
    event.stream = static_cast<int64_t>(StreamOf(stream));
    event.pool = pools_ > 0 && Share() < 0.3 ? 1 + Below(pools_) : 0;
    if (released_.count(event.pool) != 0) event.pool = 0;
    what_ = "allocate " + std::to_string(event.bytes);
    if (complete_) {
      for (int s = 0; s < streams_; ++s) accounts::passed[StreamOf(s)] = accounts::clock;
    }
    const bool expected = simulated_.Allocate(event);
    c10::cuda::setCurrentCUDAStream(Stream(stream));
    const c10::MempoolId_t pool{static_cast<uint64_t>(event.pool), 0};
    if (event.pool != 0) {
      real::beginAllocateToPool(0, pool, [](cudaStream_t) { return true; });
      ++uses_[event.pool];
    }
    c10::DataPtr pointer;
    bool done = true;
    try {
      pointer = real::get()->allocate(static_cast<size_t>(event.bytes));
    } catch (const c10::OutOfMemoryError&) {
      done = false;
    }
    if (event.pool != 0) real::endAllocateToPool(0, pool);
    Expect("success", done, expected);
    if (!done) {
      ++failures;
      return;
    }
    Expect("address", reinterpret_cast<int64_t>(pointer.get()), simulated_.AddressOf(event.block));
    live_.emplace_back(std::move(pointer), event.block);
  }

  void Compare() {
    using c10::CachingAllocator::Stat;
    const auto found = real::get()->getDeviceStats(0);
    const memc::Statistics& mine = simulated_.stats;
    const std::tuple<const char*, const Stat&, const memc::Counter&> pairs[] = {
        {"allocated", found.allocated_bytes[0], mine.allocated},
        {"requested", found.requested_bytes[0], mine.requested},
        {"reserved", found.reserved_bytes[0], mine.reserved},
        {"active", found.active_bytes[0], mine.active},
        {"segments", found.segment[0], mine.segments},
        {"inactive split", found.inactive_split_bytes[0], mine.inactive_split}};
    for (const auto& [name, theirs, ours] : pairs) {
      Expect(name, theirs.current, ours.current);
      // With several streams this peak depends on the order of a hash table of PyTorch's.
      if (streams_ == 1 || &ours != &mine.inactive_split) Expect(name, theirs.peak, ours.peak);
    }
    Expect("retries", found.num_alloc_retries, mine.retries);
    Expect("device", static_cast<int64_t>(accounts::used), mine.device.current);
  }

  void Expect(const char* name, int64_t theirs, int64_t ours) const {
    if (theirs == ours) return;
    std::printf("event %ld, %s: %s: PyTorch has %ld, memc %ld\n", at_, what_.c_str(), name, theirs,
                ours);
    std::exit(1);
  }

  std::mt19937_64 random_;
  int streams_, pools_;
  bool complete_;
  memc::CachingAllocator simulated_;
  double frees_, largest_;
  std::vector<std::pair<c10::DataPtr, int64_t>> live_;
  std::map<int64_t, int> uses_;  // of private pools
  std::set<int64_t> released_;
  int64_t next_ = 0, at_ = 0;
  std::string what_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 8 + 6 + memc::CachingOptions::kIntervals) return 2;
  accounts::total = std::strtoull(argv[3], nullptr, 10);
  memc::CachingOptions options;
  options.garbage_collection_threshold = std::atof(argv[6]);
  options.memory_fraction = std::atof(argv[7]);
  const auto number = [&](int i) { return std::strtoll(argv[8 + i], nullptr, 10); };
  options.expandable_segments = number(0) != 0;
  options.large_segment = number(1);
  options.max_split = number(2);
  options.max_non_split_rounding = number(3);
  options.device_total = static_cast<int64_t>(accounts::total);
  options.events_complete = number(5) != 0;
  for (int i = 0; i < memc::CachingOptions::kIntervals; ++i) options.divisions[i] = number(6 + i);
  c10::cuda::_internal::setHasPrimaryContext([](c10::DeviceIndex) { return true; });
  real::init(1);
  Fuzz fuzz(std::strtoull(argv[1], nullptr, 10), std::atoi(argv[4]), std::atoi(argv[5]), options);
  const int64_t events = std::strtoll(argv[2], nullptr, 10);
  for (int64_t at = 0; at < events; ++at) fuzz.Step(at);
  std::printf("same %ld %ld\n", fuzz.failures, fuzz.retries());
  std::fflush(stdout);
  std::_Exit(0);  // Without giving back what is live.
}
