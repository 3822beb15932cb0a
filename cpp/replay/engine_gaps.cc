// SPDX-License-Identifier: Apache-2.0
// Steps that have an arena, but no plan of their own, or a plan, but no arena yet.
#include <algorithm>

#include "replay/engine.h"

namespace memc::replay {

namespace {

constexpr int64_t kLeastGaps = 1024;  // Slots for a step's blocks.
constexpr int64_t kFew = 16;          // Requests beside a plan that may be native.

}  // namespace

// As Follow, for a step whose first requests are native: what the step before has left is freed
// meanwhile, and the arena is then made in its place.
void Engine::Await(Plan* plan) {
  ++stats_.replayed;
  Settle();
  plan_ = plan;
  arena_ = nullptr;
  streams_.BeginStep();
  skipped_.clear();
  broken_ = true;
  mode_ = Mode::kAwaiting;
  position_ = awaited_ = 0;
}

// Returns whether the request is native. Otherwise the arena is there.
bool Engine::AwaitArena(const Asked& asked, memc_replay_block* block) {
  if (awaited_ < plan_->arena_from) {
    ++awaited_;
    const Match match = Find(asked);
    if (match.index == position_) {
      streams_.Take(plan_->slots[position_].stream_class, asked.stream);
      ++position_;
    }
    ++stats_.requests;
    ++stats_.planned_native;
    Native(asked, -1, block);
    return true;
  }
  const int64_t position = position_;
  if (!EnsureArena(plan_)) {
    Note(MEMC_REPLAY_NO_ARENA, asked);
    EndReplay(false);
    plan_ = nullptr;
    mode_ = recording_ ? Mode::kWatch : Mode::kNative;
    Native(asked, -1, block);
    return true;
  }
  arena_ = arenas_.current();
  position_ = position;
  mode_ = Mode::kChecked;
  if (trial_) OpenGaps();
  return false;
}

void Engine::OpenGaps() {
  int64_t most = kLeastGaps;
  for (const auto& each : plans_) most = std::max(most, 2 * each->count);
  gaps_ = std::make_unique<Plan>(this, most);
  gaps_used_ = 0;
}

// A step is watched while the arena is there: it takes its blocks from what no block uses.
void Engine::WatchWithArena() {
  arena_ = arenas_.current();
  if (Untouched()) {
    owners_.Clear();
    fast_steps_ = 0;
  } else {
    Settle();
  }
  OpenGaps();
}

bool Engine::ServeFromGap(const Asked& asked, memc_replay_block* block) {
  if (gaps_ == nullptr || gaps_used_ == gaps_->count) return false;
  if (plan_ != nullptr) Break();
  const int64_t begin = owners_.BestFit(arena_->bytes, asked.bytes, kAlignment,
                                        [](const Slot* owner) { return !owner->live(); });
  if (begin < 0 || !MeetStream(asked.stream)) return false;
  Slot& slot = gaps_->slots[gaps_used_];
  slot.offset = begin;
  slot.bytes = asked.bytes;
  if (!owners_.Each(begin, slot.end(), [&](Slot* owner) { return WaitFor(owner, asked.stream); })) {
    return false;
  }
  ++gaps_used_;
  ++stats_.from_gaps;
  if (plan_ == nullptr) --stats_.hits;  // Of replayed steps.
  Own(&slot);
  Give(&slot, asked, block);
  return true;
}

// A request that the plan has no bytes for. In a step that is another one than planned they are
// many, and would be a step's memory beside the arena.
bool Engine::ServeBeside(const Asked& asked, memc_replay_block* block) {
  if (gaps_ == nullptr && natives_ > std::max(kFew, plan_->count / 20)) OpenGaps();
  return ServeFromGap(asked, block) || Native(asked, -1, block);
}

// The step ends, or its arena goes.
void Engine::CloseGaps() {
  if (gaps_ == nullptr) return;
  if (gaps_used_ > 0) {
    last_clean_ = false;
    gaps_->live_at_end = gaps_->CountLive(nullptr);
    retired_.push_back(std::move(gaps_));
  }
  gaps_ = nullptr;
}

}  // namespace memc::replay
