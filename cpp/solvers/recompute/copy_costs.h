// SPDX-License-Identifier: Apache-2.0
// What it costs to have a value elsewhere between two uses, guessed from how much else is.
#ifndef MEMC_COPY_COSTS_H_
#define MEMC_COPY_COSTS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "solvers/common/lanes.h"
#include "solvers/recompute/recompute_state.h"

namespace memc {

class CopyCosts {
 public:
  // `movable`: of each value. `sizes` of the problem.
  // `most`: bytes that may be elsewhere at one time.
  CopyCosts(const std::vector<int64_t>& sizes, std::vector<char> movable, Lanes lanes, int64_t most)
      : sizes_(sizes), movable_(std::move(movable)), lanes_(lanes), most_(most) {}

  bool MayMove(int32_t value) const { return movable_[value] != 0; }

  // What the copies of so many bytes count even where nothing waits for them, since others then
  // cannot have the lanes.
  int64_t Price(int64_t bytes) const {
    return (lanes_.out.Duration(bytes) + lanes_.in.Duration(bytes)) / kPrice + lanes_.out.sync +
           lanes_.in.sync;
  }

  // What is known of a moment: whatever is absent there left in the time before it, and comes back
  // in the time after it.
  struct Moment {
    int64_t before, after;  // Picoseconds of runs.
    int64_t out, in;        // Of the copies of what is absent.
    int64_t absent;         // Bytes.
  };
  Moment At(const RecomputeState& state, int32_t tag) const;

  // Whether the value may be absent at the moment, besides what is.
  bool MayMove(int32_t value, const Moment& moment) const {
    return MayMove(value) && sizes_[value] <= most_ - moment.absent;
  }

  // By how much the sequence takes longer, in picoseconds, if the value is also absent from `last`,
  // the tag of its last use before the moment, to `next`, that of its next one.
  int64_t Stall(const RecomputeState& state, int32_t value, int32_t last, const Moment& moment,
                int32_t next) const;

 private:
  static constexpr int64_t kPrice = 64;

  const std::vector<int64_t>& sizes_;
  const std::vector<char> movable_;
  const Lanes lanes_;
  const int64_t most_;
};

}  // namespace memc

#endif  // MEMC_COPY_COSTS_H_
