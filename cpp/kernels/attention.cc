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

// What a tile of queries needs beside its operands.
struct Scratch {
  alignas(64) float panels[kTile * kTileColumns];
  alignas(64) float found[kTile * kTileColumns];
  alignas(64) float own[kTile * kTileColumns];   // Queries that are no f32.
  alignas(64) float rows[kTile * kTileColumns];  // Keys or values that are no f32.
  alignas(64) float scores[kTile * kTile];
  alignas(64) float kept[kTile * kTile];
  float most[kTile], sum[kTile];
};

// Adds the values of the keys of a tile, times their powers, to what was found before.
void AddKeys(const AttentionShape& s, const ScoreTile& t, bool is_first, const FloatRows& q,
             const void* k, const void* v, Scratch& scratch) {
  const int64_t head = s.key_of[t.head];
  const FloatRows keys =
      ReadRows(s.kind, k, s.k.at[head] + t.key * s.k.row, s.k.row, t.count, s.depth, scratch.rows);
  PackColumns(keys.at, keys.row, true, s.depth, t.count, scratch.panels);
  MultiplyTile(t.rows, t.count, s.depth, q.at, q.row, scratch.panels, false, scratch.scores, kTile);
  MakeScores(s, t, false, scratch.scores, nullptr);
  if (s.dropout.IsGiven()) DrawKept(s, t, false, scratch.kept);
  for (int64_t i = 0; i < t.rows; ++i) {
    float* scores = scratch.scores + i * kTile;
    SoftmaxRow row{scores, t.count, scratch.most[i], scratch.sum[i]};
    const float less = Exponentiate(row);
    scratch.most[i] = row.most;
    scratch.sum[i] = row.sum;
    float* found = scratch.found + i * kTileColumns;
    if (!is_first) {
      for (int64_t c = 0; c < s.width; ++c) found[c] *= less;
    }
    if (s.dropout.IsGiven()) {
      for (int64_t j = 0; j < t.count; ++j) scores[j] *= scratch.kept[i * kTile + j];
    }
  }
  const FloatRows values =
      ReadRows(s.kind, v, s.v.at[head] + t.key * s.v.row, s.v.row, t.count, s.width, scratch.rows);
  PackColumns(values.at, values.row, false, t.count, s.width, scratch.panels);
  MultiplyTile(t.rows, s.width, t.count, scratch.scores, kTile, scratch.panels, !is_first,
               scratch.found, kTileColumns);
}

// The result of some queries of one head.
void AttendTile(const AttentionShape& s, int64_t head, int64_t query, const void* q, const void* k,
                const void* v, void* result, float* log_sum) {
  Scratch scratch;
  const int64_t rows = std::min(kTile, s.queries - query);
  std::fill_n(scratch.most, kTile, -std::numeric_limits<float>::infinity());
  std::fill_n(scratch.sum, kTile, 0.0F);
  std::fill_n(scratch.found, rows * kTileColumns, 0.0F);
  const FloatRows own =
      ReadRows(s.kind, q, s.q.at[head] + query * s.q.row, s.q.row, rows, s.depth, scratch.own);
  const int64_t end = std::min(s.keys, query + rows + s.diagonal);
  const int64_t begin = FirstKey(s, query) / kTile * kTile;
  for (int64_t key = begin; key < end; key += kTile) {
    const ScoreTile tile{head, query, rows, key, std::min(kTile, s.keys - key)};
    AddKeys(s, tile, key == begin, own, k, v, scratch);
  }
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (int64_t i = 0; i < rows; ++i) {
    // Without a key that is seen, 0 / 0.
    const float sum = scratch.sum[i] == 0 ? kNan : scratch.sum[i];
    const bool is_zero = s.is_zero_blind && scratch.sum[i] == 0;
    float* found = scratch.found + i * kTileColumns;
    for (int64_t c = 0; c < s.width; ++c) found[c] = is_zero ? 0.0F : found[c] / sum;
    WriteRow(s.kind, result, s.result.at[head] + (query + i) * s.result.row, s.width, found);
    if (log_sum == nullptr) continue;
    log_sum[s.numbers.at[head] + (query + i) * s.numbers.row] =
        is_zero ? std::numeric_limits<float>::infinity() : scratch.most[i] + std::log(sum);
  }
}

}  // namespace

void Attend(const AttentionShape& s, const void* q, const void* k, const void* v, void* result,
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
