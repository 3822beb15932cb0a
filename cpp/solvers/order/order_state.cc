// SPDX-License-Identifier: Apache-2.0
#include "solvers/order/order_state.h"

#include <algorithm>
#include <utility>

#include "solvers/common/bytes.h"

namespace memc {

Rows Inverse(const Rows& rows, int64_t count) {
  Rows made;
  made.first.assign(count + 1, 0);
  for (int32_t j : rows.index) ++made.first[j + 1];
  for (int64_t j = 0; j < count; ++j) made.first[j + 1] += made.first[j];
  made.index.resize(rows.index.size());
  std::vector<int64_t> next(made.first.begin(), made.first.end() - 1);
  for (int64_t row = 0; row < rows.size(); ++row) {
    for (const int32_t* j = rows.begin(row); j != rows.end(row); ++j) {
      made.index[next[*j]++] = static_cast<int32_t>(row);
    }
  }
  return made;
}

OrderGraph MakeOrderGraph(const OrderProblem& problem, Direction direction) {
  OrderGraph graph;
  graph.sizes = problem.sizes;
  graph.scratch = problem.scratch;
  graph.from_start.assign(problem.sizes.size(), 0);
  graph.to_end = problem.kept;
  graph.touches = problem.touches;
  graph.users = Inverse(problem.touches, static_cast<int64_t>(problem.sizes.size()));
  graph.after = problem.after;
  graph.before = Inverse(problem.after, problem.ops());
  return direction == Direction::kForward ? graph : Reversed(graph);
}

OrderGraph Reversed(const OrderGraph& graph) {
  OrderGraph made = graph;
  std::swap(made.from_start, made.to_end);
  std::swap(made.after, made.before);
  return made;
}

bool SumsFit(const OrderProblem& problem) {
  int64_t left = kMaxSize;
  for (int64_t size : problem.sizes) {
    if (size > left) return false;
    left -= size;
  }
  return std::all_of(problem.scratch.begin(), problem.scratch.end(),
                     [&](int64_t bytes) { return bytes <= left; });
}

OrderWalk::OrderWalk(const OrderGraph& graph)
    : graph_(graph),
      starts_(graph.ops(), 0),
      ends_(graph.ops(), 0),
      waiting_(graph.ops(), 0),
      left_(graph.sizes.size(), 0),
      last_(graph.sizes.size(), 0),
      touched_(graph.sizes.size(), 0),
      done_(graph.ops(), 0) {
  order_.reserve(graph.ops());
  for (int64_t op = 0; op < graph.ops(); ++op) {
    waiting_[op] = static_cast<int32_t>(graph.after.end(op) - graph.after.begin(op));
  }
  for (size_t s = 0; s < graph.sizes.size(); ++s) {
    left_[s] = static_cast<int32_t>(graph.users.end(s) - graph.users.begin(s));
    if (left_[s] == 0) continue;  // Never live.
    touched_[s] = graph.from_start[s];
    if (touched_[s]) live_ += graph.sizes[s];
    for (const int32_t* user = graph.users.begin(s); user != graph.users.end(s); ++user) {
      last_[s] += *user;
      if (!touched_[s]) starts_[*user] += graph.sizes[s];
    }
    if (left_[s] == 1 && !graph.to_end[s]) ends_[last_[s]] += graph.sizes[s];
  }
  peak_ = live_;
}

void OrderWalk::Run(int32_t op, std::vector<int32_t>* changed) {
  changed->clear();
  peak_ = std::max(peak_, live_ + Rise(op));
  live_ += Net(op);
  done_[op] = 1;
  order_.push_back(op);
  for (const int32_t* s = graph_.touches.begin(op); s != graph_.touches.end(op); ++s) {
    if (!touched_[*s]) {
      touched_[*s] = 1;
      for (const int32_t* user = graph_.users.begin(*s); user != graph_.users.end(*s); ++user) {
        starts_[*user] -= graph_.sizes[*s];
        if (Ready(*user)) changed->push_back(*user);
      }
    }
    last_[*s] -= op;
    if (--left_[*s] == 1 && !graph_.to_end[*s]) {
      const auto user = static_cast<int32_t>(last_[*s]);
      ends_[user] += graph_.sizes[*s];
      if (Ready(user)) changed->push_back(user);
    }
  }
  for (const int32_t* next = graph_.before.begin(op); next != graph_.before.end(op); ++next) {
    if (--waiting_[*next] == 0) changed->push_back(*next);
  }
}

}  // namespace memc
