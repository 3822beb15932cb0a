// SPDX-License-Identifier: Apache-2.0
#include "allocators/exact_size.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace memc {

namespace {

constexpr int64_t kMostBytes = int64_t{1} << 60;

int64_t RoundUp(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

MxnetAllocator::MxnetAllocator(Device device, const MxnetOptions& options)
    : Allocator(std::move(device)), options_(options) {
  if (options.page <= 0 || options.large_unit <= 0 || options.linear_cutoff < 20 ||
      options.linear_cutoff > 34 || options.reserve_percent < 0 || options.reserve_percent > 100) {
    throw std::invalid_argument("options of MXNet's pool are out of range");
  }
  this->device().SetPage(512);
}

int64_t MxnetAllocator::RoundSize(int64_t bytes) const {
  if (options_.kind == MxnetOptions::kUnpooled) return bytes;
  if (options_.kind == MxnetOptions::kNaive) {
    const int64_t paged = RoundUp(bytes, options_.page);
    return paged > options_.large_unit ? RoundUp(paged, options_.large_unit) : paged;
  }
  const int64_t cutoff = int64_t{1} << options_.linear_cutoff;
  if (bytes > cutoff) return RoundUp(bytes, cutoff);
  int64_t size = 1;
  while (size < std::max(bytes, options_.page)) size *= 2;
  return size;
}

bool MxnetAllocator::Allocate(const Event& event) {
  if (event.bytes < 0 || event.bytes > kMostBytes) {
    throw std::invalid_argument("a request of " + std::to_string(event.bytes) +
                                " bytes is not within [0, 2^60]");
  }
  if (live_.count(event.block) != 0) {
    throw std::invalid_argument("block " + std::to_string(event.block) + " is live already");
  }
  if (event.bytes == 0) {
    live_[event.block] = {-1, 0, 0};
    return true;
  }
  Block block{0, RoundSize(event.bytes), event.bytes};
  std::vector<int64_t>& same = free_[block.size];
  if (!same.empty()) {
    block.address = same.back();
    same.pop_back();
  } else {
    const bool limited = device().capacity() != kUnlimited;
    const double reserve = static_cast<double>(device().capacity()) *
                           static_cast<double>(options_.reserve_percent) / 100;
    const int64_t left = device().capacity() - device().used() - block.size;
    if (limited && static_cast<double>(left) < reserve) EmptyCache();
    block.address = TakeSegment(block.size, 0);
    if (block.address < 0) {
      ++stats.retries;
      EmptyCache();
      block.address = TakeSegment(block.size, 0);
    }
    if (block.address < 0) return false;
  }
  live_[event.block] = block;
  stats.allocated.Add(block.size);
  stats.active.Add(block.size);
  stats.requested.Add(block.requested);
  return true;
}

void MxnetAllocator::Free(int64_t id) {
  const auto found = live_.find(id);
  if (found == live_.end()) {
    throw std::invalid_argument("block " + std::to_string(id) + " is not live");
  }
  const Block block = found->second;
  live_.erase(found);
  if (block.size == 0) return;
  stats.allocated.Add(-block.size);
  stats.active.Add(-block.size);
  stats.requested.Add(-block.requested);
  if (options_.kind == MxnetOptions::kUnpooled) {
    GiveBackSegment(block.address, block.size, 0);
  } else {
    free_[block.size].push_back(block.address);
  }
}

void MxnetAllocator::EmptyCache() {
  for (auto& [size, addresses] : free_) {
    for (const int64_t address : addresses) GiveBackSegment(address, size, 0);
    addresses.clear();
  }
}

int64_t MxnetAllocator::AddressOf(int64_t id) const {
  const auto found = live_.find(id);
  if (found == live_.end()) {
    throw std::invalid_argument("block " + std::to_string(id) + " is not live");
  }
  return found->second.address;
}

}  // namespace memc
