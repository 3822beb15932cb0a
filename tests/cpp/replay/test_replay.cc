// SPDX-License-Identifier: Apache-2.0
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <utility>
#include <vector>

#include "check.h"
#include "replay/interval_owners.h"
#include "replay/plan.h"
#include "replay/rehearsal/host_device.h"
#include "replay_cases.h"

namespace memc::tests {
namespace {

using replay::HostDevice;
using replay::IntervalOwners;

TEST(OwnersAreThoseOfEachByte) {
  Random random(1);
  for (int round = 0; round < 200; ++round) {
    IntervalOwners<int> owners;
    std::vector<int> bytes(60, -1);
    for (int owner = 0; owner < 40; ++owner) {
      const int64_t begin = random.Below(60);
      const int64_t end = random.Within(begin + 1, 60);
      if (owner % 4 == 3) {
        std::vector<bool> found(40), expected(40);
        owners.Each(begin, end, [&](int each) { return found[static_cast<size_t>(each)] = true; });
        for (int64_t i = begin; i < end; ++i) {
          if (bytes[static_cast<size_t>(i)] >= 0) {
            expected[static_cast<size_t>(bytes[static_cast<size_t>(i)])] = true;
          }
        }
        CHECK(found == expected);
        continue;
      }
      owners.Take(begin, end, owner);
      std::fill(bytes.begin() + begin, bytes.begin() + end, owner);
      CHECK(owners.size() <= 2 * owner + 1);
    }
    owners.Remove([](int owner) { return owner % 2 == 0; });
    CHECK(owners.Each(0, 60, [](int owner) { return owner % 2 != 0; }));
    owners.Clear();
    CHECK_EQ(owners.size(), 0);
  }
}

TEST(PredecessorsAreTheLastHoldersOfEachByte) {
  Random random(2);
  for (int round = 0; round < 100; ++round) {
    const Step step = RandomStep(&random, 30, 1 + round % 3);
    const std::vector<int64_t> zeros(step.bytes.size());
    const replay::Plan plan(nullptr, 0,
                            {step.count(), step.bytes.data(), step.streams.data(), zeros.data(),
                             step.offsets.data(), zeros.data(), step.arena, -1});
    for (int64_t i = 0; i < step.count(); ++i) {
      std::vector<bool> expected(step.bytes.size());
      const auto at = [&](int64_t k) { return static_cast<size_t>(k); };
      for (int64_t byte = step.offsets[at(i)]; byte < step.offsets[at(i)] + step.bytes[at(i)];
           ++byte) {
        int64_t last = i;
        do {  // Backwards, over the step's begin.
          last = (last + step.count() - 1) % step.count();
        } while (byte < step.offsets[at(last)] ||
                 byte >= step.offsets[at(last)] + step.bytes[at(last)]);
        expected[at(last)] = true;
      }
      std::vector<bool> found(step.bytes.size());
      const replay::Slot& slot = plan.slots[i];
      for (const uint32_t* pred = plan.first_pred(slot); pred != plan.end_pred(slot); ++pred) {
        CHECK(!found[*pred]);
        found[*pred] = true;
      }
      CHECK(found == expected);
    }
  }
}

struct Served {
  Served() : device(int64_t{1} << 30, false) {
    Random random(7);
    step = RandomStep(&random, 20, 1);
    const memc_replay_backend backend = device.Backend();
    engine = memc_replay_create(&backend);
    AddPlan(engine, 0, step);
    memc_replay_begin_step(engine, 0);
  }
  memc_replay_block Ask(size_t i) const {
    memc_replay_block block;
    memc_replay_allocate(engine, step.bytes[i], 0, 0, &block);
    return block;
  }

  HostDevice device;
  Step step;
  memc_replay_engine* engine;
};

TEST(AForkedChildIsServedNatively) {
  Served served;
  const memc_replay_block before = served.Ask(0);
  CHECK(before.address != nullptr);
  const pid_t child = fork();
  if (child == 0) {
    const bool native = served.Ask(1).address == nullptr;
    const bool passes = memc_replay_begin_step(served.engine, 0) == MEMC_REPLAY_PASS;
    memc_replay_record_stream(before.ticket, 3);
    memc_replay_free(before.ticket);
    const bool kept = memc_replay_destroy(served.engine) == 1 && served.device.arena_bytes() > 0;
    _exit(native && passes && kept ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK_EQ(status, 0);
  CHECK(served.Ask(1).address != nullptr);
  memc_replay_destroy(served.engine);
}

TEST(AnAbandonedBackendIsNotCalled) {
  Served served;
  const memc_replay_block block = served.Ask(0);
  memc_replay_record_stream(block.ticket, 3);
  memc_replay_abandon(served.engine);
  memc_replay_free(block.ticket);
  CHECK_EQ(served.device.events(), 0);
  CHECK_EQ(memc_replay_destroy(served.engine), 0);
  CHECK(served.device.arena_bytes() > 0);
}

// As one in Python may, when it collects garbage.
TEST(ABackendMayFreeBlocks) {
  static std::vector<uint64_t> garbage;
  Served served;
  memc_replay_backend backend = served.device.Backend();
  backend.record_event = [](void*, uint64_t, uint64_t) -> uint64_t {
    const std::vector<uint64_t> found = std::move(garbage);
    garbage.clear();
    for (const uint64_t ticket : found) memc_replay_free(ticket);
    return 0;
  };
  memc_replay_engine* engine = memc_replay_create(&backend);
  Step step{{512, 512, 512}, {0, 0, 0}, {3, 3, 3}, {}, 0};
  PlaceFirstFit(&step);
  AddPlan(engine, 0, step);
  memc_replay_begin_step(engine, 0);
  memc_replay_block blocks[3];
  for (size_t i = 0; i < 3; ++i) {
    CHECK_EQ(memc_replay_allocate(engine, 512, 0, 0, &blocks[i]), 1);
    memc_replay_record_stream(blocks[i].ticket, 9);
  }
  garbage = {blocks[1].ticket, blocks[2].ticket};
  memc_replay_free(blocks[0].ticket);
  CHECK_EQ(memc_replay_live_blocks(engine, nullptr, 0), 0);
  CHECK_EQ(memc_replay_destroy(engine), 0);
  CHECK_EQ(memc_replay_destroy(served.engine), 0);
}

TEST(ABackendHasAllFunctions) {
  Served served;
  memc_replay_backend backend = served.device.Backend();
  backend.wait_event = nullptr;
  CHECK(memc_replay_create(&backend) == nullptr);
  CHECK(std::strstr(memc_replay_error(), "all six functions") != nullptr);
  CHECK_EQ(memc_replay_destroy(served.engine), 0);
}

}  // namespace
}  // namespace memc::tests
