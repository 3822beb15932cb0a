// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_PHANTOM_STREAM_K_H_
#define MEMC_PHANTOM_STREAM_K_H_

#include <cstdint>
#include <map>
#include <vector>

namespace phantom {

enum class Direction { kForward, kData, kWeights };
enum class Precision { kSingle, kHalf, kBfloat16 };

// A convolution in two dimensions.
struct Convolution {
  Direction direction = Direction::kForward;
  Precision precision = Precision::kSingle;
  std::vector<int64_t> image, filter, output;  // sizes, with channels second
};

// Values of an engine's knobs by their type (cudnnBackendKnobType_t).
using Knobs = std::map<int64_t, int64_t>;

// Bytes by which a plan's workspace on a device differs from what cuDNN 9.19 says without one: its
// engines for Hopper's tensor cores split a product's sum among the thread blocks that a device
// holds at once, and take 18 for that number where there is no device. 0 for other engines.
//
// Found from 1,242 convolutions on an H200, of whose plans it gives 97 % exactly; how far a sum is
// split when few tiles have long sums is approximated.
int64_t StreamKBytes(const Convolution& convolution, int64_t engine, const Knobs& knobs);

}  // namespace phantom

#endif  // MEMC_PHANTOM_STREAM_K_H_
