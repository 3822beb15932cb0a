// SPDX-License-Identifier: Apache-2.0
// What the tiles of attention share, forward and backward: their size, how they are read and
// written, which scores are hidden, and the exponentials, in as wide registers as there are.
#ifndef MEMC_ATTENTION_TILES_H_
#define MEMC_ATTENTION_TILES_H_

#include <algorithm>
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

// Some rows as floats, and the distance between them.
struct FloatRows {
  const float* at;
  int64_t row;
};

// `rows` rows of a tensor from element `at` on: where they are if they are f32, else as f32 in
// `scratch` [rows, kTileColumns].
FloatRows ReadRows(FloatKind kind, const void* data, int64_t at, int64_t row, int64_t rows,
                   int64_t columns, float* scratch);

// One row to element `at` on.
void WriteRow(FloatKind kind, void* data, int64_t at, int64_t columns, const float* from);

// The scores of some queries and keys of a head.
struct ScoreTile {
  int64_t head;  // Of q.
  int64_t query, rows;
  int64_t key, count;
};

// The first key that a query may see.
inline int64_t FirstKey(const AttentionShape& s, int64_t query) {
  return s.window > 0 ? std::max<int64_t>(query + s.diagonal + 1 - s.window, 0) : 0;
}

// Scales, caps and masks a tile of products of q and k, in which a row is a query, or, if
// `is_across`, a key. `slopes`, unless null, becomes what gradients are times by the cap.
void MakeScores(const AttentionShape& s, const ScoreTile& tile, bool is_across, float* scores,
                float* slopes);

// What dropout multiplies the weights of a tile by.
void DrawKept(const AttentionShape& s, const ScoreTile& tile, bool is_across, float* kept);

}  // namespace memc

#endif  // MEMC_ATTENTION_TILES_H_
