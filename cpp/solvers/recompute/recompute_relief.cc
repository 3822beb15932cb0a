// SPDX-License-Identifier: Apache-2.0
#include "solvers/recompute/recompute_relief.h"

#include <algorithm>
#include <utility>

namespace memc {

namespace {

constexpr size_t kChain = 128;       // Ops that one recomputation may run at most.
constexpr size_t kCandidates = 32;   // Values whose recomputation is compared.
constexpr int64_t kChangeWork = 30;  // Of one change of the sequence.

}  // namespace

RecomputeRelief::RecomputeRelief(const RecomputeProblem& problem, RecomputeState* state,
                                 RecomputeRandom* random, const CopyCosts* copies)
    : problem_(problem),
      state_(state),
      random_(random),
      copies_(copies),
      mark_(problem.ops(), 0),
      moved_(problem.ops(), 0) {
  for (int32_t value = 0; value < static_cast<int32_t>(problem.sizes.size()); ++value) {
    if (problem.sizes[value] > 0) values_.push_back(value);
  }
}

// Removes a run. What was fetched for it is fetched for its next reader.
void RecomputeRelief::Remove(int32_t run) {
  const std::vector<int32_t> fetched = state_->fetched(run);
  for (int32_t value : fetched) {
    const int32_t next = state_->NextRead(value, state_->tag_of(run) + 1);
    if (next >= 0 && !state_->IsFetched(value, next)) state_->Fetch(value, next);
  }
  state_->Remove(run);
}

void RecomputeRelief::RemoveWithUnread(int32_t run) {
  std::vector<int32_t> stack = {run};
  while (!stack.empty()) {
    const int32_t top = stack.back();
    stack.pop_back();
    const int32_t op = state_->op_of(top), tag = state_->tag_of(top);
    Remove(top);
    for (const int32_t* v = problem_.reads.begin(op); v != problem_.reads.end(op); ++v) {
      const std::vector<int32_t>& made = state_->runs_of(state_->maker_of(*v));
      int32_t latest = -1;
      for (int32_t other : made) {
        if (state_->tag_of(other) < tag) latest = other;
      }
      const bool known = std::find(stack.begin(), stack.end(), latest) != stack.end();
      if (latest >= 0 && !known && state_->MayRemove(latest) && !state_->IsRead(latest)) {
        stack.push_back(latest);
      }
    }
  }
}

bool RecomputeRelief::Relieve(int64_t limit, bool vary, int64_t most, int64_t reliefs,
                              int64_t work) {
  if (problem_.in_order || !runs_allowed_) moves_ = 0;
  ++round_;
  delayed_.clear();
  const int64_t before = work_;
  for (int64_t relief = 0; state_->peak() > limit; ++relief) {
    if (relief >= reliefs || work_ - before > work || state_->added_cost() > most) return false;
    if (!RelieveOnce(limit, vary)) return false;
  }
  return true;
}

// Does what frees the most bytes at the fullest moment for its cost: runs a reader of what is
// live there earlier, or the maker of it once more, or later.
bool RecomputeRelief::RelieveOnce(int64_t limit, bool vary) {
  const int32_t moment = state_->tree().ArgMax();
  const Hoist hoist = FindCandidates(moment, vary);
  const Candidate* chosen = ChooseChain(moment, limit, vary, hoist.gain);
  if (chosen != nullptr && chosen->copied) {
    state_->Fetch(chosen->value, chosen->run);
    work_ += kChangeWork;
  } else if (chosen != nullptr) {
    if (chosen->cost == 0) --moves_;
    moved_[chain_.ops.back()] = round_;
    delayed_.insert(Pair(chain_.ops.back(), state_->op_of(chosen->run)));
    Repeat(chosen->run);
  } else if (hoist.reader >= 0) {
    --moves_;
    moved_[state_->op_of(hoist.reader)] = round_;
    state_->Insert(state_->op_of(hoist.reader), state_->run_at(moment));
    Remove(hoist.reader);
    work_ += kChangeWork;
  } else {
    return false;
  }
  state_->Update();
  return true;
}

// Lists the value as one that may be elsewhere at the moment, and be back for its next reader.
void RecomputeRelief::AddCopy(int32_t value, const RecomputeState::Uses& uses, bool vary) {
  const int32_t next = state_->tag_of(uses.next);
  const int64_t stall = copies_->Stall(*state_, value, uses.last, here_, next);
  const int64_t price = stall + copies_->Price(problem_.sizes[value]);
  double rank = static_cast<double>(problem_.sizes[value]) / (1.0 + static_cast<double>(price));
  if (vary) rank *= random_->Factor();
  candidates_.push_back({value, uses.next, price, rank, true});
}

// Lists what is live across the moment and may be made later, or be elsewhere, the best first;
// returns the best reader of it to run earlier.
RecomputeRelief::Hoist RecomputeRelief::FindCandidates(int32_t moment, bool vary) {
  Hoist best;
  candidates_.clear();
  work_ += static_cast<int64_t>(values_.size());
  if (copies_ != nullptr) here_ = copies_->At(*state_, moment);
  for (int32_t value : values_) {
    const RecomputeState::LiveRange& span = state_->span_of(value);
    if (span.lower >= moment || span.upper < moment) continue;
    for (const RecomputeState::LiveRange& range : state_->live_ranges_of(value)) {
      if (range.lower >= moment || range.upper < moment) continue;
      const RecomputeState::Uses uses = state_->UsesAround(value, moment);
      const int32_t run = uses.next;
      if (run < 0 || state_->tag_of(run) == moment) continue;
      if (copies_ != nullptr && copies_->MayMove(value, here_)) AddCopy(value, uses, vary);
      if (!runs_allowed_) continue;
      double gain = moves_ > 0 ? HoistGain(run, moment) : 0.0;
      if (vary) gain *= random_->Factor();
      if (gain > best.gain) best = {run, gain};
      const int32_t op = state_->maker_of(value), made = state_->run_at(range.lower);
      // A range that begins where the value is fetched has no run of its maker to move.
      const bool moves = moves_ > 0 && moved_[op] < round_ && state_->op_of(made) == op &&
                         !state_->IsReadBefore(made, state_->tag_of(run));
      if (!state_->MayRun(op, run) || (problem_.once[op] && !moves)) continue;
      if (delayed_.count(Pair(op, state_->op_of(run))) != 0) continue;
      const int64_t cost = moves ? 0 : problem_.costs[op];
      double rank = static_cast<double>(problem_.sizes[value]) / (1.0 + static_cast<double>(cost));
      if (vary) rank *= random_->Factor();
      candidates_.push_back({value, run, cost, rank, false});
    }
  }
  std::make_heap(candidates_.begin(), candidates_.end(), IsWorse());
  return best;
}

// The candidate that frees the most bytes for the cost of its whole chain, which is then in
// `chain_`; null if none has a better rank than `least`.
const RecomputeRelief::Candidate* RecomputeRelief::ChooseChain(int32_t moment, int64_t limit,
                                                               bool vary, double least) {
  const Candidate* chosen = nullptr;
  size_t useful = 0;
  // Few are looked at, so that a heap is quicker than to sort them all.
  for (auto end = candidates_.end(); end != candidates_.begin() && useful < kCandidates;) {
    std::pop_heap(candidates_.begin(), end, IsWorse());
    const Candidate& candidate = *--end;
    if (candidate.copied) {
      ++useful;
      if (candidate.rank > least) {
        least = candidate.rank;
        chosen = &candidate;
      }
      continue;
    }
    Chain chain;
    ++epoch_;
    const int32_t op = state_->maker_of(candidate.value);
    if (!Need(op, candidate.run, moment, limit, vary, &chain)) continue;
    const int64_t gain = problem_.sizes[candidate.value] - chain.held;
    if (gain <= 0) continue;
    ++useful;
    const int64_t cost = chain.cost - problem_.costs[op] + candidate.cost;
    double rank = static_cast<double>(gain) / (1.0 + static_cast<double>(cost));
    if (vary) rank *= random_->Factor();
    if (rank > least) {
      least = rank;
      chosen = &candidate;
      chain_ = std::move(chain);
    }
  }
  return chosen;
}

// Bytes that are not live at the moment any more if `run` comes before it instead of after it.
double RecomputeRelief::HoistGain(int32_t run, int32_t moment) const {
  const int32_t op = state_->op_of(run), tag = state_->tag_of(run);
  if (moved_[op] == round_ || !state_->MayHoist(run, state_->run_at(moment))) return 0;
  int64_t gain = 0;
  for (const int32_t* v = problem_.makes.begin(op); v != problem_.makes.end(op); ++v) {
    gain -= problem_.sizes[*v];
  }
  for (const int32_t* v = problem_.reads.begin(op); v != problem_.reads.end(op); ++v) {
    if (problem_.sizes[*v] == 0) continue;
    const int32_t read = state_->NextRead(*v, moment);
    if (read < 0 || state_->IsFetched(*v, read)) return 0;  // Recomputed or fetched for this run.
    if (read == run && state_->NextRead(*v, tag + 1) < 0) gain += problem_.sizes[*v];
  }
  return static_cast<double>(gain);
}

// Runs the chain before `before`, and takes out the runs whose only readers read the new ones.
void RecomputeRelief::Repeat(int32_t before) {
  std::vector<int32_t> inserted;
  for (int32_t op : chain_.ops) {
    for (const int32_t* v = problem_.makes.begin(op); v != problem_.makes.end(op); ++v) {
      if (state_->IsFetched(*v, before)) state_->Keep(*v, before);
    }
    inserted.push_back(state_->Insert(op, before));
  }
  for (int32_t value : chain_.fetched) FetchFor(value, inserted, before);
  work_ += kChangeWork * static_cast<int64_t>(chain_.ops.size());
  for (int32_t op : chain_.ops) {
    for (size_t i = state_->runs_of(op).size(); i-- > 0;) {
      if (i >= state_->runs_of(op).size()) continue;
      const int32_t run = state_->runs_of(op)[i];
      if (state_->MayRemove(run) && !state_->IsRead(run)) RemoveWithUnread(run);
    }
  }
}

// Has the value fetched for the first of the runs that reads it, all right before `before`.
void RecomputeRelief::FetchFor(int32_t value, const std::vector<int32_t>& runs, int32_t before) {
  for (int32_t run : runs) {
    const int32_t op = state_->op_of(run);
    if (std::find(problem_.reads.begin(op), problem_.reads.end(op), value) ==
        problem_.reads.end(op)) {
      continue;
    }
    state_->Fetch(value, run);
    if (state_->IsFetched(value, before)) state_->Keep(value, before);
    return;
  }
}

// Adds to the chain that the value is fetched, if it may be and that is not dearer than to make it
// again. Its last use before `run` is before the moment to relieve, or it is elsewhere already.
bool RecomputeRelief::MayFetch(int32_t value, int32_t run, int32_t moment, int32_t last,
                               bool elsewhere, Chain* chain) {
  if (copies_ == nullptr || !copies_->MayMove(value)) return false;
  int64_t stall = 0;
  if (!elsewhere) {
    if (last >= moment) return false;
    stall = copies_->Stall(*state_, value, last, here_, state_->tag_of(run));
  }
  const int64_t price = stall + copies_->Price(problem_.sizes[value]);
  if (state_->MayRepeat(state_->maker_of(value), run) &&
      price > problem_.costs[state_->maker_of(value)]) {
    return false;
  }
  chain->cost += price;
  chain->fetched.push_back(value);
  return true;
}

// Adds to the chain what must run before `run` so that `op` can.
bool RecomputeRelief::Need(int32_t op, int32_t run, int32_t moment, int64_t limit, bool vary,
                           Chain* chain) {
  if (mark_[op] == epoch_) return true;
  mark_[op] = epoch_;
  ++work_;
  if (chain->ops.size() >= kChain || !state_->MayRun(op, run)) return false;
  for (const int32_t* v = problem_.reads.begin(op); v != problem_.reads.end(op); ++v) {
    if (!Provide(*v, run, moment, limit, vary, chain)) return false;
  }
  chain->ops.push_back(op);
  chain->cost += problem_.costs[op];
  return true;
}

// Adds to the chain what must run so that the value is there just before `run`: one that is not
// live there is kept for longer where that fits, else fetched or recomputed.
bool RecomputeRelief::Provide(int32_t value, int32_t run, int32_t moment, int64_t limit, bool vary,
                              Chain* chain) {
  const int64_t size = problem_.sizes[value];
  const int32_t maker = state_->maker_of(value), tag = state_->tag_of(run);
  if (size == 0) return true;  // Outside the arena, where it stays.
  if (mark_[maker] == epoch_) return true;
  const RecomputeState::Uses uses = state_->UsesAround(value, tag);
  // Whether it is read at or after `tag`, and not in the arena before that.
  const bool elsewhere = uses.next >= 0 && state_->IsFetched(value, uses.next);
  if (uses.next >= 0 && !elsewhere) return true;
  const std::vector<int32_t>& fetched = chain->fetched;
  if (std::find(fetched.begin(), fetched.end(), value) != fetched.end()) return true;
  const bool held = uses.last < moment && !elsewhere;
  bool keep = !held && !elsewhere && state_->tree().MaxIn(uses.last + 1, tag) + size <= limit;
  if (vary && random_->Below(8) == 0) keep = !keep && !held && !elsewhere;
  if (!keep && MayFetch(value, run, moment, uses.last, elsewhere, chain)) return true;
  if (!keep && state_->MayRepeat(maker, run)) return Need(maker, run, moment, limit, vary, chain);
  if (held) chain->held += size;
  return !elsewhere;
}

}  // namespace memc
