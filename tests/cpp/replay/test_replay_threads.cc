// SPDX-License-Identifier: Apache-2.0
// Blocks are asked for by two threads and freed by a third while steps begin and end, plans are
// replaced, and the engine ends.
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "check.h"
#include "replay/rehearsal/host_device.h"
#include "replay_cases.h"

namespace memc::tests {
namespace {

using replay::HostDevice;

// Frees what it is given, in a thread of its own.
class Freer {
 public:
  explicit Freer(HostDevice* device) : device_(device), thread_([this] { Serve(); }) {}
  ~Freer() {
    Give({-1, 0, false});
    thread_.join();
  }

  struct Block {
    int64_t number;
    uint64_t ticket;
    bool served;
  };

  void Give(Block block) {
    const std::lock_guard<std::mutex> lock(mutex_);
    blocks_.push_back(block);
    changed_.notify_all();
  }

 private:
  void Serve() {
    for (;;) {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return !blocks_.empty(); });
      const Block block = blocks_.front();
      blocks_.pop_front();
      lock.unlock();
      if (block.number < 0) return;
      if (block.served) device_->End(block.number);
      memc_replay_free(block.ticket);
    }
  }

  HostDevice* device_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Block> blocks_;
  std::thread thread_;
};

class Application {
 public:
  Application() : device_(int64_t{1} << 30, true) {
    const memc_replay_backend backend = device_.Backend();
    engine = memc_replay_create(&backend);
    freer_ = std::make_unique<Freer>(&device_);
  }

  Freer::Block Ask(int64_t bytes, uint64_t stream, int thread_class) {
    memc_replay_block block;
    const bool served = memc_replay_allocate(engine, bytes, stream, thread_class, &block) != 0;
    const int64_t number = next_.fetch_add(1);
    if (served) {
      device_.Begin(number, static_cast<char*>(block.address), bytes);
      device_.Work(number, stream);
      ++hits;
    }
    return {number, block.ticket, served};
  }

  // Requests [first, end) of a step, on the calling thread.
  void Run(const Step& step, int64_t first, int64_t end, int thread_class, uint32_t seed) {
    Random random(seed);
    for (int64_t i = first; i < end; ++i) {
      const size_t at = static_cast<size_t>(i);
      const uint64_t stream = static_cast<uint64_t>(step.streams[at]);
      const Freer::Block block = Ask(step.bytes[at], stream, thread_class);
      if (random.Below(8) == 0) {
        const uint64_t other = stream + 7;
        device_.Follow(other, stream);
        if (block.served) device_.Work(block.number, other);
        memc_replay_record_stream(block.ticket, other);
      }
      freer_->Give(block);
    }
  }

  void StopFreeing() { freer_.reset(); }
  HostDevice& device() { return device_; }

  memc_replay_engine* engine;
  std::atomic<int64_t> hits{0};

 private:
  HostDevice device_;
  std::atomic<int64_t> next_{0};
  std::unique_ptr<Freer> freer_;
};

TEST(ThreadsThatAskAndFreeNeverShareBytes) {
  Random random(3);
  Application application;
  const Step steps[] = {RandomStep(&random, 60, 1), RandomStep(&random, 60, 2)};
  CHECK_EQ(AddPlan(application.engine, 0, steps[0]), 0);
  for (uint32_t round = 0; round < 60; ++round) {
    const Step& step = steps[round / 20 % 2];
    memc_replay_begin_step(application.engine, round % 5 == 4);
    application.Run(step, 0, 20, 0, round);
    std::thread backward([&] { application.Run(step, 20, 50, 1, round + 1000); });
    if (round % 3 == 0) application.Run(step, 50, 60, 0, round + 2000);  // At the same time.
    if (round % 7 == 3) CHECK_EQ(AddPlan(application.engine, round % 2, steps[round % 2]), 0);
    memc_replay_stats stats;
    memc_replay_get_stats(application.engine, &stats);
    backward.join();
    memc_replay_end_step(application.engine, round % 11 != 10);
  }
  CHECK(application.hits > 500);
  application.StopFreeing();
  CHECK(application.device().first_wrong().empty());
  CHECK_EQ(memc_replay_destroy(application.engine), 0);
  CHECK_EQ(application.device().arena_bytes(), 0);
  CHECK_EQ(application.device().events(), 0);
}

TEST(BlocksOutliveTheEngine) {
  Random random(4);
  const Step step = RandomStep(&random, 40, 1);
  for (int round = 0; round < 20; ++round) {
    Application application;
    CHECK_EQ(AddPlan(application.engine, 0, step), 0);
    memc_replay_begin_step(application.engine, 0);
    const Freer::Block kept = application.Ask(step.bytes[0], 0, 0);
    CHECK(kept.served);
    application.Run(step, 1, 40, 0, 5);
    CHECK_EQ(memc_replay_destroy(application.engine), 1);
    CHECK_EQ(application.device().arena_bytes(), step.arena);
    application.device().End(kept.number);
    memc_replay_free(kept.ticket);
    application.StopFreeing();
    CHECK_EQ(application.device().arena_bytes(), 0);
    CHECK(application.device().first_wrong().empty());
  }
}

}  // namespace
}  // namespace memc::tests
