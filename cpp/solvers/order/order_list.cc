// SPDX-License-Identifier: Apache-2.0
// List scheduling by memory effect: of the ready ops, always the one that is best for the bytes
// live next. O((V + E) log V): a queue entry is made when an op becomes ready and whenever its
// effect changes, and skipped if it no longer holds.
#include <algorithm>
#include <queue>
#include <tuple>

#include "solvers/order/order_heuristics.h"

namespace memc {

namespace {

struct Entry {
  std::tuple<int64_t, int64_t, int64_t> key;
  int64_t rise;
  int64_t net;
  int32_t op;

  bool operator<(const Entry& other) const {  // The greatest comes first in a priority queue.
    return std::tie(other.key, other.op) < std::tie(key, op);
  }
};

}  // namespace

std::vector<int32_t> ListOrder(const OrderGraph& graph, ListRule rule) {
  OrderWalk walk(graph);
  std::priority_queue<Entry> queue;
  int64_t pushed = 0;
  const auto push = [&](int32_t op) {
    const int64_t rise = walk.Rise(op);
    const int64_t net = walk.Net(op);
    Entry entry{{}, rise, net, op};
    switch (rule) {
      case ListRule::kNet:
        entry.key = {net, rise, 0};
        break;
      case ListRule::kRise:
        entry.key = {rise, net, 0};
        break;
      case ListRule::kShrink:
        entry.key = {net > 0, net > 0 ? net : rise, rise};
        break;
      case ListRule::kNewest:
        entry.key = {net, rise, --pushed};
        break;
    }
    queue.push(entry);
  };
  for (int64_t op = 0; op < graph.ops(); ++op) {
    if (walk.Ready(static_cast<int32_t>(op))) push(static_cast<int32_t>(op));
  }
  std::vector<int32_t> changed;
  while (!queue.empty()) {
    const Entry entry = queue.top();
    queue.pop();
    const int32_t op = entry.op;
    if (walk.done(op) || entry.rise != walk.Rise(op) || entry.net != walk.Net(op)) continue;
    walk.Run(op, &changed);
    for (int32_t other : changed) push(other);
  }
  return walk.order();
}

OrderResult ListSolver(const OrderProblem& problem, const OrderOptions& options) {
  OrderResult result = GivenSolver(problem, options);
  if (!SumsFit(problem)) return result;
  const OrderGraph graph = MakeOrderGraph(problem, Direction::kForward);
  for (ListRule rule : {ListRule::kNet, ListRule::kRise}) {
    Offer(problem, ListOrder(graph, rule), &result);
  }
  return result;
}

}  // namespace memc
