// SPDX-License-Identifier: Apache-2.0
// Free blocks in order of size, then address: a sorted list in chunks, which stay in the cache
// where a tree's nodes do not.
#ifndef MEMC_ALLOCATORS_FREE_BLOCKS_H_
#define MEMC_ALLOCATORS_FREE_BLOCKS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

namespace memc {

struct FreeBlock {
  int64_t size = 0;
  int64_t address = 0;
  int32_t block = 0;

  bool operator<(const FreeBlock& other) const {
    return size != other.size ? size < other.size : address < other.address;
  }
};

class FreeBlocks {
 public:
  // Where a block is; valid until the next change.
  struct Place {
    size_t chunk = 0;
    size_t index = 0;
  };

  bool empty() const { return chunks_.empty(); }
  bool AtEnd(Place place) const { return place.chunk == chunks_.size(); }
  bool AtBegin(Place place) const { return place.chunk == 0 && place.index == 0; }
  const FreeBlock& At(Place place) const { return chunks_[place.chunk][place.index]; }
  Place begin() const { return {}; }

  // The first that is not before `key`.
  Place LowerBound(const FreeBlock& key) const {
    const auto chunk = std::partition_point(chunks_.begin(), chunks_.end(),
                                            [&](const Chunk& c) { return c.back() < key; });
    if (chunk == chunks_.end()) return {chunks_.size(), 0};
    const auto found = std::lower_bound(chunk->begin(), chunk->end(), key);
    return {static_cast<size_t>(chunk - chunks_.begin()),
            static_cast<size_t>(found - chunk->begin())};
  }

  Place Next(Place place) const {
    if (++place.index == chunks_[place.chunk].size()) place = {place.chunk + 1, 0};
    return place;
  }

  // Of any place but the first.
  Place Previous(Place place) const {
    if (place.index > 0) return {place.chunk, place.index - 1};
    return {place.chunk - 1, chunks_[place.chunk - 1].size() - 1};
  }

  void Insert(const FreeBlock& block) {
    if (chunks_.empty()) chunks_.push_back(NewChunk());
    auto chunk = std::partition_point(chunks_.begin(), chunks_.end(), [&](const Chunk& c) {
      return !c.empty() && c.back() < block;
    });
    if (chunk == chunks_.end()) --chunk;
    chunk->insert(std::lower_bound(chunk->begin(), chunk->end(), block), block);
    if (chunk->size() < kMost) return;
    Chunk upper = NewChunk();
    upper.assign(chunk->begin() + kMost / 2, chunk->end());
    chunk->resize(kMost / 2);
    chunks_.insert(chunk + 1, std::move(upper));
  }

  void Erase(Place place) {
    Chunk& chunk = chunks_[place.chunk];
    chunk.erase(chunk.begin() + static_cast<int64_t>(place.index));
    if (chunk.empty()) chunks_.erase(chunks_.begin() + static_cast<int64_t>(place.chunk));
  }

  void Erase(const FreeBlock& block) { Erase(LowerBound(block)); }

 private:
  using Chunk = std::vector<FreeBlock>;
  static constexpr size_t kMost = 128;

  static Chunk NewChunk() {
    Chunk chunk;
    chunk.reserve(kMost);
    return chunk;
  }

  std::vector<Chunk> chunks_;  // None is empty between calls.
};

}  // namespace memc

#endif  // MEMC_ALLOCATORS_FREE_BLOCKS_H_
