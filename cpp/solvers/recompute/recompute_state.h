// SPDX-License-Identifier: Apache-2.0
// A sequence of runs that is changed step by step, its peak and cost known at every moment.
#ifndef MEMC_RECOMPUTE_STATE_H_
#define MEMC_RECOMPUTE_STATE_H_

#include <cstdint>
#include <vector>

#include "solvers/common/peak_tree.h"
#include "solvers/common/prefix_sums.h"
#include "solvers/recompute/recompute.h"

namespace memc {

// Every run has a tag, a number that grows along the sequence, with free ones between, as in lists
// that maintain order (Dietz and Sleator 1987). The peak tree's positions are tags: a free tag
// holds what is live across it, never more than the run before it.
//
// A value may be absent between one use and the next, the run before which it is fetched: its bytes
// lie elsewhere meanwhile, and count from that run on.
//
// Changes are made in groups: some Insert, Remove, Fetch and Keep, Update, and then Commit or
// RollBack.
class RecomputeState {
 public:
  // `shades`: bytes that count beside the scratch of each op's run, and of runs inserted before it;
  // none if it is empty.
  explicit RecomputeState(const RecomputeProblem& problem, std::vector<int64_t> shades = {});

  // --- The sequence.
  std::vector<int32_t> Sequence() const;
  int64_t peak() const { return tree_.Max(); }
  int64_t added_cost() const { return added_cost_; }
  const PeakTree& tree() const { return tree_; }
  int32_t first() const { return first_; }
  int32_t next(int32_t run) const { return runs_[run].next; }
  int32_t op_of(int32_t run) const { return runs_[run].op; }
  int32_t tag_of(int32_t run) const { return run_tags_[run]; }
  const std::vector<int32_t>& runs_of(int32_t op) const { return runs_of_[op]; }
  const std::vector<int32_t>& reads_of(int32_t value) const { return reads_of_[value]; }
  int32_t maker_of(int32_t value) const { return maker_[value]; }
  // The run with a tag that is not free.
  int32_t run_at(int32_t tag) const { return run_at_[tag]; }
  // All runs but the first of each op.
  const std::vector<int32_t>& repeats() const { return repeats_; }
  bool is_repeat(int32_t run) const { return runs_[run].repeat >= 0; }

  // The cost of all runs with tags up to `tag`, that one included.
  int64_t CostUpTo(int32_t tag) const { return clock_.Sum(tag); }

  int32_t last_tag() const { return tags_ - 1; }

  // --- Where values are absent.
  struct Fetched {
    int32_t value, run;
  };
  const std::vector<Fetched>& fetches() const { return fetches_; }
  bool IsFetched(int32_t value, int32_t run) const;
  // The values that are fetched before `run`.
  const std::vector<int32_t>& fetched(int32_t run) const { return runs_[run].fetched; }
  // Bytes of values that are absent at `tag`, and how many these are.
  int64_t Absent(int32_t tag) const { return absent_.Sum(tag); }
  int64_t AbsentCount(int32_t tag) const { return absent_count_.Sum(tag); }

  // --- Where values are live.
  struct LiveRange {
    int32_t lower, upper;  // Tags, both included.
  };
  const std::vector<LiveRange>& live_ranges_of(int32_t value) const { return live_ranges_[value]; }
  // From where it is live first to where it is last; nothing is in it if it is live nowhere.
  const LiveRange& span_of(int32_t value) const { return spans_[value]; }

  // The first run at or after `tag` that reads the value as it is there; -1 if there is none.
  int32_t NextRead(int32_t value, int32_t tag) const;
  struct Uses {
    int32_t last;  // The last tag before some tag at which the value is made or read; -1 if none.
    int32_t next;  // NextRead at that tag.
  };
  Uses UsesAround(int32_t value, int32_t tag) const;
  int32_t LastUse(int32_t value, int32_t tag) const { return UsesAround(value, tag).last; }
  // Whether the op may run just before `run`: the ops it must not follow do not come earlier.
  bool MayRun(int32_t op, int32_t run) const;
  // Whether it may do so once more.
  bool MayRepeat(int32_t op, int32_t run) const { return !problem_.once[op] && MayRun(op, run); }
  // Whether somebody reads a result of `run`.
  bool IsRead(int32_t run) const { return IsReadBefore(run, tags_); }
  // Whether somebody does so before `tag`.
  bool IsReadBefore(int32_t run, int32_t tag) const;
  // Whether the sequence is one without `run` too, if nobody reads it.
  bool MayRemove(int32_t run) const;
  // Whether the op of `run`, which has no other run, may run just before the run `to`, an earlier
  // one, instead.
  bool MayHoist(int32_t run, int32_t to) const;

  // --- Changes.
  int32_t Insert(int32_t op, int32_t before);  // Returns the run.
  void Remove(int32_t run);                    // One whose op has another.
  void Fetch(int32_t value, int32_t run);      // A run that reads it, after another use of it.
  void Keep(int32_t value, int32_t run);       // Takes that back.
  void ClearShades();                          // Not part of a group.
  void Update();                               // Brings the peak up to date.
  void Commit();
  void RollBack();

 private:
  static constexpr int32_t kSpacing = 16;    // Tags for each run when they are respaced.
  static constexpr int32_t kTagsPerOp = 32;  // Tags for each op in all.

  struct Run {
    int32_t op = -1, previous = -1, next = -1;
    int32_t repeat = -1;  // Index in repeats_; -1 for the first run of its op, or one taken out.
    int64_t shade = 0;
    std::vector<int32_t> fetched;
  };
  enum class Change { kInserted, kRemoved, kFetched, kKept };
  struct Edit {
    int32_t run;
    Change change;
    int32_t value = -1;
  };

  int32_t FreeTag(int32_t previous, int32_t next);
  bool RespaceAround(int32_t previous, int32_t next);
  void Respace();
  void Link(int32_t run);
  void Unlink(int32_t run);
  void CountRepeat(int32_t run);
  void DiscountRepeat(int32_t run);
  void CountFetch(int32_t value, int32_t run);
  void DiscountFetch(int32_t value, int32_t run);
  void AddFetch(int32_t value, int32_t run);
  void DropFetch(int32_t value, int32_t run);
  void Load(int32_t run, int sign);
  void Touch(int32_t op);
  void MarkDirty(int32_t value);
  bool EndsAt(int32_t value, int32_t run) const;
  bool TakesOver(int32_t run, int32_t value) const;
  void Place(int32_t value);
  void MoveLive(int32_t value);
  void MoveAbsences(int32_t value);
  void CountAbsence(int32_t value, const LiveRange& range, int sign);
  size_t Find(const std::vector<int32_t>& runs, int32_t tag) const;

  const RecomputeProblem& problem_;
  std::vector<int32_t> maker_;
  std::vector<std::vector<int32_t>>
      rivals_;  // Of each value: others that the same op may take over.
  std::vector<Run> runs_;
  std::vector<int32_t> run_tags_;             // Apart from the runs, since searches look at many.
  std::vector<int32_t> unused_;               // Runs that may be reused.
  std::vector<std::vector<int32_t>> before_;  // Of each op: ops that must not run after it.
  int32_t first_ = -1;
  std::vector<std::vector<int32_t>> runs_of_;   // Of each op, by tag.
  std::vector<std::vector<int32_t>> reads_of_;  // Of each value: the runs that read it, by tag.
  int32_t tags_;                                // How many there are.
  std::vector<int32_t> run_at_;                 // Of each tag that is not free.
  std::vector<std::vector<LiveRange>> live_ranges_;
  std::vector<LiveRange> spans_;
  std::vector<std::vector<LiveRange>> absences_;
  std::vector<int32_t> repeats_;
  std::vector<Fetched> fetches_;
  std::vector<int32_t> fetches_of_;  // Of each value: how many.
  PeakTree tree_;
  PrefixSums clock_;   // Of costs.
  PrefixSums absent_;  // Of bytes that begin to be absent at a tag, less those that end to.
  PrefixSums absent_count_;
  int64_t added_cost_ = 0;
  std::vector<Edit> edits_;
  std::vector<int32_t> dirty_;
  std::vector<char> is_dirty_;
  std::vector<LiveRange> found_live_, found_absent_;  // What Place finds.
};

}  // namespace memc

#endif  // MEMC_RECOMPUTE_STATE_H_
