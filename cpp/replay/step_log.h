// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_REPLAY_STEP_LOG_H_
#define MEMC_REPLAY_STEP_LOG_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "replay/replay.h"

namespace memc::replay {

class StepLog;

// A request of a recorded step. What is atomic is written by whoever frees the block or uses it on
// another stream.
struct Record {
  StepLog* log = nullptr;
  int64_t bytes = 0;
  int64_t stream_class = 0;
  int64_t thread_class = 0;
  int64_t allocated = 0;
  int64_t slot = -1;
  int64_t step = 0;
  int64_t free_step = -1;              // Written before `freed`.
  std::atomic<int64_t> freed{kInUse};  // Clock. The last that a free touches.
  std::atomic<uint64_t> also_used{0};
  std::atomic<bool> counted{false};

  static constexpr int64_t kInUse = -1;
  bool live() const { return freed.load(std::memory_order_acquire) == kInUse; }
};

// What the last recorded steps asked for, and when it was freed. All but Free and UseOn are called
// under the engine's lock.
class StepLog {
 public:
  // Blocks freed from now on are freed in this step.
  void AtStep(int64_t step) { step_.store(step, std::memory_order_relaxed); }
  // A new step, in the place of the oldest.
  void Begin(int64_t key, int64_t step);
  Record* Add(int64_t bytes, uint64_t stream, int64_t thread_class, int64_t slot);
  // A step that was not completed is not kept.
  void End(bool completed);

  // Of the last step: a hash of bytes and stream classes.
  uint64_t hash() const { return steps_[last_].hash; }
  // As memc_replay_read_log.
  int64_t Read(int age, memc_replay_record* records, int64_t room, int64_t* key,
               int64_t* begin) const;

  // From any thread, while the block is alive.
  void Free(Record* record);
  void UseOn(Record* record, uint64_t stream);

  // Blocks alive that have records, and their bytes.
  int64_t CountLive() const;
  int64_t LiveBytes() const;

 private:
  struct Step {
    int64_t key = 0;
    int64_t begin = 0;
    uint64_t hash = 0;
    bool kept = false;
    std::vector<Record*> records;
  };

  int64_t ClassOf(uint64_t stream);
  void Drop(Step* step);

  std::array<Step, MEMC_REPLAY_LOGS + 1> steps_;
  size_t last_ = 0;
  int64_t number_ = 0;  // Of the step, as the engine counts.
  std::atomic<int64_t> step_{0};
  std::atomic<int64_t> clock_{0};
  std::array<std::atomic<uint64_t>, 62> streams_{};  // Of the step, by first appearance.
  std::atomic<size_t> stream_count_{0};

  std::deque<Record> all_;
  std::vector<Record*> unused_;
  std::vector<Record*> lingering_;  // Of steps dropped, for blocks that were alive then.
};

}  // namespace memc::replay

#endif  // MEMC_REPLAY_STEP_LOG_H_
