// SPDX-License-Identifier: Apache-2.0
#include "solvers/common/max_flow.h"

#include <algorithm>

namespace memc {

void MaxFlow::Clear() {
  edges_.clear();
  first_.assign(2, -1);
  flow_ = 0;
}

int32_t MaxFlow::AddNode() {
  first_.push_back(-1);
  return static_cast<int32_t>(first_.size()) - 1;
}

void MaxFlow::AddEdge(int32_t from, int32_t to, int64_t capacity) {
  const auto edge = static_cast<int32_t>(edges_.size());
  edges_.push_back({to, first_[from], capacity});
  first_[from] = edge;
  edges_.push_back({from, first_[to], 0});
  first_[to] = edge + 1;
}

int64_t MaxFlow::Send(int64_t limit, WorkBudget* budget) {
  while (flow_ <= limit && !budget->spent() && Layer(budget)) {
    flow_ += Push(limit - flow_, budget);
  }
  return flow_;
}

// Distances from the source over edges with capacity left; whether the sink is in reach.
bool MaxFlow::Layer(WorkBudget* budget) {
  level_.assign(first_.size(), -1);
  level_[kSource] = 0;
  queue_.assign(1, kSource);
  for (size_t head = 0; head < queue_.size(); ++head) {
    const int32_t node = queue_[head];
    // No shorter path to the sink is left.
    if (level_[kSink] >= 0 && level_[node] >= level_[kSink]) break;
    int64_t looked = 0;
    for (int32_t e = first_[node]; e >= 0; e = edges_[e].next) {
      ++looked;
      const Edge& edge = edges_[e];
      if (edge.capacity == 0 || level_[edge.to] >= 0) continue;
      level_[edge.to] = level_[node] + 1;
      queue_.push_back(edge.to);
    }
    budget->Spend(looked);
  }
  return level_[kSink] >= 0;
}

// A blocking flow over edges that go one layer on; stops early once it is above the limit, or the
// budget is spent.
int64_t MaxFlow::Push(int64_t limit, WorkBudget* budget) {
  current_ = first_;
  int64_t sent = 0;
  path_.clear();
  int32_t node = kSource;
  while (sent <= limit && !budget->spent()) {
    if (node == kSink) {
      int64_t least = kUncut;
      for (const int32_t e : path_) least = std::min(least, edges_[e].capacity);
      size_t keep = path_.size();
      for (size_t i = path_.size(); i-- > 0;) {
        edges_[path_[i]].capacity -= least;
        edges_[path_[i] ^ 1].capacity += least;
        if (edges_[path_[i]].capacity == 0) keep = i;
      }
      budget->Spend(static_cast<int64_t>(path_.size()));
      sent += least;
      if (keep == path_.size()) return kUncut;  // The sink cannot be cut off.
      node = edges_[path_[keep] ^ 1].to;
      path_.resize(keep);
      continue;
    }
    int64_t looked = 1;
    int32_t& e = current_[node];
    while (e >= 0 && (edges_[e].capacity == 0 || level_[edges_[e].to] != level_[node] + 1)) {
      e = edges_[e].next;
      ++looked;
    }
    budget->Spend(looked);
    if (e >= 0) {
      path_.push_back(e);
      node = edges_[e].to;
    } else {
      level_[node] = -1;
      if (path_.empty()) break;
      node = edges_[path_.back() ^ 1].to;
      path_.pop_back();
    }
  }
  return sent;
}

}  // namespace memc
