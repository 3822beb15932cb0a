// SPDX-License-Identifier: Apache-2.0
// First-fit placement of one buffer after another; the work horse of several solvers. It knows gaps
// in lifetimes and alignments of single buffers.
#ifndef MEMC_PACKER_H_
#define MEMC_PACKER_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "solvers/placement/problem.h"

namespace memc {

class Packer {
 public:
  // Keeps a reference to the problem, which must be valid and outlive the packer.
  explicit Packer(const Problem& problem);

  // Packs the buffers of `order` (indices, every movable buffer once), fixed ones first. Gives up
  // and returns false as soon as the peak exceeds `limit` bytes.
  bool Pack(const std::vector<int32_t>& order, int64_t limit);

  const std::vector<int64_t>& offsets() const { return offsets_; }  // Bytes, after Pack.
  int64_t peak() const { return peak_; }                            // Bytes, after Pack.
  int64_t work() const { return work_; }  // Buffers looked at so far: a measure of time.

  // Indices of the buffers without a fixed offset, in the given order.
  const std::vector<int32_t>& movable() const { return movable_; }
  const std::vector<int64_t>& sizes() const { return sizes_; }  // Bytes, rounded up.

 private:
  int64_t LowestFree(int32_t index);
  void Put(int32_t index, int64_t offset);

  const Problem& problem_;
  std::vector<int64_t> sizes_;
  std::vector<int32_t> movable_;
  std::vector<int64_t> offsets_;
  std::vector<char> placed_;
  bool sorted_ = true;              // Whether by_offset_ is kept: too slow for many sparse buffers.
  std::vector<int32_t> by_offset_;  // Placed buffers, lowest offset first.
  // Buffers live together with buffer i: neighbours_[first_[i] .. first_[i + 1]). Left empty when
  // there are too many pairs to keep.
  std::vector<int64_t> first_;
  std::vector<int32_t> neighbours_;
  std::vector<std::pair<int64_t, int64_t>> taken_;  // Scratch: (offset, end) in bytes.
  int64_t peak_ = 0;
  int64_t work_ = 0;
};

}  // namespace memc

#endif  // MEMC_PACKER_H_
