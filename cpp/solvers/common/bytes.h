// SPDX-License-Identifier: Apache-2.0
// Sums of bytes within int64.
#ifndef MEMC_BYTES_H_
#define MEMC_BYTES_H_

#include <cstdint>

namespace memc {

// The greatest size accepted, in bytes. Sums beyond int64 raise std::overflow_error.
constexpr int64_t kMaxSize = int64_t{1} << 62;

// a + b; throws std::overflow_error beyond int64. Both must not be negative.
int64_t AddBytes(int64_t a, int64_t b);

// Bytes rounded up to a multiple of the alignment. Throws std::overflow_error beyond int64.
int64_t RoundUp(int64_t bytes, int64_t alignment);

}  // namespace memc

#endif  // MEMC_BYTES_H_
