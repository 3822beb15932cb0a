// SPDX-License-Identifier: Apache-2.0
// The allocator of two C functions, with an interpreter and a device that are counters.
#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "check.h"
#include "replay/functions.h"
#include "replay_cases.h"

namespace memc::tests {
namespace {

struct Host {
  std::mutex mutex;
  intptr_t stream = 0;
  int64_t native = 0, freed = 0, arenas = 0, events = 0, waits = 0, raised = 0;
  bool out_of_memory = false;
  void* raised_type = nullptr;
  void* raised_error = nullptr;
};
Host host;

void* Bytes(int64_t bytes) {
  return std::aligned_alloc(512, static_cast<size_t>((bytes + 511) / 512 * 512));
}

memc_functions* Made() {
  host.stream = host.native = host.freed = host.arenas = host.events = host.waits = host.raised = 0;
  host.out_of_memory = false;
  memc_functions_host functions{};
  functions.device = 2;
  functions.current_stream = [] { return host.stream; };
  functions.allocate = [](int64_t bytes) -> void* {
    if (host.out_of_memory) {
      memc_functions_explain(&host, &host.raised);
      return nullptr;
    }
    const std::lock_guard<std::mutex> lock(host.mutex);
    ++host.native;
    return Bytes(bytes);
  };
  functions.free = [](void* address) {
    const std::lock_guard<std::mutex> lock(host.mutex);
    ++host.freed;
    std::free(address);
  };
  functions.allocate_arena = [](void*, int64_t bytes) {
    ++host.arenas;
    return Bytes(bytes);
  };
  functions.free_arena = [](void*, void* address, int64_t) {
    --host.arenas;
    std::free(address);
  };
  functions.synchronize = [](void*) {};
  functions.create_event = [](void** event, unsigned) {
    *event = reinterpret_cast<void*>(++host.events);
    return 0;
  };
  functions.record = [](void*, void*) { return 0; };
  functions.wait = [](void*, void*, unsigned) {
    ++host.waits;
    return 0;
  };
  functions.destroy_event = [](void*) {
    --host.events;
    return 0;
  };
  functions.raise = [](void* type, void* error) {
    ++host.raised;
    host.raised_type = type;
    host.raised_error = error;
  };
  // What is made stays, by its contract; kept here, it is no leak.
  static auto* const made = new std::vector<memc_functions*>;
  made->push_back(memc_functions_create(&functions));
  return made->back();
}

Step Small() {
  Step step{{512, 1024, 512}, {0, 0, 0}, {3, 3, 3}, {}, 0};
  PlaceFirstFit(&step);
  return step;
}

TEST(BlocksComeFromTheArenaAndElsewhere) {
  memc_functions* const functions = Made();
  memc_replay_engine* const engine = memc_functions_engine(functions);
  const Step step = Small();
  AddPlan(engine, 0, step);
  memc_functions_lead(functions);
  memc_replay_begin_step(engine, 0);
  std::vector<void*> blocks;
  for (const int64_t bytes : step.bytes) {
    blocks.push_back(memc_functions_allocate(functions, static_cast<size_t>(bytes), 2));
  }
  CHECK_EQ(host.native, 0);
  CHECK_EQ(static_cast<char*>(blocks[1]) - static_cast<char*>(blocks[0]),
           step.offsets[1] - step.offsets[0]);
  void* const more = memc_functions_allocate(functions, 100, 2);       // Past the plan's end.
  void* const elsewhere = memc_functions_allocate(functions, 512, 1);  // On another device.
  CHECK_EQ(host.native, 2);
  CHECK_EQ(memc_functions_live(functions), 5);
  for (void* block : blocks) memc_functions_free(functions, block, 2);
  memc_functions_free(functions, more, 2);
  memc_functions_free(functions, elsewhere, 1);
  memc_functions_free(functions, elsewhere, 1);  // Known no more.
  CHECK_EQ(host.freed, 2);
  memc_replay_end_step(engine, 1);
  memc_functions_close(functions);
  CHECK_EQ(host.arenas, 0);
  CHECK_EQ(memc_functions_live(functions), 0);
}

TEST(StreamsThatTakeEachOthersBytesWait) {
  memc_functions* const functions = Made();
  memc_replay_engine* const engine = memc_functions_engine(functions);
  Step step{{512, 512}, {0, 1}, {1, 2}, {0, 0}, 512};
  AddPlan(engine, 0, step);
  memc_replay_begin_step(engine, 0);
  void* const first = memc_functions_allocate(functions, 512, 2);
  memc_functions_free(functions, first, 2);
  host.stream = 7;
  void* const second = memc_functions_allocate(functions, 512, 2);
  CHECK(first == second);
  CHECK(host.waits > 0);
  memc_functions_free(functions, second, 2);
  memc_functions_close(functions);
  CHECK_EQ(host.events, 0);
}

TEST(WithoutMemoryWhatWasExplainedIsRaised) {
  memc_functions* const functions = Made();
  memc_replay_engine* const engine = memc_functions_engine(functions);
  memc_replay_begin_step(engine, 0);  // It is watched: the request has a record, which ends.
  host.out_of_memory = true;
  CHECK(memc_functions_allocate(functions, 512, 2) == reinterpret_cast<void*>(~uint64_t{0}));
  CHECK_EQ(host.raised, 1);
  CHECK(host.raised_type == &host && host.raised_error == &host.raised);
  CHECK_EQ(memc_functions_live(functions), 0);
  memc_replay_end_step(engine, 1);
  memc_functions_close(functions);
}

TEST(BlocksOutliveTheService) {
  memc_functions* const functions = Made();
  memc_replay_engine* const engine = memc_functions_engine(functions);
  AddPlan(engine, 0, Small());
  memc_replay_begin_step(engine, 0);
  void* const block = memc_functions_allocate(functions, 512, 2);
  memc_functions_close(functions);
  CHECK_EQ(host.arenas, 1);
  void* const after = memc_functions_allocate(functions, 512, 2);
  CHECK_EQ(host.native, 1);
  memc_functions_free(functions, block, 2);
  CHECK_EQ(host.arenas, 0);
  memc_functions_free(functions, after, 2);
  CHECK_EQ(host.freed, 1);
}

TEST(AfterTheInterpreterNothingIsCalled) {
  memc_functions* const functions = Made();
  void* const block = memc_functions_allocate(functions, 512, 2);
  memc_functions_abandon(functions);
  memc_functions_free(functions, block, 2);
  CHECK_EQ(host.freed, 0);
  std::free(block);
}

TEST(PausedRequestsAreNative) {
  memc_functions* const functions = Made();
  memc_replay_engine* const engine = memc_functions_engine(functions);
  AddPlan(engine, 0, Small());
  memc_functions_pause(functions, 1);
  memc_replay_begin_step(engine, 0);
  void* const block = memc_functions_allocate(functions, 512, 2);
  CHECK_EQ(host.native, 1);
  memc_functions_pause(functions, 0);
  void* const served = memc_functions_allocate(functions, 512, 2);
  CHECK_EQ(host.native, 1);
  memc_functions_free(functions, block, 2);
  memc_functions_free(functions, served, 2);
  memc_functions_close(functions);
}

TEST(ThreadsAskAndFreeWhileStepsBegin) {
  memc_functions* const functions = Made();
  memc_replay_engine* const engine = memc_functions_engine(functions);
  AddPlan(engine, 0, Small());
  const auto work = [&] {
    for (int i = 0; i < 2000; ++i) {
      void* const block = memc_functions_allocate(functions, 512, 2);
      *static_cast<int*>(block) = i;
      memc_functions_free(functions, block, 2);
    }
  };
  std::thread one(work), other(work);
  for (int i = 0; i < 200; ++i) {
    memc_functions_pause(functions, 1);
    memc_replay_begin_step(engine, 0);
    memc_functions_pause(functions, 0);
    std::this_thread::yield();
    memc_replay_end_step(engine, 1);
  }
  one.join();
  other.join();
  memc_functions_close(functions);
  CHECK_EQ(memc_functions_live(functions), 0);
  CHECK_EQ(host.native, host.freed);
  CHECK_EQ(host.arenas, 0);
}

TEST(AHostHasAllFunctions) {
  memc_functions_host functions{};
  CHECK(memc_functions_create(&functions) == nullptr);
}

}  // namespace
}  // namespace memc::tests
