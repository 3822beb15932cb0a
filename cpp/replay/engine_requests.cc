// SPDX-License-Identifier: Apache-2.0
// How a request gets its block.
#include <algorithm>
#include <mutex>

#include "replay/engine.h"

namespace memc::replay {

namespace {

constexpr int64_t kLookAhead = 16;  // Slots after the position.
constexpr int64_t kLookBack = 32;   // Slots passed over last.
constexpr int64_t kMostTooLarge = 2;
constexpr int64_t kSmallerRun = 2;  // From which a request is taken for a smaller one at first.
constexpr size_t kMostStreamsKept = 64;

// Free, and whatever used it is on `stream`.
bool Idle(const Slot& slot, uint64_t stream) {
  return slot.state.load(std::memory_order_acquire) == 0 &&
         (slot.stream == stream || slot.stream == kNoStream);
}

}  // namespace

bool Engine::Allocate(int64_t bytes, uint64_t stream, int thread_class, memc_replay_block* block) {
  *block = {nullptr, 0};
  if (bytes <= 0 || !device_.in_its_process()) return false;
  const std::lock_guard<SpinLock> lock(lock_);
  if (quick_ && TakeNext(bytes, stream, block)) return true;
  return Request({bytes, stream, thread_class, position_}, block);
}

// The slot at the position, if nothing is to be done but to take it.
bool Engine::TakeNext(int64_t bytes, uint64_t stream, memc_replay_block* block) {
  if (position_ == plan_->count) return false;
  Slot& slot = plan_->slots[position_];
  if (slot.bytes != bytes || slot.offset < 0 || slot.state.load(std::memory_order_acquire) != 0 ||
      !streams_.Confirm(slot.stream_class, stream)) {
    return false;
  }
  const uint32_t* const end = plan_->end_pred(slot);
  for (const uint32_t* pred = plan_->first_pred(slot); pred != end; ++pred) {
    if (!Idle(plan_->slots[*pred], stream)) return false;
  }
  slot.stream = stream;
  slot.used = bytes;
  slot.arena = arena_;
  slot.state.store(slot.live_state | step_tag_, std::memory_order_release);
  block->address = arena_->base + slot.offset;
  block->ticket = reinterpret_cast<uint64_t>(&slot);
  ++position_;
  ++stats_.requests;
  ++stats_.hits;
  return true;
}

bool Engine::Request(const Asked& asked, memc_replay_block* block) {
  if (mode_ == Mode::kNative) return false;
  if (interrupted_ > 0) {
    ++stats_.interrupted;
    return false;
  }
  if (mode_ == Mode::kWatch) return ServeFromGap(asked, block) || Native(asked, -1, block);
  if (mode_ == Mode::kAwaiting && AwaitArena(asked, block)) return false;
  const bool served = Replay(asked, block);
  ++stats_.requests;
  return served;
}

bool Engine::Native(const Asked& asked, int64_t slot, memc_replay_block* block) {
  if (recording_) {
    Record* record = log_.Add(asked.bytes, asked.stream, asked.thread_class, slot);
    block->ticket = reinterpret_cast<uint64_t>(record) | 1;
  }
  return false;
}

bool Engine::Replay(const Asked& asked, memc_replay_block* block) {
  // Another key's plan that does not hold the step: its slots are no longer in the way.
  if (trial_ && natives_ > 0) return ServeFromGap(asked, block) || Native(asked, -1, block);
  const Match match = Find(asked);
  if (match.index < 0) {
    Note(match.cause, asked);
    return ServeBeside(asked, block);
  }
  Slot& slot = plan_->slots[match.index];
  const bool has_place = slot.offset >= 0;
  int failure = MeetStream(asked.stream) ? kPlanned : MEMC_REPLAY_EVENT_FAILED;
  if (failure == kPlanned) {
    streams_.Take(slot.stream_class, asked.stream);
    if (has_place) failure = Claim(&slot, asked.stream);
  }
  if (failure != kPlanned || match.cause != kPlanned) {
    Note(failure != kPlanned ? failure : match.cause, asked);
  }
  if (failure != kPlanned) Break();
  if (match.index == position_) ++position_;
  if (failure != kPlanned) return ServeBeside(asked, block);
  if (!has_place) {
    ++stats_.planned_native;
    return Native(asked, -1, block);
  }
  Give(&slot, asked, block);
  return true;
}

void Engine::Give(Slot* slot, const Asked& asked, memc_replay_block* block) {
  slot->stream = asked.stream;
  slot->used = asked.bytes;
  slot->arena = arena_;
  slot->use_count = 0;
  if (recording_) slot->record = log_.Add(asked.bytes, asked.stream, asked.thread_class, slot->row);
  slot->state.store(slot->live_state | step_tag_, std::memory_order_release);
  block->address = arena_->base + slot->offset;
  block->ticket = reinterpret_cast<uint64_t>(slot);
  ++stats_.hits;
}

bool Engine::Fits(const Slot& slot, const Asked& asked) const {
  return slot.bytes == asked.bytes && streams_.Takes(slot.stream_class, asked.stream);
}

bool Engine::IsSmaller(const Asked& asked) const {
  if (position_ == plan_->count) return false;
  const Slot& slot = plan_->slots[position_];
  return asked.bytes < slot.bytes && streams_.Takes(slot.stream_class, asked.stream) &&
         (plan_->key != key_ || slot.bytes <= kMostTooLarge * asked.bytes);
}

Engine::Match Engine::Find(const Asked& asked) {
  if (position_ < plan_->count && Fits(plan_->slots[position_], asked)) {
    smaller_run_ = 0;
    return {position_, kPlanned};
  }
  const bool smaller = IsSmaller(asked);
  // In a smaller batch equal sizes further on mean nothing.
  if (smaller && (plan_->key != key_ || smaller_run_ >= kSmallerRun)) {
    return {position_, MEMC_REPLAY_SMALLER};
  }
  // Back at first: after a jump that was none, what was passed over is asked for one by one.
  Match found = LookBack(asked);
  if (found.index < 0) found = LookAhead(asked);
  if (found.index >= 0) {
    smaller_run_ = 0;
    return found;
  }
  if (smaller) {
    ++smaller_run_;
    return {position_, MEMC_REPLAY_SMALLER};
  }
  return {-1, WhyNone(asked)};
}

Engine::Match Engine::LookBack(const Asked& asked) {
  const size_t least = skipped_.size() - std::min<size_t>(skipped_.size(), kLookBack);
  for (size_t i = skipped_.size(); i-- > least;) {
    const Slot& slot = plan_->slots[skipped_[i]];
    if (!Fits(slot, asked) || slot.thread_class != asked.thread_class) continue;
    const int64_t index = skipped_[i];
    skipped_.erase(skipped_.begin() + static_cast<std::ptrdiff_t>(i));
    return {index, MEMC_REPLAY_OUT_OF_ORDER};
  }
  return {-1, MEMC_REPLAY_UNPLANNED};
}

Engine::Match Engine::LookAhead(const Asked& asked) {
  const int64_t end = std::min(plan_->count, position_ + 1 + kLookAhead);
  for (int64_t index = position_ + 1; index < end; ++index) {
    const Slot& slot = plan_->slots[index];
    if (!Fits(slot, asked) || slot.thread_class != asked.thread_class) continue;
    Break();
    for (; position_ < index; ++position_) skipped_.push_back(position_);
    return {index, MEMC_REPLAY_OUT_OF_ORDER};
  }
  return {-1, MEMC_REPLAY_UNPLANNED};
}

int Engine::WhyNone(const Asked& asked) const {
  if (position_ == plan_->count) return MEMC_REPLAY_PAST_END;
  bool known = false;
  for (uint32_t c = 0; c < plan_->classes; ++c) known = known || streams_.Takes(c, asked.stream);
  if (!known) return MEMC_REPLAY_STREAM;
  const Slot& slot = plan_->slots[position_];
  const bool larger = asked.bytes > slot.bytes && streams_.Takes(slot.stream_class, asked.stream);
  return larger ? MEMC_REPLAY_LARGER : MEMC_REPLAY_UNPLANNED;
}

int Engine::Claim(Slot* slot, uint64_t stream) {
  if (slot->live()) return MEMC_REPLAY_BUSY;
  return mode_ == Mode::kFast ? ClaimFast(slot, stream) : ClaimChecked(slot, stream);
}

int Engine::ClaimFast(Slot* slot, uint64_t stream) {
  const uint32_t* const end = plan_->end_pred(*slot);
  for (const uint32_t* pred = plan_->first_pred(*slot); pred != end; ++pred) {
    if (plan_->slots[*pred].live()) return MEMC_REPLAY_BUSY;
  }
  for (const uint32_t* pred = plan_->first_pred(*slot); pred != end; ++pred) {
    if (!WaitFor(&plan_->slots[*pred], stream)) return MEMC_REPLAY_EVENT_FAILED;
  }
  return kPlanned;
}

int Engine::ClaimChecked(Slot* slot, uint64_t stream) {
  ++stats_.checked;
  const int64_t begin = slot->offset;
  if (!owners_.Each(begin, slot->end(), [](const Slot* owner) { return !owner->live(); })) {
    return MEMC_REPLAY_BUSY;
  }
  if (!owners_.Each(begin, slot->end(), [&](Slot* owner) { return WaitFor(owner, stream); })) {
    return MEMC_REPLAY_EVENT_FAILED;
  }
  Own(slot);
  return kPlanned;
}

// The first block on a further stream waits for all that the first stream of the arena was given:
// who owned which bytes before is not kept as long as there is one stream alone.
bool Engine::MeetStream(uint64_t stream) {
  if (std::find(arena_streams_.begin(), arena_streams_.end(), stream) != arena_streams_.end()) {
    return true;
  }
  if (!arena_streams_.empty()) {
    const uint64_t event = device_.RecordEvent(arena_streams_[0], 0);
    const bool done = event != 0 && device_.WaitEvent(stream, event);
    device_.DestroyEvent(event);
    if (!done) return false;
    ++stats_.waits;
    several_streams_.store(true, std::memory_order_relaxed);
  }
  if (arena_streams_.size() == kMostStreamsKept) arena_streams_.resize(1);
  arena_streams_.push_back(stream);
  return true;
}

// `stream` waits for all that used the slot, which is free.
bool Engine::WaitFor(Slot* slot, uint64_t stream) {
  if (slot->stream == kNoStream) return true;
  bool own = slot->stream == stream;
  for (uint32_t i = 0; i < slot->use_count; ++i) own = own || slot->uses[i].stream == slot->stream;
  if (!own) {
    AddUse(slot, slot->stream);
    slot->state.store(kUses, std::memory_order_relaxed);
  }
  for (uint32_t i = 0; i < slot->use_count; ++i) {
    StreamUse& use = slot->uses[i];
    if (use.stream == stream) continue;
    if (!use.recorded) {
      const uint64_t event = device_.RecordEvent(use.stream, use.event);
      if (event == 0) return false;
      use = {use.stream, event, true};
    }
    if (!device_.WaitEvent(stream, use.event)) return false;
    ++stats_.waits;
  }
  return true;
}

void Engine::Note(int cause, const Asked& asked) {
  if (cause == MEMC_REPLAY_SMALLER && plan_->key != key_) return;  // It stands in for larger ones.
  const int64_t request = stats_.requests - requests_before_;
  const int64_t at = asked.position;
  const int64_t planned = at == plan_->count ? 0 : plan_->slots[at].bytes;
  ++stats_.counts[cause];
  memc_replay_cause& first = stats_.first[cause];
  if (first.step == 0) {
    first = {step_, request, at, asked.bytes, planned, static_cast<int64_t>(asked.stream)};
  }
  if (cause == MEMC_REPLAY_SMALLER) return;
  ++(cause == MEMC_REPLAY_OUT_OF_ORDER ? out_of_order_ : natives_);
  if (change_.step == 0) change_ = {step_, request, planned, asked.bytes};
}

}  // namespace memc::replay
