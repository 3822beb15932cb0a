// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_PHANTOM_READS_H_
#define MEMC_PHANTOM_READS_H_

#include <cstddef>

namespace phantom {

// The host reads bytes that the device computed. Whoever watches ops is told, in this thread.
void CountRead(size_t bytes);

// The host writes to an address of the device.
void CountWrite(const void* to);

// A plan of cuDNN's for tensor cores would run.
void CountTensorCores();

}  // namespace phantom

#endif  // MEMC_PHANTOM_READS_H_
