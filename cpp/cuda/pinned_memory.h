// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_PINNED_MEMORY_H_
#define MEMC_PINNED_MEMORY_H_

#include <cstddef>
#include <stdexcept>
#include <string>

namespace memc::cuda {

// Memory of the host cannot be pinned; what() says how much was asked for and how much there is.
class PinError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Bytes of the host's memory that can still be taken: what the system and the process's control
// group leave.
size_t FreeHostBytes();

// Memory of the host that does not move, so that the copy engines of every device reach it without
// the processor's help. Never pageable.
class PinnedBytes {
 public:
  // Throws PinError. With a context current.
  explicit PinnedBytes(size_t bytes);
  ~PinnedBytes();
  PinnedBytes(const PinnedBytes&) = delete;
  PinnedBytes& operator=(const PinnedBytes&) = delete;

  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  char* data_ = nullptr;
  size_t bytes_ = 0;
  size_t mapped_ =
      0;  // Bytes of a mapping of its own, which is registered; 0: the driver's memory.
};

}  // namespace memc::cuda

#endif  // MEMC_PINNED_MEMORY_H_
