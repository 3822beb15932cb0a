// SPDX-License-Identifier: Apache-2.0
#include "solvers/order/order_bound.h"

#include <algorithm>
#include <stdexcept>

#include "solvers/common/bytes.h"
#include "solvers/order/order_state.h"

namespace memc {

namespace {

// What the op touches and its scratch.
int64_t OwnBytes(const OrderProblem& problem, int32_t op) {
  int64_t bytes = problem.scratch[op];
  for (const int32_t* s = problem.touches.begin(op); s != problem.touches.end(op); ++s) {
    bytes = AddBytes(bytes, problem.sizes[*s]);
  }
  return bytes;
}

}  // namespace

LiveCuts::LiveCuts(const OrderProblem& problem)
    : problem_(problem),
      before_(Inverse(problem.after, problem.ops())),
      touchers_(Inverse(problem.touches, static_cast<int64_t>(problem.sizes.size()))) {
  if (!SumsFit(problem)) throw std::overflow_error("the sizes' sum exceeds 2^62 bytes");
}

int64_t LiveCuts::At(int32_t op, int64_t limit, WorkBudget* budget) {
  const int64_t base = Build(op);
  budget->Spend(problem_.ops() + static_cast<int64_t>(problem_.after.index.size()) +
                static_cast<int64_t>(problem_.touches.index.size()));
  return base > limit ? base : base + flow_.Send(limit - base, budget);
}

// Puts the op and all that it depends on (before), or all that depend on it (after), on the side.
void LiveCuts::Fix(int32_t op, Side side) {
  const Rows& next = side == Side::kBefore ? problem_.after : before_;
  if (side_[op] == side) return;
  side_[op] = side;
  stack_.assign(1, op);
  while (!stack_.empty()) {
    const int32_t from = stack_.back();
    stack_.pop_back();
    for (const int32_t* i = next.begin(from); i != next.end(from); ++i) {
      if (side_[*i] == side) continue;
      side_[*i] = side;
      stack_.push_back(*i);
    }
  }
}

// The network of the ops whose side is open; those on the source's side have run. Returns the
// bytes that are live in any case.
int64_t LiveCuts::Build(int32_t op) {
  const auto ops = static_cast<int32_t>(problem_.ops());
  side_.assign(ops, Side::kFree);
  Fix(op, Side::kAfter);
  for (const int32_t* i = problem_.after.begin(op); i != problem_.after.end(op); ++i) {
    Fix(*i, Side::kBefore);
  }
  flow_.Clear();
  node_.assign(ops, -1);
  for (int32_t i = 0; i < ops; ++i) {
    if (side_[i] != Side::kFree) continue;
    node_[i] = flow_.AddNode();
    for (const int32_t* a = problem_.after.begin(i); a != problem_.after.end(i); ++a) {
      // What has run takes along what it depends on. Dependencies have lower numbers.
      if (side_[*a] == Side::kFree) flow_.AddEdge(node_[i], node_[*a], MaxFlow::kUncut);
    }
  }
  touched_.assign(problem_.sizes.size(), 0);
  for (const int32_t* s = problem_.touches.begin(op); s != problem_.touches.end(op); ++s) {
    touched_[*s] = 1;
  }
  int64_t base = OwnBytes(problem_, op);
  for (int32_t s = 0; s < static_cast<int32_t>(problem_.sizes.size()); ++s) {
    if (!touched_[s] && problem_.sizes[s] > 0) base += AddStorage(s);
  }
  return base;
}

// Adds an edge that is cut if the storage is live: from a node that is on the source's side if one
// of the storage's ops is, to one that is on the sink's side if one of them is. Returns the size
// if it is live in any case.
int64_t LiveCuts::AddStorage(int32_t storage) {
  bool before = false;
  bool after = problem_.kept[storage] != 0;
  int32_t free = 0;
  int32_t node = -1;  // The only free op's.
  for (const int32_t* t = touchers_.begin(storage); t != touchers_.end(storage); ++t) {
    before |= side_[*t] == Side::kBefore;
    after |= side_[*t] == Side::kAfter;
    if (side_[*t] != Side::kFree) continue;
    ++free;
    node = node_[*t];
  }
  if (before && after) return problem_.sizes[storage];
  if (free == 0 || (free == 1 && !before && !after)) return 0;
  int32_t any_before = before ? MaxFlow::kSource : node;
  int32_t any_after = after ? MaxFlow::kSink : node;
  if (free > 1) {
    if (!before) any_before = flow_.AddNode();
    if (!after) any_after = flow_.AddNode();
    for (const int32_t* t = touchers_.begin(storage); t != touchers_.end(storage); ++t) {
      if (side_[*t] != Side::kFree) continue;
      if (!before) flow_.AddEdge(node_[*t], any_before, MaxFlow::kUncut);
      if (!after) flow_.AddEdge(any_after, node_[*t], MaxFlow::kUncut);
    }
  }
  flow_.AddEdge(any_before, any_after, problem_.sizes[storage]);
  return 0;
}

int64_t OrderLowerBound(const OrderProblem& problem, const std::vector<int32_t>& order,
                        WorkBudget* budget) {
  int64_t bound = 0;
  for (int32_t op = 0; op < problem.ops(); ++op) bound = std::max(bound, OwnBytes(problem, op));
  if (!SumsFit(problem)) return bound;
  const std::vector<int64_t> live = LiveBytes(problem, order);
  std::vector<int32_t> by_live(order);
  std::stable_sort(by_live.begin(), by_live.end(),
                   [&](int32_t a, int32_t b) { return live[a] > live[b]; });
  LiveCuts cuts(problem);
  for (const int32_t op : by_live) {
    if (live[op] <= bound || budget->spent()) break;
    bound = std::max(bound, cuts.At(op, live[op], budget));
  }
  return bound;
}

}  // namespace memc
