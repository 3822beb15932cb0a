// SPDX-License-Identifier: Apache-2.0
// What the order solvers share: a problem that can be walked from either end, and the bytes each
// op would bring to life and free if it ran next.
#ifndef MEMC_ORDER_STATE_H_
#define MEMC_ORDER_STATE_H_

#include <cstdint>
#include <vector>

#include "solvers/order/order.h"

namespace memc {

// An order problem with its relations in both directions. Walked from the last op to the first, it
// is a problem of the same kind, in which a kept storage is live from the start; an order of one
// read backwards is an order of the other with the same peak.
struct OrderGraph {
  std::vector<int64_t> sizes;
  std::vector<int64_t> scratch;
  std::vector<char> from_start;  // Of each storage: live before any op has run.
  std::vector<char> to_end;      // Of each storage: live after all ops have run.
  Rows touches;                  // Of each op: storages.
  Rows users;                    // Of each storage: the ops that touch it.
  Rows after;                    // Of each op: ops that must have run before it.
  Rows before;                   // Of each op: ops that must not have run before it.

  int64_t ops() const { return touches.size(); }
};

enum class Direction { kForward, kBackward };

OrderGraph MakeOrderGraph(const OrderProblem& problem, Direction direction);

// The same ops from the other end.
OrderGraph Reversed(const OrderGraph& graph);

// Row j lists the rows that hold j, ascending; there are `count` of them.
Rows Inverse(const Rows& rows, int64_t count);

// Whether all sums of bytes stay far below 2^63, so that solvers need not check them.
bool SumsFit(const OrderProblem& problem);

// Runs ops one by one. Running an op takes time proportional to the ops that share its storages or
// depend on it, each pair counted once over the whole run.
class OrderWalk {
 public:
  // The graph must outlive this.
  explicit OrderWalk(const OrderGraph& graph);

  int64_t live() const { return live_; }
  int64_t peak() const { return peak_; }
  const std::vector<int32_t>& order() const { return order_; }
  bool done(int32_t op) const { return done_[op]; }

  // Bytes above `live()` while the op runs, if it ran next.
  int64_t Rise(int32_t op) const { return starts_[op] + graph_.scratch[op]; }
  // Bytes above `live()` after it.
  int64_t Net(int32_t op) const { return starts_[op] - ends_[op]; }
  bool Ready(int32_t op) const { return !done_[op] && waiting_[op] == 0; }

  // Runs a ready op and lists the ready ops whose rise or net has changed, or that have become
  // ready; some may be listed twice.
  void Run(int32_t op, std::vector<int32_t>* changed);

 private:
  const OrderGraph& graph_;
  std::vector<int64_t> starts_;   // Of each op: bytes it would bring to life.
  std::vector<int64_t> ends_;     // Of each op: bytes it would free.
  std::vector<int32_t> waiting_;  // Of each op: ops it still waits for.
  std::vector<int32_t> left_;     // Of each storage: users that have not run.
  std::vector<int64_t> last_;     // Of each storage: sum of the users that have not run.
  std::vector<char> touched_;     // Of each storage.
  std::vector<char> done_;
  std::vector<int32_t> order_;
  int64_t live_ = 0;
  int64_t peak_ = 0;
};

}  // namespace memc

#endif  // MEMC_ORDER_STATE_H_
