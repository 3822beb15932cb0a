// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_REPLAY_STREAM_CLASSES_H_
#define MEMC_REPLAY_STREAM_CLASSES_H_

#include <array>
#include <cstdint>

#include "replay/plan.h"

namespace memc::replay {

// Which stream has the part of each of a plan's classes in this step. The framework may hand out
// other streams in each step; one that has a part keeps it until the step ends, and the last step's
// streams are the first guess.
class StreamClasses {
 public:
  StreamClasses() { Forget(); }

  void Forget() {
    streams_.fill(kNoStream);
    taken_ = 0;
  }
  void BeginStep() { taken_ = 0; }

  // Whether the guess is right, which then is none any more.
  bool Confirm(uint32_t stream_class, uint64_t stream) {
    if (streams_[stream_class] != stream) return false;
    taken_ |= uint32_t{1} << stream_class;
    return true;
  }

  // Whether `stream` has the part, or could get it.
  bool Takes(uint32_t stream_class, uint64_t stream) const {
    return taken(stream_class) ? streams_[stream_class] == stream : !Has(stream);
  }
  void Take(uint32_t stream_class, uint64_t stream) {
    for (uint32_t other = 0; other < kMostStreams; ++other) {
      if (!taken(other) && streams_[other] == stream) streams_[other] = kNoStream;
    }
    streams_[stream_class] = stream;
    taken_ |= uint32_t{1} << stream_class;
  }

  // Whether `stream` has a part in this step.
  bool Has(uint64_t stream) const {
    for (uint32_t c = 0; c < kMostStreams; ++c) {
      if (taken(c) && streams_[c] == stream) return true;
    }
    return false;
  }

 private:
  bool taken(uint32_t stream_class) const { return (taken_ >> stream_class & 1) != 0; }

  std::array<uint64_t, kMostStreams> streams_;
  uint32_t taken_ = 0;  // Bits of classes.
};

}  // namespace memc::replay

#endif  // MEMC_REPLAY_STREAM_CLASSES_H_
