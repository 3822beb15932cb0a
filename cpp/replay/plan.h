// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_REPLAY_PLAN_H_
#define MEMC_REPLAY_PLAN_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "replay/replay.h"

namespace memc::replay {

class Engine;
struct Plan;
struct Record;

constexpr uint64_t kNoStream = ~uint64_t{0};
constexpr uint32_t kMostStreams = 32;  // Classes of a plan: bits of a mask.
constexpr int64_t kAlignment = 512;    // Bytes: of offsets.

struct Arena {
  char* base = nullptr;
  int64_t bytes = 0;
};

// Bits of a slot's state. A slot whose state is 0 is free, and its bytes are as soon as the stream
// that used them gets there.
enum : uint32_t {
  kLive = 1,
  kCounted = 2,    // Alive when the engine ended: its free is counted.
  kElsewhere = 4,  // While alive: others may wait for its streams, so its free records events.
  kUses = 8,       // While free: `uses` says what to wait for.
  kStepShift = 8,  // While alive: the number of the step that took it, in the bits above.
};
constexpr uint32_t kStepMask = ~uint32_t{0} >> kStepShift;

// What a stream was given before a slot's free.
struct StreamUse {
  uint64_t stream;
  uint64_t event;  // 0: none made yet.
  bool recorded;   // Otherwise recorded when someone has to wait, which covers as much.
};

// A request of a plan, and the block that it is served with. The first line is all that a request
// and a free touch as long as nothing deviates.
struct alignas(64) Slot {
  std::atomic<uint32_t> state{0};
  uint32_t stream_class = 0;
  uint64_t stream = kNoStream;  // Of the block, or of the last one.
  int64_t bytes = 0;            // As planned.
  int64_t used = 0;             // As asked for by the block.
  int64_t offset = -1;
  uint32_t first_pred = 0;
  uint32_t live_state = kLive;  // The bits with which it becomes alive.
  Plan* plan = nullptr;
  Arena* arena = nullptr;

  Record* record = nullptr;     // Of the block, if its step is recorded.
  std::vector<StreamUse> uses;  // The first `use_count` count; others keep their events.
  uint32_t use_count = 0;
  int64_t row = 0;  // In the plan's columns.
  int64_t thread_class = 0;
  bool escaping = false;

  bool live() const { return (state.load(std::memory_order_acquire) & kLive) != 0; }
  int64_t end() const { return offset + bytes; }
};

// A sequence of slots.
struct Plan {
  // Throws std::invalid_argument if a column is wrong.
  Plan(Engine* owner, int64_t its_key, const memc_replay_plan& columns);
  // Slots without places, for blocks that are not planned.
  Plan(Engine* owner, int64_t slot_count);

  Engine* const engine;
  const int64_t key;
  const int64_t arena_bytes;
  const int64_t arena_from = -1;  // As in memc_replay_plan.
  int64_t count = 0;
  uint32_t classes = 0;
  std::unique_ptr<Slot[]> slots;
  // Of slot i from slots[i].first_pred to slots[i + 1].first_pred: those that held its bytes last
  // before it, in this step or the one before it. It is its own one if no other came between.
  std::vector<uint32_t> preds;

  int64_t last_used = 0;    // Number of a step.
  int64_t live_at_end = 0;  // At the end of its last step: later ones can only be fewer.
  int64_t arena_retry = 0;  // The step in which to ask again for an arena.
  int64_t bad_steps = 0;    // One after another, which deviated too much.

  const uint32_t* first_pred(const Slot& slot) const { return preds.data() + slot.first_pred; }
  // The slot after the last is there for this.
  const uint32_t* end_pred(const Slot& slot) const { return preds.data() + (&slot)[1].first_pred; }

  // Slots alive in `arena`; in any if that is null.
  int64_t CountLive(const Arena* arena) const;

 private:
  void FindPreds();
};

}  // namespace memc::replay

#endif  // MEMC_REPLAY_PLAN_H_
