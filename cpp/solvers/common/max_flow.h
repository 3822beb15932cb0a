// SPDX-License-Identifier: Apache-2.0
// Maximum flow and minimum cut.
#ifndef MEMC_MAX_FLOW_H_
#define MEMC_MAX_FLOW_H_

#include <cstdint>
#include <vector>

#include "solvers/common/work_budget.h"

namespace memc {

// A directed network with a source and a sink, which may grow after flow has been sent: the flow
// stays, and the next call sends only what is missing. Blocking flows: Dinic 1970.
class MaxFlow {
 public:
  // Of an edge that no cut may pay for. All other capacities together must be below it.
  static constexpr int64_t kUncut = (int64_t{1} << 62) + 1;
  static constexpr int32_t kSource = 0;
  static constexpr int32_t kSink = 1;

  // Empties the network: only source and sink are left.
  void Clear();
  int32_t AddNode();
  void AddEdge(int32_t from, int32_t to, int64_t capacity);

  // The value of a maximum flow; or, once it is known to be above `limit`, some flow's value above
  // `limit`; or, once the budget is spent, some flow's value. A unit of work is an edge looked at.
  int64_t Send(int64_t limit, WorkBudget* budget);

 private:
  bool Layer(WorkBudget* budget);
  int64_t Push(int64_t limit, WorkBudget* budget);

  struct Edge {
    int32_t to;
    int32_t next;      // Of the same node; -1: none.
    int64_t capacity;  // What can still be sent along it.
  };

  std::vector<Edge> edges_;  // Edge i ^ 1 is the reverse of edge i.
  std::vector<int32_t> first_;
  std::vector<int32_t> level_;  // Edges from the source; -1: out of reach.
  std::vector<int32_t> current_;
  std::vector<int32_t> queue_;
  std::vector<int32_t> path_;
  int64_t flow_ = 0;
};

}  // namespace memc

#endif  // MEMC_MAX_FLOW_H_
