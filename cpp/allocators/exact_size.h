// SPDX-License-Identifier: Apache-2.0
// MXNet's pools: a free block serves only requests of its own rounded size; none is split or
// merged.
#ifndef MEMC_ALLOCATORS_EXACT_SIZE_H_
#define MEMC_ALLOCATORS_EXACT_SIZE_H_

#include <unordered_map>
#include <vector>

#include "allocators/allocator.h"

namespace memc {

struct MxnetOptions {
  enum Kind : int64_t { kNaive = 0, kRound = 1, kUnpooled = 2 };
  Kind kind = kNaive;
  int64_t page = 4096;           // bytes to which sizes are rounded
  int64_t large_unit = 2 << 20;  // to which larger sizes than this are rounded (naive)
  int64_t linear_cutoff =
      24;  // sizes of 2^cutoff bytes and more are rounded to multiples of it (round)
  int64_t reserve_percent = 5;  // of the device that stays free
};

class MxnetAllocator final : public Allocator {
 public:
  MxnetAllocator(Device device, const MxnetOptions& options);

  bool Allocate(const Event& event) override;
  void Free(int64_t block) override;
  void EmptyCache() override;
  int64_t AddressOf(int64_t block) const override;
  int64_t RoundSize(int64_t bytes) const;

 private:
  struct Block {
    int64_t address = 0;
    int64_t size = 0;
    int64_t requested = 0;
  };

  MxnetOptions options_;
  std::unordered_map<int64_t, Block> live_;
  std::unordered_map<int64_t, std::vector<int64_t>>
      free_;  // addresses by size, the last freed last
};

}  // namespace memc

#endif  // MEMC_ALLOCATORS_EXACT_SIZE_H_
