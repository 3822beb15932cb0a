// SPDX-License-Identifier: Apache-2.0
// What the tiles of attention share, forward and backward: their size, which scores are hidden, and
// the exponentials, in as wide registers as there are.
#ifndef MEMC_ATTENTION_TILES_H_
#define MEMC_ATTENTION_TILES_H_

#include <cstdint>

#include "kernels/attention.h"

namespace memc {

constexpr int64_t kTile = 64;  // Queries, and keys, of a tile.
constexpr int64_t kTileColumns = kMostHeadColumns;

// c = a b, or c + a b if `more`: `rows` rows with `depth` terms that follow one another, times
// column panels.
void MultiplyTile(int64_t rows, int64_t columns, int64_t depth, const float* a, int64_t a_row,
                  const float* panels, bool more, float* c, int64_t c_row);

// The part of a row of scores that one tile has, `count` of them, and what its softmax so far is.
struct SoftmaxRow {
  float* scores;  // [kTile]; becomes exponentials less the greatest, zeros behind `count`.
  int64_t count;
  float most, sum;
};

// Brings the greatest score and the sum of exponentials up to date; what all before must be
// multiplied by.
float Exponentiate(SoftmaxRow& row);

// Of one key and the queries of a tile: `scores` becomes the weights exp(scores - log_sum), and
// `products` (of g and the values) the gradients in the scores, times `scale`.
void WeightsAndGradients(float scale, const float* log_sum, const float* share, float* scores,
                         float* products);

}  // namespace memc

#endif  // MEMC_ATTENTION_TILES_H_
