// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_PHANTOM_ADDRESS_SPACE_H_
#define MEMC_PHANTOM_ADDRESS_SPACE_H_

#include <cstddef>
#include <cstdint>

namespace phantom {

// Address ranges of the device, in whole pages. The driver was seen to reserve chunks of a multiple
// of 32 MiB, mostly each below the last, and to put later ranges into what is left of chunks:
//
//     chunk of 32 MiB:  | 20 MiB          | 12 MiB left |   <- 12 MiB, or less, go here
//
// The lowest place that is large enough is taken. Reading gives zeros; a page of the host is used
// only once it is written to. 0 where the host has no address space left.
uintptr_t ReserveRange(size_t bytes);

// A range for an expandable segment, apart from the others and above the last of its kind.
uintptr_t ReserveLongRange(size_t bytes);

void ReleaseRange(uintptr_t address, size_t bytes);
void ReleaseLongRange(uintptr_t address, size_t bytes);

// Whether an address lies on the device.
bool OnDevice(const void* address);

}  // namespace phantom

#endif  // MEMC_PHANTOM_ADDRESS_SPACE_H_
