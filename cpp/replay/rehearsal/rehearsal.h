// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_REPLAY_REHEARSAL_REHEARSAL_H_
#define MEMC_REPLAY_REHEARSAL_REHEARSAL_H_

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "replay/rehearsal/host_device.h"
#include "replay/replay.h"

namespace memc::replay {

// An application on a HostDevice: its steps are columns of events.
class Rehearsal {
 public:
  enum Kind : int64_t {
    kBeginStep = 0,  // `block`: the key. Result: what the step does.
    kEndStep = 1,    // `block`: whether it was completed. Result: the bits of memc_replay_end_step.
    kAllocate = 2,   // Result: the offset in the arena, -1 if native.
    kFree = 3,
    kFreeElsewhere = 4,  // By another thread, which gets to it when it does.
    kUse = 5,            // Work on `stream`, which the block's own stream is waited for.
    kInterrupt = 6,
    kResume = 7,
    kJoin = 8,         // Once the other thread has done its frees.
    kReleaseArena = 9  // Result: the bytes.
  };
  struct Events {
    int64_t count;
    const int64_t* kinds;
    const int64_t* blocks;
    const int64_t* bytes;
    const int64_t* streams;
    const int64_t* threads;
  };

  Rehearsal(int64_t capacity, bool fills);
  ~Rehearsal();
  Rehearsal(const Rehearsal&) = delete;
  Rehearsal& operator=(const Rehearsal&) = delete;

  // Throws std::invalid_argument for an event that cannot be.
  void Play(const Events& events, int64_t* results);
  // Nanoseconds for each allocate and free among the events, which are nothing else; the least of
  // `repeats` runs. Nothing is watched: the blocks are only asked for and freed.
  double Time(const Events& events, int64_t key, int64_t repeats);

  memc_replay_engine* engine() const { return engine_; }
  HostDevice& device() { return device_; }

 private:
  struct Block {
    uint64_t ticket = 0;
    uint64_t stream = 0;
    bool served = false;
    bool alive = false;
  };

  int64_t PlayOne(const Events& events, int64_t i);
  int64_t Allocate(int64_t number, int64_t bytes, uint64_t stream, int thread_class);
  Block Taken(int64_t number);
  void Free(int64_t number, const Block& block);
  void Serve();
  void Join();

  HostDevice device_;
  memc_replay_engine* engine_;
  std::unordered_map<int64_t, Block> blocks_;

  // The other thread.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::pair<int64_t, Block>> to_free_;
  bool busy_ = false;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace memc::replay

#endif  // MEMC_REPLAY_REHEARSAL_REHEARSAL_H_
