// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_ORDER_MOMENT_H_
#define MEMC_ORDER_MOMENT_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "solvers/order/order_state.h"

namespace memc {

// A set of ops that have run, which can grow and shrink again. It counts its own work.
class OrderMoment {
 public:
  explicit OrderMoment(const OrderGraph& graph) : graph_(graph) { Load({}); }

  // Makes the ops these, listed in an order in which they can run.
  void Load(const std::vector<int32_t>& ops) {
    place_.assign(graph_.ops(), -1);
    in_.assign((graph_.ops() + 63) / 64, 0);
    ready_.clear();
    run_.clear();
    live_ = 0;
    left_.assign(graph_.sizes.size(), 0);
    used_.assign(graph_.sizes.size(), 0);
    waiting_.assign(graph_.ops(), 0);
    for (int64_t s = 0; s < graph_.users.size(); ++s) {
      const auto users = static_cast<int32_t>(graph_.users.first[s + 1] - graph_.users.first[s]);
      left_[s] = users + graph_.to_end[s];
      used_[s] = graph_.from_start[s];
      if (users > 0 && graph_.from_start[s]) live_ += graph_.sizes[s];
    }
    for (int32_t op = 0; op < graph_.ops(); ++op) {
      waiting_[op] = static_cast<int32_t>(graph_.after.first[op + 1] - graph_.after.first[op]);
      if (waiting_[op] == 0) AddReady(op);
    }
    for (const int32_t op : ops) Run(op);
    run_.clear();
    work_ += 4 * (graph_.ops() + static_cast<int64_t>(graph_.sizes.size()));
  }

  int64_t live() const { return live_; }
  bool done() const { return ready_.empty(); }
  const std::vector<int32_t>& ready() const { return ready_; }
  const std::vector<int32_t>& run() const { return run_; }  // Since Load or Forget.
  void Forget() { run_.clear(); }
  bool Ready(int32_t op) const { return place_[op] >= 0; }
  const std::vector<uint64_t>& bits() const { return in_; }  // One for each op.

  // Steps since the last call: about a storage or an op looked at each.
  int64_t TakeWork() { return std::exchange(work_, 0); }

  // Bytes live while a ready op runs next.
  int64_t During(int32_t op) {
    work_ += Touched(op);
    int64_t bytes = live_ + graph_.scratch[op];
    for (const int32_t* s = graph_.touches.begin(op); s != graph_.touches.end(op); ++s) {
      if (used_[*s] == 0) bytes += graph_.sizes[*s];
    }
    return bytes;
  }

  // Bytes live after it, above those before it.
  int64_t Net(int32_t op) {
    work_ += Touched(op);
    int64_t bytes = 0;
    for (const int32_t* s = graph_.touches.begin(op); s != graph_.touches.end(op); ++s) {
      if (used_[*s] == 0) bytes += graph_.sizes[*s];
      if (left_[*s] == 1) bytes -= graph_.sizes[*s];
    }
    return bytes;
  }

  void Run(int32_t op) {
    live_ += Net(op);
    for (const int32_t* s = graph_.touches.begin(op); s != graph_.touches.end(op); ++s) {
      ++used_[*s];
      --left_[*s];
    }
    RemoveReady(op);
    in_[op / 64] |= uint64_t{1} << (op % 64);
    run_.push_back(op);
    for (const int32_t* i = graph_.before.begin(op); i != graph_.before.end(op); ++i) {
      if (--waiting_[*i] == 0) AddReady(*i);
    }
    work_ += Touched(op) + Followers(op);
  }

  // Takes back the last op run.
  void Undo() {
    const int32_t op = run_.back();
    run_.pop_back();
    for (const int32_t* i = graph_.before.begin(op); i != graph_.before.end(op); ++i) {
      if (waiting_[*i]++ == 0) RemoveReady(*i);
    }
    in_[op / 64] &= ~(uint64_t{1} << (op % 64));
    AddReady(op);
    for (const int32_t* s = graph_.touches.begin(op); s != graph_.touches.end(op); ++s) {
      --used_[*s];
      ++left_[*s];
    }
    live_ -= Net(op);
    work_ += Touched(op) + Followers(op);
  }

 private:
  int64_t Touched(int32_t op) const {
    return 1 + (graph_.touches.end(op) - graph_.touches.begin(op));
  }

  int64_t Followers(int32_t op) const {
    return 1 + (graph_.before.end(op) - graph_.before.begin(op));
  }

  void AddReady(int32_t op) {
    place_[op] = static_cast<int32_t>(ready_.size());
    ready_.push_back(op);
  }

  void RemoveReady(int32_t op) {
    const int32_t last = ready_.back();
    ready_[place_[op]] = last;
    place_[last] = place_[op];
    place_[op] = -1;
    ready_.pop_back();
  }

  const OrderGraph& graph_;
  std::vector<int32_t> place_;  // Of each op: where it is in `ready_`; -1: nowhere.
  std::vector<uint64_t> in_;    // A bit for each op.
  std::vector<int32_t> ready_;
  std::vector<int32_t> run_;
  std::vector<int32_t> left_;     // Of each storage: users that have not run, the end if kept.
  std::vector<int32_t> used_;     // Of each storage: users that have run, the start if from there.
  std::vector<int32_t> waiting_;  // Of each op: ops it still waits for.
  int64_t live_ = 0;
  int64_t work_ = 0;
};

}  // namespace memc

#endif  // MEMC_ORDER_MOMENT_H_
