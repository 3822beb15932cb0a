// SPDX-License-Identifier: Apache-2.0
// What becomes of a step when it begins and when it ends.
#include <algorithm>
#include <mutex>
#include <string>

#include "replay/engine.h"

namespace memc::replay {

namespace {

constexpr double kMostDeviating = 0.05;  // Of a step's requests.
constexpr int64_t kBadSteps = 3;         // In a row, after which a plan is made anew.
constexpr int64_t kPatience = 10;        // Steps within which no plan is made anew twice.
constexpr int64_t kEscapes = 2;          // Steps that a block outlives.
constexpr int64_t kArenaRetry = 16;      // Steps after which an arena is asked for again.

}  // namespace

int Engine::BeginStep(int64_t key) {
  if (!device_.in_its_process()) return MEMC_REPLAY_PASS;
  const std::lock_guard<SpinLock> lock(lock_);
  if (in_step_) EndLocked(false);
  in_step_ = true;
  key_ = key;
  ++step_;
  ++stats_.steps;
  step_tag_ = (static_cast<uint32_t>(step_) & kStepMask) << kStepShift;
  log_.AtStep(step_);
  Tidy();
  Key& state = keys_[key];
  ++state.steps;
  requests_before_ = stats_.requests;
  natives_ = out_of_order_ = smaller_run_ = 0;
  trial_ = recording_ = false;
  int does = MEMC_REPLAY_PASS;
  if (!state.given_up && !passing_) {
    Plan* const plan = Choose(&state);
    if (plan == nullptr) {
      recording_ = true;
      mode_ = Mode::kWatch;
      if (arenas_.current() != nullptr) WatchWithArena();
      does = MEMC_REPLAY_WATCH;
    } else if (IsToWait(plan)) {
      recording_ = record_always_ || trial_ || plan->bad_steps > 0;
      Await(plan);
      does = MEMC_REPLAY_REPLAY;
    } else if (EnsureArena(plan)) {
      recording_ = record_always_ || trial_ || plan->bad_steps > 0;
      Follow(plan);
      does = MEMC_REPLAY_REPLAY;
    } else {
      trial_ = false;
      ++stats_.counts[MEMC_REPLAY_NO_ARENA];
      memc_replay_cause& first = stats_.first[MEMC_REPLAY_NO_ARENA];
      if (first.step == 0) first = {step_, 0, 0, plan->arena_bytes, plan->arena_bytes, 0};
    }
  }
  if (recording_) log_.Begin(key, step_);
  UpdateQuick();
  return does;
}

int Engine::EndStep(bool completed) {
  if (!device_.in_its_process()) return 0;
  const std::lock_guard<SpinLock> lock(lock_);
  return EndLocked(completed);
}

int Engine::EndLocked(bool completed) {
  if (!in_step_) return 0;
  int found = 0;
  if (plan_ != nullptr) found |= EndReplay(completed);
  CloseGaps();
  if (recording_) {
    log_.End(completed);
    if (completed) found |= JudgeLog(&keys_[key_]);
  }
  log_.AtStep(step_ + 1);
  in_step_ = quick_ = recording_ = false;
  mode_ = Mode::kNative;
  plan_ = nullptr;
  return found;
}

// The key's own plan, one that may dominate it, or null.
Plan* Engine::Choose(Key* key) {
  if (key->plan != nullptr) return key->plan;
  if (key->stand_in != nullptr) return key->stand_in;
  if (key->tried || plans_.empty()) return nullptr;
  trial_ = true;
  return std::max_element(
             plans_.begin(), plans_.end(),
             [](const auto& a, const auto& b) { return a->arena_bytes < b->arena_bytes; })
      ->get();
}

// Whether the arena does for `plan`, and if that can be for all plans.
bool Engine::HasArena(const Plan* plan) const {
  int64_t most = plan->arena_bytes;
  if (step_ >= arena_retry_) {
    for (const auto& each : plans_) most = std::max(most, each->arena_bytes);
  }
  return arenas_.current() != nullptr && arenas_.current()->bytes >= most;
}

// Whether the arena is better made once blocks of the step before are freed: if what is native
// until then takes less than what lies beside the arena otherwise.
bool Engine::IsToWait(const Plan* plan) {
  if (plan->arena_from < 0 || HasArena(plan) || step_ < plan->arena_retry) return false;
  int64_t native = 0;
  for (int64_t i = 0; i < plan->arena_from; ++i) native += plan->slots[i].bytes;
  const Arena* const now = arenas_.current();
  const int64_t beside = now != nullptr && InUse(now) ? now->bytes : 0;
  return native < beside + log_.LiveBytes() / 2;
}

// An arena for `plan` at least, and if it can be for all plans.
bool Engine::EnsureArena(Plan* plan) {
  if (HasArena(plan)) return true;
  if (step_ < plan->arena_retry) return false;
  int64_t most = plan->arena_bytes;
  for (const auto& each : plans_) most = std::max(most, each->arena_bytes);
  const Arena* const now = arenas_.current();
  const int64_t bytes = now == nullptr ? 0 : now->bytes;
  if (now != nullptr && !InUse(now)) {
    ForgetOwners();
    arenas_.Retire();
    arenas_.Release([&](const Arena* arena) { return InUse(arena); });
  }
  if (step_ >= arena_retry_) {
    if (arenas_.Allocate(most)) {
      ForgetOwners();
      return true;
    }
    arena_retry_ = step_ + kArenaRetry;
  }
  if (arenas_.current() != nullptr && bytes >= plan->arena_bytes) return true;
  if (arenas_.Allocate(plan->arena_bytes)) {
    ForgetOwners();
    return true;
  }
  plan->arena_retry = step_ + kArenaRetry;
  return false;
}

void Engine::Follow(Plan* plan) {
  ++stats_.replayed;
  arena_ = arenas_.current();
  plan_ = plan;
  streams_.BeginStep();
  skipped_.clear();
  broken_ = false;
  if (plan == last_plan_ && last_clean_) {
    mode_ = Mode::kFast;
  } else if (Untouched()) {
    owners_.Clear();
    fast_steps_ = 0;
    mode_ = Mode::kFast;
  } else {
    Settle();
    mode_ = Mode::kChecked;
  }
  position_ = 0;
  if (trial_) OpenGaps();
}

int Engine::EndReplay(bool completed) {
  const bool clean = completed && !broken_ && position_ == plan_->count;
  if (mode_ == Mode::kFast && !clean) EnterChecked();
  if (mode_ == Mode::kFast) ++fast_steps_;
  last_plan_ = plan_;
  last_clean_ = clean;
  stats_.clean += clean;
  plan_->last_used = step_;
  int found = ScanSlots() ? MEMC_REPLAY_ESCAPED : 0;
  if (completed) found |= Judge(&keys_[key_]);
  return found;
}

// Counts the blocks that outlive the step. Returns whether slots were found to escape.
bool Engine::ScanSlots() {
  bool found = false;
  plan_->live_at_end = 0;
  for (int64_t i = 0; i < plan_->count; ++i) {
    Slot& slot = plan_->slots[i];
    const uint32_t state = slot.state.load(std::memory_order_relaxed);
    if ((state & kLive) == 0) continue;
    ++plan_->live_at_end;
    const uint32_t age = (static_cast<uint32_t>(step_) - (state >> kStepShift)) & kStepMask;
    if (age >= kEscapes && !slot.escaping) found = slot.escaping = true;
  }
  return found;
}

int Engine::Judge(Key* key) {
  const int64_t requests = stats_.requests - requests_before_;
  const bool is_kept = std::any_of(plans_.begin(), plans_.end(),
                                   [&](const auto& plan) { return plan.get() == plan_; });
  if (!is_kept) return 0;  // It was replaced in the meantime.
  if (plan_->key != key_) {
    if (!trial_) return 0;
    key->tried = true;
    if (natives_ > 0) return MEMC_REPLAY_WANTS_PLAN;
    key->stand_in = plan_;
    return 0;
  }
  // Slots that nobody asked for are bytes of the arena for nothing.
  const int64_t missing =
      static_cast<int64_t>(skipped_.size()) + std::max<int64_t>(0, plan_->count - position_);
  const int64_t deviations = natives_ + out_of_order_ + missing;
  const int64_t most = std::max(requests, plan_->count);
  if (deviations > kMostDeviating * static_cast<double>(most)) return JudgeBad(key);
  plan_->bad_steps = 0;
  change_ = {};
  return 0;
}

int Engine::JudgeBad(Key* key) {
  if (++plan_->bad_steps < kBadSteps) return 0;
  plan_->bad_steps = 0;
  if (key->steps - key->replanned > kPatience) return MEMC_REPLAY_WANTS_PLAN;
  GiveUp(key);
  return MEMC_REPLAY_GAVE_UP;
}

int Engine::JudgeLog(Key* key) {
  const bool hot = key->has_hash && key->hash == log_.hash();
  key->has_hash = true;
  key->hash = log_.hash();
  // Where the largest plan does not dominate one step is enough.
  const bool wants = plan_ == nullptr && (hot || key->tried);
  return (hot ? MEMC_REPLAY_HOT : 0) | (wants ? MEMC_REPLAY_WANTS_PLAN : 0);
}

void Engine::GiveUp(Key* key) {
  key->given_up = true;
  const std::string planned =
      change_.planned > 0 ? std::to_string(change_.planned) + " bytes" : "no further request";
  warning_ = "planned memory: steps of key " + std::to_string(key_) +
             " keep changing, so their memory is not planned any more: request " +
             std::to_string(change_.request) + " of step " + std::to_string(change_.step) +
             ": expected " + planned + ", got " + std::to_string(change_.bytes) +
             " bytes; give steps of different shapes keys of their own, or interrupt the plan "
             "around what varies";
  change_ = {};
  RetirePlan(key->plan);
}

void Engine::Interrupt() {
  if (!device_.in_its_process()) return;
  const std::lock_guard<SpinLock> lock(lock_);
  ++interrupted_;
  UpdateQuick();
}

void Engine::Resume() {
  if (!device_.in_its_process()) return;
  const std::lock_guard<SpinLock> lock(lock_);
  interrupted_ = std::max<int64_t>(0, interrupted_ - 1);
  UpdateQuick();
}

void Engine::RecordSteps(bool on) {
  const std::lock_guard<SpinLock> lock(lock_);
  record_always_ = on;
}

}  // namespace memc::replay
