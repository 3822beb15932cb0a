// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <stdexcept>
#include <vector>

#include "allocators/caching.h"
#include "allocators/coalescing.h"
#include "allocators/exact_size.h"
#include "allocators/simulate.h"
#include "check.h"

namespace {

using memc::Device;
using memc::Event;
using memc::EventKind;

constexpr int64_t kMiB = 1 << 20;

std::vector<std::unique_ptr<memc::Allocator>> Every(int64_t capacity) {
  std::vector<std::unique_ptr<memc::Allocator>> all;
  memc::CachingOptions expandable;
  expandable.expandable_segments = true;
  all.push_back(std::make_unique<memc::CachingAllocator>(Device(capacity), memc::CachingOptions()));
  all.push_back(std::make_unique<memc::CachingAllocator>(Device(capacity), expandable));
  all.push_back(std::make_unique<memc::BfcAllocator>(Device(capacity),
                                                     memc::BfcOptions{capacity, true, true, 0}));
  all.push_back(std::make_unique<memc::CupyAllocator>(Device(capacity), memc::CupyOptions()));
  all.push_back(std::make_unique<memc::MxnetAllocator>(Device(capacity), memc::MxnetOptions()));
  return all;
}

// No two live blocks share bytes, none is smaller than asked for, and in the end all is free.
TEST(BlocksDoNotOverlap) {
  for (const auto& allocator : Every(600 * kMiB)) {
    memc::tests::Random random(11);
    struct Live {
      int64_t block, address, bytes;
    };
    std::vector<Live> live;
    int64_t failures = 0;
    for (int64_t block = 0; block < 4000; ++block) {
      const int64_t bytes = 1 + random.Below(int64_t{1} << random.Within(1, 25));
      const Event request{EventKind::kAllocate, block, bytes, random.Below(2), 0};
      if (allocator->Apply(request)) {
        const int64_t address = allocator->AddressOf(block);
        for (const Live& other : live) {
          CHECK(address + bytes <= other.address || other.address + other.bytes <= address);
        }
        live.push_back({block, address, bytes});
      } else {
        ++failures;
      }
      while (live.size() > 60 || (!live.empty() && random.Below(3) == 0)) {
        const auto at = random.Below(static_cast<int64_t>(live.size()));
        allocator->Apply({EventKind::kFree, live[at].block, 0, 0, 0});
        live.erase(live.begin() + at);
      }
      const memc::Statistics& stats = allocator->stats;
      CHECK(stats.requested.current <= stats.allocated.current);
      CHECK(stats.allocated.current <= stats.reserved.current);
      CHECK(stats.device.current <= 600 * kMiB);
    }
    for (const Live& each : live) allocator->Apply({EventKind::kFree, each.block, 0, 0, 0});
    CHECK_EQ(allocator->stats.allocated.current, 0);
    CHECK_EQ(allocator->stats.requested.current, 0);
    CHECK(failures < 2000);
  }
}

TEST(UnknownEvents) {
  for (const auto& allocator : Every(kMiB)) {
    CHECK_THROWS(std::invalid_argument, allocator->Apply({static_cast<EventKind>(99), 0, 0, 0, 0}),
                 "event kind 99 is unknown");
    CHECK_THROWS(std::invalid_argument, allocator->Apply({EventKind::kFree, 0, 0, 0, 0}),
                 "block 0 is not live");
    CHECK_THROWS(std::invalid_argument, allocator->Apply({EventKind::kAllocate, 0, -1, 0, 0}),
                 "a request of -1 bytes");
  }
}

TEST(SimulationStopsWhereMemoryRunsOut) {
  const std::vector<int64_t> kinds{0, 0, 0}, blocks{0, 1, 2}, zeros{0, 0, 0};
  const std::vector<int64_t> bytes{30 * kMiB, 30 * kMiB, 1};
  memc::CachingAllocator allocator(Device(40 * kMiB), memc::CachingOptions());
  const memc::EventColumns events{
      3, kinds.data(), blocks.data(), bytes.data(), zeros.data(), zeros.data()};
  const memc::Simulation found = memc::Simulate(allocator, events, memc::SimulationTrace());
  CHECK_EQ(found.failed, 1);
  CHECK_EQ(found.peak_reserved_at, 0);
}

}  // namespace
