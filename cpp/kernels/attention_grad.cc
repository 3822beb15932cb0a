// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/attention.h"
#include "kernels/attention_tiles.h"
#include "kernels/cpu_kernels.h"
#include "kernels/panel_product.h"
#include "kernels/parallel.h"
#include "kernels/patches.h"

namespace memc {

namespace {

// Some queries of one head, with what belongs to their rows, and a tile of scores. In tiles of
// scores a row is a key.
struct Queries {
  int64_t head, first, rows;
  bool all_keys;  // Whether each key is read, seen or not: some row is nan, and so what it adds to.
  float log_sum[kTile], share[kTile];
  alignas(64) float q[kTile * kTileColumns], q_across[kTile * kTileColumns];  // In column panels.
  alignas(64) float g[kTile * kTileColumns], g_across[kTile * kTileColumns];
  alignas(64) float keys[kTile * kTileColumns];
  alignas(64) float of_q[kTile * kTileColumns];
  alignas(64) float scores[kTile * kTile], products[kTile * kTile], across[kTile * kTile];
};

void ReadQueries(const AttentionShape& s, const AttentionGradOperands& o, Queries& t) {
  const float* q = o.q + s.q.at[t.head] + t.first * s.q.row;
  const float* g = o.g + s.result.at[t.head] + t.first * s.result.row;
  PackColumns(q, s.q.row, false, t.rows, s.depth, t.q);
  PackColumns(q, s.q.row, true, s.depth, t.rows, t.q_across);
  PackColumns(g, s.result.row, false, t.rows, s.width, t.g);
  PackColumns(g, s.result.row, true, s.width, t.rows, t.g_across);
  t.all_keys = false;
  for (int64_t i = 0; i < kTile; ++i) {
    const int64_t at = s.numbers.at[t.head] + (t.first + i) * s.numbers.row;
    t.log_sum[i] = i < t.rows ? o.log_sum[at] : 0.0F;
    t.share[i] = i < t.rows ? o.share[at] : 0.0F;
    t.all_keys = t.all_keys || std::isnan(t.log_sum[i]);
  }
  std::fill_n(t.of_q, t.rows * kTileColumns, 0.0F);
}

// Scales and masks a tile of scores, of `count` keys from `key` on; queries that do not exist see
// nothing.
void Mask(const AttentionShape& s, Queries& t, int64_t key, int64_t count) {
  constexpr float kHidden = -std::numeric_limits<float>::infinity();
  const AttentionMask& mask = s.mask;
  for (int64_t j = 0; j < count; ++j) {
    float* row = t.scores + j * kTile;
    for (int64_t i = 0; i < t.rows; ++i) row[i] *= s.scale;
    std::fill(row + t.rows, row + kTile, kHidden);
  }
  if (mask.IsGiven()) {
    const int64_t at = mask.at[t.head] + t.first * mask.row + key * mask.column;
    for (int64_t i = 0; i < t.rows; ++i) {
      for (int64_t j = 0; j < count; ++j) {
        float& score = t.scores[j * kTile + i];
        const int64_t own = at + i * mask.row + j * mask.column;
        if (mask.added != nullptr) {
          score += mask.added[own];
        } else if (mask.seen[own] == 0) {
          score = kHidden;
        }
      }
    }
  }
  for (int64_t j = 0; j < count; ++j) {
    const int64_t unseen = std::min(key + j - s.diagonal - t.first, t.rows);
    for (int64_t i = 0; i < unseen; ++i) t.scores[j * kTile + i] = kHidden;
  }
}

// What the queries of a tile add to the gradients in some keys and their values, and those to
// theirs.
void AddKeys(const AttentionShape& s, const AttentionGradOperands& o, Queries& t, int64_t key) {
  const int64_t head = s.key_of[t.head];
  const int64_t count = std::min(kTile, s.keys - key);
  const int64_t of_k = s.k.at[head] + key * s.k.row;
  const int64_t of_v = s.v.at[head] + key * s.v.row;
  MultiplyTile(count, t.rows, s.depth, o.k + of_k, s.k.row, t.q_across, false, t.scores, kTile);
  MultiplyTile(count, t.rows, s.width, o.v + of_v, s.v.row, t.g_across, false, t.products, kTile);
  Mask(s, t, key, count);
  for (int64_t j = 0; j < count; ++j) {
    float* products = t.products + j * kTile;
    std::fill(products + t.rows, products + kTile, 0.0F);
    WeightsAndGradients(s.scale, t.log_sum, t.share, t.scores + j * kTile, products);
    for (int64_t i = 0; i < t.rows; ++i) t.across[i * kTile + j] = products[i];
  }
  MultiplyTile(count, s.width, t.rows, t.scores, kTile, t.g, true, o.of_v + of_v, s.v.row);
  MultiplyTile(count, s.depth, t.rows, t.products, kTile, t.q, true, o.of_k + of_k, s.k.row);
  PackColumns(o.k + of_k, s.k.row, false, count, s.depth, t.keys);
  MultiplyTile(t.rows, s.depth, count, t.across, kTile, t.keys, true, t.of_q, kTileColumns);
}

void Clear(float* data, const HeadRows& rows, int64_t head, int64_t count, int64_t columns) {
  for (int64_t i = 0; i < count; ++i) {
    std::fill_n(data + rows.at[head] + i * rows.row, columns, 0.0F);
  }
}

// The gradients of one head of k and v, and of all heads of q that read it.
void AttendGradHead(const AttentionShape& s, const AttentionGradOperands& o, int64_t head) {
  Queries t;
  Clear(o.of_k, s.k, head, s.keys, s.depth);
  Clear(o.of_v, s.v, head, s.keys, s.width);
  for (t.head = 0; t.head < static_cast<int64_t>(s.key_of.size()); ++t.head) {
    if (s.key_of[t.head] != head) continue;
    for (t.first = 0; t.first < s.queries; t.first += kTile) {
      t.rows = std::min(kTile, s.queries - t.first);
      ReadQueries(s, o, t);
      const int64_t seen = t.all_keys ? s.keys : std::min(s.keys, t.first + t.rows + s.diagonal);
      for (int64_t key = 0; key < seen; key += kTile) AddKeys(s, o, t, key);
      for (int64_t i = 0; i < t.rows; ++i) {
        std::copy_n(t.of_q + i * kTileColumns, s.depth,
                    o.of_q + s.q.at[t.head] + (t.first + i) * s.q.row);
      }
    }
  }
}

}  // namespace

void AttendGrad(const AttentionShape& s, const AttentionGradOperands& o) {
  const auto heads = static_cast<int64_t>(s.k.at.size());
  const int64_t work =
      static_cast<int64_t>(s.key_of.size()) * s.queries * s.keys * (s.depth + s.width);
  ParallelFor(work < kSerialWork, [&](int64_t task, int64_t tasks) {
    for (int64_t head = task * heads / tasks; head < (task + 1) * heads / tasks; ++head) {
      AttendGradHead(s, o, head);
    }
  });
}

}  // namespace memc
