// SPDX-License-Identifier: Apache-2.0
// Blocks that are alive, who had which bytes, and the end.
#include <mutex>

#include "replay/engine.h"

namespace memc::replay {

namespace {

Record* RecordOf(uint64_t ticket) { return reinterpret_cast<Record*>(ticket & ~uint64_t{1}); }

bool IsRecord(uint64_t ticket) { return (ticket & 1) != 0; }

}  // namespace

void Engine::Free(uint64_t ticket) {
  if (ticket == 0) return;
  if (IsRecord(ticket)) {
    Record* const record = RecordOf(ticket);
    record->log->Free(record);
    return;
  }
  Slot* const slot = reinterpret_cast<Slot*>(ticket);
  const uint32_t state = slot->state.load(std::memory_order_acquire);
  if (slot->record != nullptr) {
    slot->record->log->Free(slot->record);
    slot->record = nullptr;
  }
  uint32_t left = 0;
  if ((state & kElsewhere) != 0) left = slot->plan->engine->RecordUses(slot);
  // The slot may be given out, and its plan be deleted, as soon as this is done, unless it was
  // counted: then nothing is deleted any more.
  if ((slot->state.exchange(left, std::memory_order_acq_rel) & kCounted) != 0) {
    slot->plan->engine->LastOut();
  }
}

void Engine::RecordStream(uint64_t ticket, uint64_t stream) {
  if (ticket == 0) return;
  if (IsRecord(ticket)) {
    RecordOf(ticket)->log->UseOn(RecordOf(ticket), stream);
    return;
  }
  Slot* const slot = reinterpret_cast<Slot*>(ticket);
  if (slot->record != nullptr) slot->record->log->UseOn(slot->record, stream);
  if (slot->stream == stream) return;
  Engine* const engine = slot->plan->engine;
  const std::lock_guard<SpinLock> lock(engine->use_lock_);
  engine->several_streams_.store(true, std::memory_order_relaxed);
  for (uint32_t i = 0; i < slot->use_count; ++i) {
    if (slot->uses[i].stream == stream) return;
  }
  engine->AddUse(slot, stream);
  slot->state.fetch_or(kElsewhere, std::memory_order_relaxed);
}

void Engine::AddUse(Slot* slot, uint64_t stream) {
  if (slot->use_count == slot->uses.size()) slot->uses.push_back({stream, 0, false});
  StreamUse& use = slot->uses[slot->use_count++];
  use.stream = stream;
  use.recorded = false;
}

// Of a block that is about to be free, which nobody else touches: no lock is held, since a backend
// in Python may collect garbage, and so free other blocks. An event that cannot be recorded is
// tried again by whoever has to wait for it.
uint32_t Engine::RecordUses(Slot* slot) {
  if ((slot->live_state & kElsewhere) != 0) AddUse(slot, slot->stream);
  for (uint32_t i = 0; i < slot->use_count; ++i) {
    StreamUse& use = slot->uses[i];
    const uint64_t event = device_.RecordEvent(use.stream, use.event);
    if (event != 0) use = {use.stream, event, true};
  }
  return slot->use_count > 0 ? uint32_t{kUses} : 0;
}

bool Engine::InUse(const Arena* arena) const {
  bool found = false;
  EachPlan([&](const Plan* plan) { found = found || plan->CountLive(arena) > 0; });
  return found;
}

// Whether the bytes of the arena have no owner to look after: no block is alive in it, and one
// stream alone has used it.
bool Engine::Untouched() {
  if (several_streams_.load(std::memory_order_relaxed)) return false;
  bool found = false;
  EachPlan([&](Plan* plan) {
    if (plan->live_at_end > 0) plan->live_at_end = plan->CountLive(arenas_.current());
    found = found || plan->live_at_end > 0;
  });
  return !found;
}

// A slot is passed over.
void Engine::Break() {
  broken_ = true;
  if (mode_ == Mode::kFast) EnterChecked();
}

// From here on `owners_` is kept.
void Engine::EnterChecked() {
  const auto own = [&](int64_t first, int64_t end) {
    for (int64_t i = first; i < end; ++i) {
      if (plan_->slots[i].offset >= 0) Own(&plan_->slots[i]);
    }
  };
  if (fast_steps_ > 0) own(position_, plan_->count);  // In the step before.
  own(0, position_);
  fast_steps_ = 0;
  mode_ = Mode::kChecked;
  quick_ = false;
}

// Between steps: `owners_` as it is.
void Engine::Settle() {
  if (fast_steps_ == 0) return;
  for (int64_t i = 0; i < last_plan_->count; ++i) {
    if (last_plan_->slots[i].offset >= 0) Own(&last_plan_->slots[i]);
  }
  fast_steps_ = 0;
}

// The arena is another one.
void Engine::ForgetOwners() {
  owners_.Clear();
  fast_steps_ = 0;
  last_plan_ = nullptr;
  last_clean_ = false;
  several_streams_.store(false, std::memory_order_relaxed);
  arena_streams_.clear();
  streams_.Forget();
}

int64_t Engine::ReleaseArena() {
  if (!device_.in_its_process()) return 0;
  const std::lock_guard<SpinLock> lock(lock_);
  passing_ = true;
  CloseGaps();
  if (plan_ != nullptr) {
    EndReplay(false);
    plan_ = nullptr;
    mode_ = Mode::kNative;
    quick_ = false;
  }
  ForgetOwners();
  arenas_.Retire();
  return arenas_.Release([&](const Arena* arena) { return InUse(arena); });
}

bool Engine::Close() {
  if (!device_.in_its_process()) return true;
  const std::lock_guard<SpinLock> lock(lock_);
  EndLocked(false);
  passing_ = true;
  pending_.store(1, std::memory_order_relaxed);
  bool in_use = log_.CountLive() > 0;
  EachPlan([&](const Plan* plan) {
    for (int64_t i = 0; i < plan->count; ++i) {
      std::atomic<uint32_t>& state = plan->slots[i].state;
      uint32_t seen = state.load(std::memory_order_acquire);
      if ((seen & kLive) == 0) continue;
      pending_.fetch_add(1, std::memory_order_relaxed);
      while ((seen & kLive) != 0 && !state.compare_exchange_weak(seen, seen | kCounted)) {
      }
      if ((seen & kLive) != 0) {
        in_use = true;
      } else {
        pending_.fetch_sub(1, std::memory_order_relaxed);
      }
    }
  });
  LastOut();
  return in_use;
}

void Engine::LastOut() {
  if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) FreeAll();
}

void Engine::FreeAll() {
  EachPlan([&](Plan* plan) { DestroyEvents(plan); });
  arenas_.Retire();
  arenas_.Release([](const Arena*) { return false; });
}

}  // namespace memc::replay
