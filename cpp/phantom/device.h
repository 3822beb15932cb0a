// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_PHANTOM_DEVICE_H_
#define MEMC_PHANTOM_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace phantom {

constexpr size_t kPage = size_t{2} << 20;  // what the driver gives memory in

inline size_t Pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// The value of a line `key value` of the file that MEMC_PHANTOM_DEVICE names: the described GPU.
// A key that the file lacks is 0, or empty text.
long long Number(const char* key);
const std::string& Text(const char* key);

// Bytes of the device. `Take` returns false where the limit does not allow them, which is set for
// each run of a script.
bool Take(size_t bytes);
void GiveBack(size_t bytes);
size_t Used();
size_t Limit();

// Bytes outside of what is allocated: the context, and what handles of libraries hold.
size_t Outside();
void CountBlasHandle(int change);
void CountDnnHandle(int change);
void CountNccl(int64_t change);  // of which the most counts

// A number that no other object has.
uintptr_t NewHandle();

// Refuses memory to another process than that of the script (MEMC_PHANTOM_OWNER, if it is set):
// nobody would count what is allocated there.
void RequireOwner();

// Tells in one line why the process cannot go on, in the file that MEMC_PHANTOM_ERROR names and on
// stderr, and ends it.
[[noreturn]] void Refuse(const char* what, const char* why);

}  // namespace phantom

#endif  // MEMC_PHANTOM_DEVICE_H_
