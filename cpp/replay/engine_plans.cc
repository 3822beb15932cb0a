// SPDX-License-Identifier: Apache-2.0
// Plans that come and go, and what is told about them.
#include <algorithm>
#include <mutex>
#include <utility>

#include "replay/engine.h"

namespace memc::replay {

namespace {

constexpr size_t kMostPlans = 32;
constexpr size_t kMostKeys = 1024;
constexpr std::ptrdiff_t kMostRetired = 4;  // Without blocks, that streams may still be at.

}  // namespace

void Engine::AddPlan(int64_t key, const memc_replay_plan& columns) {
  auto made = std::make_unique<Plan>(this, key, columns);
  if (!device_.in_its_process()) return;
  const std::lock_guard<SpinLock> lock(lock_);
  Key& state = keys_[key];
  if (state.plan != nullptr) {
    RetirePlan(state.plan);
    ++stats_.replans;
    state.replanned = state.steps;
  }
  if (plans_.size() == kMostPlans) Evict();
  state.plan = made.get();
  state.stand_in = nullptr;
  state.given_up = false;
  made->last_used = step_;
  plans_.push_back(std::move(made));
  passing_ = false;
}

bool Engine::DropPlan(int64_t key) {
  if (!device_.in_its_process()) return false;
  const std::lock_guard<SpinLock> lock(lock_);
  const auto found = keys_.find(key);
  if (found == keys_.end() || found->second.plan == nullptr) return false;
  RetirePlan(found->second.plan);
  return true;
}

// No step follows it from the next on.
void Engine::RetirePlan(Plan* plan) {
  for (auto& [key, state] : keys_) {
    if (state.plan == plan) state.plan = nullptr;
    if (state.stand_in == plan) {
      state.stand_in = nullptr;
      state.tried = false;
    }
  }
  const auto found = std::find_if(plans_.begin(), plans_.end(),
                                  [&](const auto& each) { return each.get() == plan; });
  retired_.push_back(std::move(*found));
  plans_.erase(found);
}

void Engine::Evict() {
  Plan* oldest = nullptr;
  for (const auto& plan : plans_) {
    const bool older = oldest == nullptr || plan->last_used < oldest->last_used;
    if (plan.get() != plan_ && older) oldest = plan.get();
  }
  RetirePlan(oldest);
  ++stats_.evicted;
}

// Deletes, between steps, what is not needed any more.
void Engine::Tidy() {
  if (keys_.size() > kMostKeys) {
    for (auto at = keys_.begin(); at != keys_.end();) {
      at = at->second.plan == nullptr ? keys_.erase(at) : std::next(at);
    }
  }
  if (arenas_.any_retired()) {
    arenas_.Release([&](const Arena* arena) { return InUse(arena); });
  }
  if (plans_.empty() && arenas_.current() != nullptr && !InUse(arenas_.current())) {
    ForgetOwners();
    arenas_.Retire();
    arenas_.Release([&](const Arena* arena) { return InUse(arena); });
  }
  const bool last_is_retired = std::any_of(
      retired_.begin(), retired_.end(), [&](const auto& plan) { return plan.get() == last_plan_; });
  if (last_is_retired) {
    Settle();
    last_plan_ = nullptr;
  }
  const auto gone = std::partition(retired_.begin(), retired_.end(),
                                   [](const auto& plan) { return plan->CountLive(nullptr) > 0; });
  // Others' blocks need not wait for a plan's streams if all are one, or the device is idle.
  if (several_streams_.load(std::memory_order_relaxed)) {
    if (retired_.end() - gone <= kMostRetired) return;
    device_.Synchronize();
  }
  owners_.Remove([&](const Slot* slot) {
    return std::any_of(gone, retired_.end(),
                       [&](const auto& plan) { return plan.get() == slot->plan; });
  });
  for (auto plan = gone; plan != retired_.end(); ++plan) DestroyEvents(plan->get());
  retired_.erase(gone, retired_.end());
}

void Engine::DestroyEvents(Plan* plan) {
  for (int64_t i = 0; i < plan->count; ++i) {
    for (const StreamUse& use : plan->slots[i].uses) device_.DestroyEvent(use.event);
  }
}

int64_t Engine::Escaping(int64_t key, int64_t* rows, int64_t room) {
  const std::lock_guard<SpinLock> lock(lock_);
  const auto found = keys_.find(key);
  if (found == keys_.end() || found->second.plan == nullptr) return 0;
  const Plan& plan = *found->second.plan;
  int64_t count = 0;
  for (int64_t i = 0; i < plan.count; ++i) {
    if (!plan.slots[i].escaping) continue;
    if (count < room) rows[count] = plan.slots[i].row;
    ++count;
  }
  return count;
}

int64_t Engine::ReadLog(int age, memc_replay_record* records, int64_t room, int64_t* key,
                        int64_t* begin) {
  const std::lock_guard<SpinLock> lock(lock_);
  return log_.Read(age, records, room, key, begin);
}

void Engine::Stats(memc_replay_stats* stats) {
  const std::lock_guard<SpinLock> lock(lock_);
  *stats = stats_;
  stats->plans = static_cast<int64_t>(plans_.size());
  stats->arena_bytes = arenas_.current() == nullptr ? 0 : arenas_.current()->bytes;
  stats->retired_bytes = arenas_.retired_bytes();
  EachPlan([&](const Plan* plan) {
    for (int64_t i = 0; i < plan->count; ++i) {
      if (!plan->slots[i].live()) continue;
      ++stats->live_slots;
      stats->live_bytes += plan->slots[i].used;
    }
  });
}

std::string Engine::Warning() {
  const std::lock_guard<SpinLock> lock(lock_);
  return warning_;
}

bool Engine::FindArena(const void* address, void** base, int64_t* bytes) {
  if (!device_.in_its_process()) return false;
  const std::lock_guard<SpinLock> lock(lock_);
  const Arena* const found = arenas_.Find(static_cast<const char*>(address));
  if (found == nullptr) return false;
  *base = found->base;
  *bytes = found->bytes;
  return true;
}

int64_t Engine::LiveBlocks(memc_replay_live* blocks, int64_t room) {
  const std::lock_guard<SpinLock> lock(lock_);
  int64_t count = 0;
  EachPlan([&](const Plan* plan) {
    for (int64_t i = 0; i < plan->count; ++i) {
      const Slot& slot = plan->slots[i];
      if (!slot.live()) continue;
      if (count < room) blocks[count] = {slot.arena->base + slot.offset, slot.used, slot.stream};
      ++count;
    }
  });
  return count;
}

}  // namespace memc::replay
