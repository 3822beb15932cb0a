// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_PHANTOM_READS_H_
#define MEMC_PHANTOM_READS_H_

#include <cstddef>
#include <cstdint>

namespace phantom {

// The host reads bytes that the device computed. Whoever watches ops is told, in this thread, and
// says which number it finds there; negative: what memory holds.
int64_t CountRead(size_t bytes);

// The host writes to an address of the device.
void CountWrite(const void* to);

// A plan of cuDNN's for tensor cores would run.
void CountTensorCores();

// What the last plan of cuDNN's is said to take: nothing, or the less the larger its workspace is.
// cudnn.benchmark takes the fastest.
float MillisecondsOfPlan();

}  // namespace phantom

#endif  // MEMC_PHANTOM_READS_H_
