// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/attention_tiles.h"
#include "kernels/cpu_kernels.h"
#include "kernels/panel_product.h"
#include "kernels/parallel.h"
#include "kernels/patches.h"

namespace memc {

namespace {

// Scales and masks a tile of scores: `rows` queries from `query` on, `count` keys from `key` on.
void Mask(const AttentionShape& s, int64_t head, int64_t query, int64_t rows, int64_t key,
          int64_t count, float* scores) {
  constexpr float kHidden = -std::numeric_limits<float>::infinity();
  const AttentionMask& mask = s.mask;
  const int64_t at = mask.IsGiven() ? mask.at[head] + query * mask.row + key * mask.column : 0;
  for (int64_t i = 0; i < rows; ++i) {
    float* row = scores + i * kTile;
    for (int64_t j = 0; j < count; ++j) row[j] *= s.scale;
    const int64_t own = at + i * mask.row;
    if (mask.added != nullptr) {
      for (int64_t j = 0; j < count; ++j) row[j] += mask.added[own + j * mask.column];
    } else if (mask.seen != nullptr) {
      for (int64_t j = 0; j < count; ++j) {
        if (mask.seen[own + j * mask.column] == 0) row[j] = kHidden;
      }
    }
    const int64_t seen = query + i + s.diagonal + 1 - key;
    for (int64_t j = std::max<int64_t>(seen, 0); j < count; ++j) row[j] = kHidden;
  }
}

// What a tile of queries needs beside its operands.
struct Scratch {
  alignas(64) float panels[kTile * kTileColumns];
  alignas(64) float found[kTile * kTileColumns];
  alignas(64) float scores[kTile * kTile];
  float most[kTile], sum[kTile];
};

// Adds the values of the keys of a tile, times their powers, to what was found before.
void AddKeys(const AttentionShape& s, int64_t head, int64_t query, int64_t rows, int64_t key,
             const float* q, const float* k, const float* v, Scratch& scratch) {
  const int64_t count = std::min(kTile, s.keys - key);
  PackColumns(k + key * s.k.row, s.k.row, true, s.depth, count, scratch.panels);
  MultiplyTile(rows, count, s.depth, q, s.q.row, scratch.panels, false, scratch.scores, kTile);
  Mask(s, head, query, rows, key, count, scratch.scores);
  for (int64_t i = 0; i < rows; ++i) {
    SoftmaxRow row{scratch.scores + i * kTile, count, scratch.most[i], scratch.sum[i]};
    const float less = Exponentiate(row);
    scratch.most[i] = row.most;
    scratch.sum[i] = row.sum;
    float* found = scratch.found + i * kTileColumns;
    if (key > 0) {
      for (int64_t c = 0; c < s.width; ++c) found[c] *= less;
    }
  }
  PackColumns(v + key * s.v.row, s.v.row, false, count, s.width, scratch.panels);
  MultiplyTile(rows, s.width, count, scratch.scores, kTile, scratch.panels, key > 0, scratch.found,
               kTileColumns);
}

// The result of some queries of one head.
void AttendTile(const AttentionShape& s, int64_t head, int64_t query, const float* q,
                const float* k, const float* v, float* result, float* log_sum) {
  Scratch scratch;
  const int64_t rows = std::min(kTile, s.queries - query);
  std::fill_n(scratch.most, kTile, -std::numeric_limits<float>::infinity());
  std::fill_n(scratch.sum, kTile, 0.0F);
  std::fill_n(scratch.found, rows * kTileColumns, 0.0F);
  const float* own = q + s.q.at[head] + query * s.q.row;
  const float* keys = k + s.k.at[s.key_of[head]];
  const float* values = v + s.v.at[s.key_of[head]];
  const int64_t seen = std::min(s.keys, query + rows + s.diagonal);
  for (int64_t key = 0; key < seen; key += kTile) {
    AddKeys(s, head, query, rows, key, own, keys, values, scratch);
  }
  for (int64_t i = 0; i < rows; ++i) {
    // Without a key that is seen, 0 / 0.
    const float sum =
        scratch.sum[i] == 0 ? std::numeric_limits<float>::quiet_NaN() : scratch.sum[i];
    float* to = result + s.result.at[head] + (query + i) * s.result.row;
    for (int64_t c = 0; c < s.width; ++c) to[c] = scratch.found[i * kTileColumns + c] / sum;
    log_sum[s.numbers.at[head] + (query + i) * s.numbers.row] = scratch.most[i] + std::log(sum);
  }
}

}  // namespace

void Attend(const AttentionShape& s, const float* q, const float* k, const float* v, float* result,
            float* log_sum) {
  const int64_t tiles = CeilDiv(s.queries, kTile);
  const auto heads = static_cast<int64_t>(s.key_of.size());
  const int64_t items = heads * tiles;
  const int64_t work = heads * s.queries * s.keys * (s.depth + s.width);
  ParallelFor(work < kSerialWork, [&](int64_t task, int64_t tasks) {
    for (int64_t item = task * items / tasks; item < (task + 1) * items / tasks; ++item) {
      AttendTile(s, item / tiles, item % tiles * kTile, q, k, v, result, log_sum);
    }
  });
}

}  // namespace memc
