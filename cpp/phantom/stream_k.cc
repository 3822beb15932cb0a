// SPDX-License-Identifier: Apache-2.0
#include "stream_k.h"

#include <algorithm>
#include <sstream>
#include <tuple>
#include <utility>

#include "device.h"

namespace phantom {

namespace {

constexpr int64_t kTileKnob = 2, kWorkspaceKnob = 25, kClusterRows = 27, kClusterColumns = 28;

int64_t Up(int64_t number, int64_t to) { return (number + to - 1) / to * to; }
int64_t Parts(int64_t number, int64_t of) { return (number + of - 1) / of; }

bool IsStreamK(const Convolution& convolution, int64_t engine) {
  const bool single = convolution.precision == Precision::kSingle;
  switch (convolution.direction) {
    case Direction::kForward:
      return engine == (single ? 67 : 62);
    case Direction::kData:
      return engine == (single ? 71 : 67);
    default:
      return engine == (single ? 68 : 65);
  }
}

// Rows and columns of a thread block's tile; none for a choice that was not seen.
std::pair<int64_t, int64_t> Tile(int64_t choice, Precision precision) {
  static const std::map<int64_t, std::pair<int64_t, int64_t>> kTiles = {
      {0, {128, 128}}, {1, {128, 64}}, {2, {64, 32}},   {3, {256, 128}},
      {4, {128, 128}}, {5, {64, 64}},  {6, {128, 256}}, {7, {64, 128}},
      {8, {64, 32}},   {9, {64, 256}}, {16, {64, 32}},  {18, {64, 96}}};
  if (choice == 18 && precision != Precision::kSingle) return {64, 192};
  const auto found = kTiles.find(choice);
  return found == kTiles.end() ? std::pair<int64_t, int64_t>{0, 0} : found->second;
}

// Thread blocks that run at once, in whole clusters.
int64_t Blocks(int64_t cluster, bool device) {
  if (!device) return 18 - 18 % cluster;
  std::istringstream counts(Text("blocksByClusterSize"));
  int64_t blocks = 0, last = 0;
  for (int64_t size = 1; size <= cluster && counts >> blocks; ++size) last = blocks;
  return last - last % cluster;
}

struct Product {
  int64_t rows, columns;  // in tiles
  int64_t sum;            // in elements
};

Product ProductOf(const Convolution& convolution, std::pair<int64_t, int64_t> tile) {
  const auto& [image, filter, output] =
      std::tie(convolution.image, convolution.filter, convolution.output);
  const int64_t window = filter[2] * filter[3];
  const int64_t pixels = image[0] * image[2] * image[3];
  const int64_t results = output[0] * output[2] * output[3];
  switch (convolution.direction) {
    case Direction::kForward:
      return {Parts(results, tile.first), Parts(filter[0], tile.second), window * filter[1]};
    case Direction::kData:
      return {Parts(pixels, tile.first), Parts(filter[1], tile.second), window * filter[0]};
    default:
      return {Parts(filter[0], tile.first), window * Parts(filter[1], tile.second), results};
  }
}

// The most parts of a sum: of tiles that do not fill the device, or of those left after full waves.
int64_t MostSplits(const Convolution& convolution, int64_t sum, bool small_tile, bool after_waves) {
  const bool bfloat16 = convolution.precision == Precision::kBfloat16;
  if (after_waves) {
    return sum / (bfloat16 ? 2304 : convolution.direction == Direction::kWeights ? 224 : 256);
  }
  if (bfloat16) return sum / (small_tile ? 12544 : 6272);
  if (sum >= 12800) return sum / 1072;
  return sum / (small_tile && convolution.precision == Precision::kHalf ? 1536 : 768);
}

// Bytes of partial tiles, a tree of counters for each tile, and a counter where tiles are handed
// out.
int64_t Bytes(const Convolution& convolution, const Knobs& knobs, bool device) {
  const auto tile = Tile(knobs.at(kTileKnob), convolution.precision);
  const int64_t rows = knobs.at(kClusterRows), columns = knobs.at(kClusterColumns);
  const int64_t blocks = Blocks(rows * columns, device);
  if (tile.first == 0 || blocks == 0) return 0;
  const Product product = ProductOf(convolution, tile);
  const int64_t tiles = Up(product.rows, rows) * Up(product.columns, columns);
  const int64_t left = tiles > blocks ? tiles % blocks : tiles;
  int64_t bytes = 0, counters = tiles > 2 * blocks ? 1 : 0;
  if (knobs.at(kWorkspaceKnob) == 0 && left > 0) {
    const bool small = tile.first * tile.second <= 64 * 64;
    const int64_t most = MostSplits(convolution, product.sum, small, tiles > blocks);
    const int64_t splits = std::min(blocks / left, most);
    if (splits > 1) {
      bytes = splits * left * tile.first * tile.second * 4;
      counters += 8;
      for (int64_t level = splits; level > 1;) counters += left * (level = Parts(level, 2));
    }
  }
  constexpr int64_t kToAlign = 127;
  return counters > 0 ? bytes + 4 * counters + kToAlign : 0;
}

}  // namespace

int64_t StreamKBytes(const Convolution& convolution, int64_t engine, const Knobs& knobs) {
  if (!IsStreamK(convolution, engine)) return 0;
  for (int64_t knob : {kTileKnob, kWorkspaceKnob, kClusterRows, kClusterColumns}) {
    if (knobs.count(knob) == 0) return 0;
  }
  if (knobs.at(kClusterRows) * knobs.at(kClusterColumns) < 1 || Blocks(1, true) == 0) return 0;
  return Bytes(convolution, knobs, true) - Bytes(convolution, knobs, false);
}

}  // namespace phantom
