// SPDX-License-Identifier: Apache-2.0
// Free blocks in order of size, then address: bins of similar sizes, each a sorted list in chunks.
// A bin rarely has more than a few blocks, so that little is searched and moved; chunks bound the
// work where it has many.
#ifndef MEMC_ALLOCATORS_FREE_BLOCKS_H_
#define MEMC_ALLOCATORS_FREE_BLOCKS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace memc {

// The largest power of two that is at most `value`, which is 1 or more, as an exponent.
inline int FloorLog2(int64_t value) { return 63 - __builtin_clzll(static_cast<uint64_t>(value)); }

struct FreeBlock {
  int64_t size = 0;  // 1 or more
  int64_t address = 0;
  int32_t block = 0;

  // Without a branch, which would be mispredicted half of the time.
  bool operator<(const FreeBlock& other) const {
    return (size < other.size) | ((size == other.size) & (address < other.address));
  }
};

class FreeBlocks {
 public:
  // Where a block is; valid until the next change.
  struct Place {
    int32_t bin = kBins;
    int32_t chunk = 0;
    int32_t index = 0;
  };

  bool AtEnd(Place place) const { return place.bin == kBins; }
  bool AtBegin(Place place) const {
    return place.chunk == 0 && place.index == 0 && PreviousBin(place.bin) < 0;
  }
  const FreeBlock& At(Place place) const { return bins_[place.bin][place.chunk][place.index]; }
  Place begin() const { return {NextBin(0), 0, 0}; }

  // The first that is not before `key`, whose size is 1 or more.
  Place LowerBound(const FreeBlock& key) const {
    const int32_t bin = BinOf(key.size);
    if (Used(bin)) {
      const Bin& chunks = bins_[bin];
      for (size_t c = 0; c < chunks.size(); ++c) {
        if (chunks[c].back() < key) continue;
        return {bin, static_cast<int32_t>(c), static_cast<int32_t>(Find(chunks[c], key))};
      }
    }
    return {NextBin(bin + 1), 0, 0};
  }

  Place Next(Place place) const {
    const Bin& chunks = bins_[place.bin];
    if (++place.index < static_cast<int32_t>(chunks[place.chunk].size())) return place;
    if (++place.chunk < static_cast<int32_t>(chunks.size())) return {place.bin, place.chunk, 0};
    return {NextBin(place.bin + 1), 0, 0};
  }

  // Of any place but the first.
  Place Previous(Place place) const {
    if (place.index > 0) return {place.bin, place.chunk, place.index - 1};
    if (place.chunk == 0) {
      place.bin = PreviousBin(place.bin);
      place.chunk = static_cast<int32_t>(bins_[place.bin].size());
    }
    --place.chunk;
    return {place.bin, place.chunk, static_cast<int32_t>(bins_[place.bin][place.chunk].size()) - 1};
  }

  void Insert(const FreeBlock& block) {
    const int32_t bin = BinOf(block.size);
    Bin& chunks = bins_[bin];
    if (chunks.empty()) chunks.emplace_back();
    used_[bin / 64] |= uint64_t{1} << (bin % 64);
    size_t c = 0;
    while (c + 1 < chunks.size() && chunks[c].back() < block) ++c;
    Chunk& chunk = chunks[c];
    chunk.insert(chunk.begin() + Find(chunk, block), block);
    if (chunk.size() < kMost) return;
    Chunk upper(chunk.begin() + kMost / 2, chunk.end());
    chunk.resize(kMost / 2);
    chunks.insert(chunks.begin() + static_cast<ptrdiff_t>(c) + 1, std::move(upper));
  }

  void Erase(Place place) {
    Bin& chunks = bins_[place.bin];
    Chunk& chunk = chunks[place.chunk];
    chunk.erase(chunk.begin() + place.index);
    if (!chunk.empty()) return;
    if (chunks.size() > 1) {
      chunks.erase(chunks.begin() + place.chunk);
    } else {  // The chunk stays for the next block.
      used_[place.bin / 64] &= ~(uint64_t{1} << (place.bin % 64));
    }
  }

  void EraseBlock(const FreeBlock& block) { Erase(LowerBound(block)); }

 private:
  using Chunk = std::vector<FreeBlock>;
  using Bin = std::vector<Chunk>;  // None of the chunks is empty where `used_` has a bit.
  static constexpr size_t kMost = 256;
  static constexpr int kSteps = 3;  // A power of two has 2^kSteps bins.
  static constexpr int32_t kBins = 64 << kSteps;

  static int32_t BinOf(int64_t size) {
    const int log = FloorLog2(size);
    const int shift = log > kSteps ? log - kSteps : 0;
    return static_cast<int32_t>((log << kSteps) + ((size >> shift) & ((1 << kSteps) - 1)));
  }

  bool Used(int32_t bin) const { return (used_[bin / 64] >> (bin % 64) & 1) != 0; }

  // The first non-empty bin from this one on; kBins if there is none.
  int32_t NextBin(int32_t bin) const {
    for (int32_t word = bin / 64; word < kBins / 64; ++word, bin = word * 64) {
      const uint64_t left = used_[word] & (~uint64_t{0} << (bin % 64));
      if (left != 0) return word * 64 + __builtin_ctzll(left);
    }
    return kBins;
  }

  // The last non-empty bin before this one; -1 if there is none.
  int32_t PreviousBin(int32_t bin) const {
    for (--bin; bin >= 0; --bin) {
      if (Used(bin)) return bin;
    }
    return -1;
  }

  // How many of the chunk are before `key`.
  static ptrdiff_t Find(const Chunk& chunk, const FreeBlock& key) {
    const FreeBlock* first = chunk.data();
    size_t count = chunk.size();
    while (count > 0) {
      const size_t half = count / 2;
      const bool before = first[half] < key;
      first += before ? half + 1 : 0;
      count = before ? count - half - 1 : half;
    }
    return first - chunk.data();
  }

  std::array<Bin, kBins> bins_;
  std::array<uint64_t, kBins / 64> used_{};  // a bit for each bin that is not empty
};

}  // namespace memc

#endif  // MEMC_ALLOCATORS_FREE_BLOCKS_H_
