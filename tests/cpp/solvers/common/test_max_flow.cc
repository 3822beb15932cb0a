// SPDX-License-Identifier: Apache-2.0
// Against the least cut over all sets of nodes.
#include <limits>

#include "check.h"
#include "solvers/common/max_flow.h"

namespace {

using memc::MaxFlow;
using memc::WorkBudget;

constexpr int64_t kNoLimit = int64_t{1} << 61;

struct Edge {
  int32_t from, to;
  int64_t capacity;
};

// Nodes 0 and 1 are source and sink.
int64_t LeastCut(int32_t nodes, const std::vector<Edge>& edges) {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (uint32_t set = 0; set < (1U << nodes); ++set) {
    if ((set & 1) == 0 || (set & 2) != 0) continue;
    int64_t cut = 0;
    for (const Edge& e : edges) {
      if ((set >> e.from & 1) != 0 && (set >> e.to & 1) == 0) cut += e.capacity;
    }
    least = std::min(least, cut);
  }
  return least;
}

Edge RandomEdge(memc::tests::Random& random, int32_t nodes) {
  return {static_cast<int32_t>(random.Below(nodes)), static_cast<int32_t>(random.Below(nodes)),
          random.Below(20)};
}

WorkBudget Unbounded() { return WorkBudget(std::numeric_limits<int64_t>::max(), -1); }

TEST(FlowIsTheLeastCut) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    memc::tests::Random random(seed);
    const auto nodes = static_cast<int32_t>(random.Within(2, 9));
    MaxFlow flow;
    flow.Clear();
    for (int32_t i = 2; i < nodes; ++i) CHECK_EQ(flow.AddNode(), i);
    std::vector<Edge> edges;
    WorkBudget budget = Unbounded();
    // The network grows after flow has been sent.
    for (int part = 0; part < 3; ++part) {
      for (int64_t k = random.Below(12); k > 0; --k) {
        const Edge edge = RandomEdge(random, nodes);
        if (edge.from == edge.to) continue;
        edges.push_back(edge);
        flow.AddEdge(edge.from, edge.to, edge.capacity);
      }
      CHECK_EQ(flow.Send(kNoLimit, &budget), LeastCut(nodes, edges));
    }
  }
}

TEST(FlowStopsAboveALimit) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    memc::tests::Random random(seed);
    MaxFlow flow;
    flow.Clear();
    for (int i = 2; i < 7; ++i) flow.AddNode();
    std::vector<Edge> edges;
    for (int k = 0; k < 16; ++k) {
      const Edge edge = RandomEdge(random, 7);
      if (edge.from == edge.to) continue;
      edges.push_back(edge);
      flow.AddEdge(edge.from, edge.to, edge.capacity);
    }
    const int64_t least = LeastCut(7, edges);
    const int64_t limit = random.Below(30);
    WorkBudget budget = Unbounded();
    const int64_t sent = flow.Send(limit, &budget);
    if (least <= limit) {
      CHECK_EQ(sent, least);
    } else {
      CHECK(sent > limit && sent <= least);
    }
  }
}

TEST(ASpentBudgetGivesSomeFlow) {
  MaxFlow flow;
  flow.Clear();
  flow.AddEdge(MaxFlow::kSource, MaxFlow::kSink, 7);
  WorkBudget budget(0, -1);
  CHECK_EQ(flow.Send(kNoLimit, &budget), 0);
}

TEST(EdgesThatAreNotToBeCut) {
  MaxFlow flow;
  flow.Clear();
  const int32_t node = flow.AddNode();
  flow.AddEdge(MaxFlow::kSource, node, MaxFlow::kUncut);
  flow.AddEdge(node, MaxFlow::kSink, 5);
  WorkBudget budget = Unbounded();
  CHECK_EQ(flow.Send(kNoLimit, &budget), 5);
  flow.AddEdge(node, MaxFlow::kSink, MaxFlow::kUncut);
  CHECK(flow.Send(kNoLimit, &budget) > kNoLimit);
}

}  // namespace
