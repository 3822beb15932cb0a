// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_REPLAY_ENGINE_H_
#define MEMC_REPLAY_ENGINE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "replay/arenas.h"
#include "replay/device.h"
#include "replay/interval_owners.h"
#include "replay/plan.h"
#include "replay/replay.h"
#include "replay/spin_lock.h"
#include "replay/step_log.h"
#include "replay/stream_classes.h"

namespace memc::replay {

// What replay.h describes.
//
// A slot of a plan is given out in one of two ways. *Fast*: every slot before it, in this step and
// in the one before, was given out in its sequence. Then of all the blocks that held its bytes only
// the last ones, its predecessors, can still be alive or in use: each of them was given out only
// when those before it were free, and its stream waits for theirs. *Checked*, once a slot was
// passed over: the owners of all bytes of the arena are kept, and those of the slot's bytes are
// asked. A step in which every slot was given out in its sequence makes the next one fast.
class Engine {
 public:
  explicit Engine(const memc_replay_backend& backend) : device_(backend), arenas_(&device_) {}

  int BeginStep(int64_t key);
  int EndStep(bool completed);
  void Interrupt();
  void Resume();
  void RecordSteps(bool on);

  bool Allocate(int64_t bytes, uint64_t stream, int thread_class, memc_replay_block* block);
  static void Free(uint64_t ticket);
  static void RecordStream(uint64_t ticket, uint64_t stream);

  void AddPlan(int64_t key, const memc_replay_plan& columns);
  bool DropPlan(int64_t key);
  int64_t Escaping(int64_t key, int64_t* rows, int64_t room);

  int64_t ReadLog(int age, memc_replay_record* records, int64_t room, int64_t* key, int64_t* begin);
  void Stats(memc_replay_stats* stats);
  std::string Warning();
  bool FindArena(const void* address, void** base, int64_t* bytes);
  int64_t LiveBlocks(memc_replay_live* blocks, int64_t room);
  int64_t ReleaseArena();

  void Abandon() { device_.Abandon(); }
  // As memc_replay_destroy; if it returns false the engine may be deleted.
  bool Close();

 private:
  // kAwaiting: native, until the arena is made.
  enum class Mode { kNative, kWatch, kAwaiting, kFast, kChecked };

  struct Asked {
    int64_t bytes;
    uint64_t stream;
    int thread_class;
    int64_t position;  // When it came.
  };

  // A slot at `index`, which `cause` (MEMC_REPLAY_OUT_OF_ORDER or _SMALLER, or kPlanned) tells how
  // it fits, or none, and why.
  struct Match {
    int64_t index;
    int cause;
  };
  static constexpr int kPlanned = -1;

  struct Key {
    Plan* plan = nullptr;
    Plan* stand_in = nullptr;  // The plan of another key, which dominates this one's steps.
    bool tried = false;        // Whether another plan was tried.
    bool given_up = false;
    bool has_hash = false;
    uint64_t hash = 0;  // Of its last recorded step.
    int64_t steps = 0;
    int64_t replanned = kNever;  // In which of them.
  };
  static constexpr int64_t kNever = -1'000'000;

  // The first request of a run of bad steps that was not as planned.
  struct Change {
    int64_t step = 0;
    int64_t request = 0;
    int64_t planned = 0;
    int64_t bytes = 0;
  };

  // Steps: engine_steps.cc.
  int EndLocked(bool completed);
  Plan* Choose(Key* key);
  bool HasArena(const Plan* plan) const;
  bool EnsureArena(Plan* plan);
  bool IsToWait(const Plan* plan);
  void Await(Plan* plan);
  void Follow(Plan* plan);
  int EndReplay(bool completed);
  bool ScanSlots();
  int Judge(Key* key);
  int JudgeBad(Key* key);
  int JudgeLog(Key* key);
  void GiveUp(Key* key);
  void UpdateQuick() { quick_ = mode_ == Mode::kFast && !recording_ && interrupted_ == 0; }

  // Requests: engine_requests.cc.
  bool TakeNext(int64_t bytes, uint64_t stream, memc_replay_block* block);
  bool Request(const Asked& asked, memc_replay_block* block);
  bool Replay(const Asked& asked, memc_replay_block* block);
  bool Native(const Asked& asked, int64_t slot, memc_replay_block* block);
  Match Find(const Asked& asked);
  Match LookBack(const Asked& asked);
  Match LookAhead(const Asked& asked);
  bool IsSmaller(const Asked& asked) const;
  int WhyNone(const Asked& asked) const;
  bool Fits(const Slot& slot, const Asked& asked) const;
  int Claim(Slot* slot, uint64_t stream);
  int ClaimFast(Slot* slot, uint64_t stream);
  int ClaimChecked(Slot* slot, uint64_t stream);
  bool MeetStream(uint64_t stream);
  bool WaitFor(Slot* slot, uint64_t stream);
  void Give(Slot* slot, const Asked& asked, memc_replay_block* block);
  void Note(int cause, const Asked& asked);
  void Break();
  void EnterChecked();
  void Own(Slot* slot) { owners_.Take(slot->offset, slot->end(), slot); }
  void Settle();
  void ForgetOwners();

  // Requests without a slot: engine_gaps.cc.
  bool AwaitArena(const Asked& asked, memc_replay_block* block);
  void OpenGaps();
  void WatchWithArena();
  bool ServeFromGap(const Asked& asked, memc_replay_block* block);
  bool ServeBeside(const Asked& asked, memc_replay_block* block);
  void CloseGaps();

  // Blocks: engine_blocks.cc.
  uint32_t RecordUses(Slot* slot);
  void AddUse(Slot* slot, uint64_t stream);
  void LastOut();
  void FreeAll();
  bool InUse(const Arena* arena) const;
  bool Untouched();
  template <typename Visit>
  void EachPlan(Visit visit) const {
    for (const auto& plan : plans_) visit(plan.get());
    for (const auto& plan : retired_) visit(plan.get());
    if (gaps_ != nullptr) visit(gaps_.get());
  }

  // Plans: engine_plans.cc.
  void RetirePlan(Plan* plan);
  void Evict();
  void Tidy();
  void DestroyEvents(Plan* plan);

  Device device_;
  SpinLock lock_;      // Of all but frees.
  SpinLock use_lock_;  // Of the streams added to blocks that are alive.

  // What a request needs.
  bool quick_ = false;
  Mode mode_ = Mode::kNative;
  uint32_t step_tag_ = 0;
  Plan* plan_ = nullptr;  // Of the step.
  int64_t position_ = 0;  // Of the slot planned for the next request.
  StreamClasses streams_;
  Arena* arena_ = nullptr;
  memc_replay_stats stats_{};

  // The step.
  bool in_step_ = false;
  bool recording_ = false;
  bool trial_ = false;   // Of another key's plan.
  bool broken_ = false;  // A slot was passed over.
  int64_t interrupted_ = 0;
  int64_t step_ = 0;
  int64_t key_ = 0;
  int64_t requests_before_ = 0;  // Of `stats_`, when it began.
  int64_t natives_ = 0;          // Not as planned.
  int64_t out_of_order_ = 0;
  int64_t smaller_run_ = 0;       // Requests in a row that were smaller than planned.
  std::vector<int64_t> skipped_;  // Indices of slots passed over, not given out.
  int64_t awaited_ = 0;           // Requests so far while the arena is awaited.
  std::unique_ptr<Plan> gaps_;    // Slots for blocks without one, in steps without a plan.
  int64_t gaps_used_ = 0;         // Of them.

  // The arena. `owners_` is as of when the run of fast steps began; since then all slots of
  // `last_plan_` were given out `fast_steps_` times, and those before `position_` once more.
  Arenas arenas_;
  IntervalOwners<Slot*> owners_;
  Plan* last_plan_ = nullptr;
  bool last_clean_ = false;
  int64_t fast_steps_ = 0;
  std::atomic<bool> several_streams_{false};  // Blocks were used on more than one.
  std::vector<uint64_t> arena_streams_;       // Those on which blocks were given out.
  int64_t arena_retry_ = 0;                   // The step in which to ask again for all plans.

  std::unordered_map<int64_t, Key> keys_;
  std::vector<std::unique_ptr<Plan>> plans_;
  std::vector<std::unique_ptr<Plan>> retired_;  // Replaced, perhaps with blocks alive.
  bool passing_ = false;                        // The arena was asked back.
  bool record_always_ = false;
  StepLog log_;
  Change change_;
  std::string warning_;
  std::atomic<int64_t> pending_{0};  // Blocks that were alive when the engine ended.
};

}  // namespace memc::replay

#endif  // MEMC_REPLAY_ENGINE_H_
