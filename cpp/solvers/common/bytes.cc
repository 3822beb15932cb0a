// SPDX-License-Identifier: Apache-2.0
#include "solvers/common/bytes.h"

#include <limits>
#include <stdexcept>

namespace memc {

int64_t AddBytes(int64_t a, int64_t b) {
  if (a > std::numeric_limits<int64_t>::max() - b) {
    throw std::overflow_error("the plan needs more than 2^63 - 1 bytes");
  }
  return a + b;
}

int64_t RoundUp(int64_t bytes, int64_t alignment) {
  const int64_t rest = bytes % alignment;
  return rest == 0 ? bytes : AddBytes(bytes, alignment - rest);
}

}  // namespace memc
