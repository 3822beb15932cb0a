// SPDX-License-Identifier: Apache-2.0
// Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), as
// `ir/ops/shared/philox.py` has it.
#ifndef MEMC_PHILOX_H_
#define MEMC_PHILOX_H_

#include <cstdint>

namespace memc {

// The first word of what element `index` of stream `stream` draws under the key `seed`.
inline uint32_t DrawnWord(uint64_t index, uint32_t stream, uint64_t seed) {
  uint32_t c0 = static_cast<uint32_t>(index), c1 = static_cast<uint32_t>(index >> 32);
  uint32_t c2 = stream, c3 = 0;
  uint32_t key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
  for (int turn = 0; turn < 10; ++turn) {
    const uint64_t first = static_cast<uint64_t>(c0) * 0xD2511F53U;
    const uint64_t second = static_cast<uint64_t>(c2) * 0xCD9E8D57U;
    c0 = static_cast<uint32_t>(second >> 32) ^ c1 ^ key0;
    c1 = static_cast<uint32_t>(second);
    c2 = static_cast<uint32_t>(first >> 32) ^ c3 ^ key1;
    c3 = static_cast<uint32_t>(first);
    key0 += 0x9E3779B9U;
    key1 += 0xBB67AE85U;
  }
  return c0;
}

}  // namespace memc

#endif  // MEMC_PHILOX_H_
