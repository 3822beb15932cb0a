// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_PHANTOM_ADDRESS_SPACE_H_
#define MEMC_PHANTOM_ADDRESS_SPACE_H_

#include <cstddef>
#include <cstdint>

namespace phantom {

// Address ranges of the device, in whole pages, each below the last, as the driver mostly has them;
// no address is given twice. Reading gives zeros; a page of the host is used only once it is
// written to. 0 where the host has no address space left.
uintptr_t ReserveRange(size_t bytes);

// A range for an expandable segment, apart from the others and above the last of its kind.
uintptr_t ReserveLongRange(size_t bytes);

// Of either kind.
void ReleaseRange(uintptr_t address, size_t bytes);

// Whether an address lies on the device.
bool OnDevice(const void* address);

}  // namespace phantom

#endif  // MEMC_PHANTOM_ADDRESS_SPACE_H_
