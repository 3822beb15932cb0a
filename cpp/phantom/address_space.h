// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_PHANTOM_ADDRESS_SPACE_H_
#define MEMC_PHANTOM_ADDRESS_SPACE_H_

#include <cstddef>
#include <cstdint>

namespace phantom {

// Address ranges of the device, in whole pages, placed as the driver was seen to place them (580 on
// an H200, 450 requests and frees of which it predicts all until another mapping comes between).
// The driver reserves chunks of a multiple of 32 MiB, each where the host's kernel has room, mostly
// below the last, and puts later ranges into what is left of chunks:
//
//     chunk of 32 MiB:  | 20 MiB          | 12 MiB left |   <- 12 MiB, or less, go here
//
// The newest chunk with room is taken, in it the smallest range that is large enough, of those the
// lowest. A chunk that is free as a whole goes back to the host. Reading gives zeros; a page of the
// host is used only once it is written to. 0 where the host has no address space left.
uintptr_t ReserveRange(size_t bytes);

// A range for an expandable segment, apart from the others and above the last of its kind.
uintptr_t ReserveLongRange(size_t bytes);

void ReleaseRange(uintptr_t address, size_t bytes);
void ReleaseLongRange(uintptr_t address, size_t bytes);

// The first kernel that needs more local memory than the context has gets another range for it, and
// the old one is free. No later call does anything.
void GrowLocalMemory();

// Whether an address lies on the device.
bool OnDevice(const void* address);

}  // namespace phantom

#endif  // MEMC_PHANTOM_ADDRESS_SPACE_H_
