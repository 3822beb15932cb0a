// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

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
  alignas(64) float slopes[kTile * kTile], kept[kTile * kTile];
  // Rows that are no f32, and sums for them.
  alignas(64) float k_rows[kTile * kTileColumns], v_rows[kTile * kTileColumns];
  alignas(64) float of_k[kTile * kTileColumns], of_v[kTile * kTileColumns];

  int64_t KeysBegin(const AttentionShape& s) const {
    return all_keys ? 0 : FirstKey(s, first) / kTile * kTile;
  }
  int64_t KeysEnd(const AttentionShape& s) const {
    return all_keys ? s.keys : std::min(s.keys, first + rows + s.diagonal);
  }
};

void ReadQueries(const AttentionShape& s, const AttentionGradOperands& o, Queries& t) {
  const FloatRows q =
      ReadRows(s.kind, o.q, s.q.at[t.head] + t.first * s.q.row, s.q.row, t.rows, s.depth, t.k_rows);
  PackColumns(q.at, q.row, false, t.rows, s.depth, t.q);
  PackColumns(q.at, q.row, true, s.depth, t.rows, t.q_across);
  const FloatRows g = ReadRows(s.kind, o.g, s.result.at[t.head] + t.first * s.result.row,
                               s.result.row, t.rows, s.width, t.k_rows);
  PackColumns(g.at, g.row, false, t.rows, s.width, t.g);
  PackColumns(g.at, g.row, true, s.width, t.rows, t.g_across);
  t.all_keys = false;
  for (int64_t i = 0; i < kTile; ++i) {
    const int64_t at = s.numbers.at[t.head] + (t.first + i) * s.numbers.row;
    t.log_sum[i] = i < t.rows ? o.log_sum[at] : 0.0F;
    t.share[i] = i < t.rows ? o.share[at] : 0.0F;
    t.all_keys = t.all_keys || std::isnan(t.log_sum[i]);
  }
}

void Multiply(const float* factors, int64_t count, float* values) {
  for (int64_t i = 0; i < count; ++i) values[i] *= factors[i];
}

// `scores` becomes the weights of some keys, as far as dropout leaves them, and `products` the
// gradients in the scores before or, if `is_masked`, after they are scaled and capped.
FloatRows Weigh(const AttentionShape& s, const AttentionGradOperands& o, Queries& t, int64_t key,
                int64_t count, bool is_masked) {
  const int64_t head = s.key_of[t.head];
  const FloatRows k =
      ReadRows(s.kind, o.k, s.k.at[head] + key * s.k.row, s.k.row, count, s.depth, t.k_rows);
  const FloatRows v =
      ReadRows(s.kind, o.v, s.v.at[head] + key * s.v.row, s.v.row, count, s.width, t.v_rows);
  MultiplyTile(count, t.rows, s.depth, k.at, k.row, t.q_across, false, t.scores, kTile);
  MultiplyTile(count, t.rows, s.width, v.at, v.row, t.g_across, false, t.products, kTile);
  const ScoreTile tile{t.head, t.first, t.rows, key, count};
  MakeScores(s, tile, true, t.scores, t.slopes);
  if (s.dropout.IsGiven()) DrawKept(s, tile, true, t.kept);
  for (int64_t j = 0; j < count; ++j) {
    float* scores = t.scores + j * kTile;
    float* products = t.products + j * kTile;
    // Queries that do not exist see nothing.
    std::fill(scores + t.rows, scores + kTile, -std::numeric_limits<float>::infinity());
    std::fill(products + t.rows, products + kTile, 0.0F);
    if (s.dropout.IsGiven()) Multiply(t.kept + j * kTile, t.rows, products);
    WeightsAndGradients(is_masked ? 1.0F : s.scale, t.log_sum, t.share, scores, products);
    if (s.dropout.IsGiven()) Multiply(t.kept + j * kTile, t.rows, scores);
    if (s.cap > 0 && !is_masked) Multiply(t.slopes + j * kTile, t.rows, products);
  }
  return k;
}

// Sums for the gradients in some keys and their values.
struct KeySums {
  float* of_k;
  int64_t k_row;
  float* of_v;
  int64_t v_row;
};

// What the queries of a tile add to the gradients in some keys and their values, unless those are
// null, and, if `of_queries`, those to theirs.
void AddKeys(const AttentionShape& s, const AttentionGradOperands& o, Queries& t, int64_t key,
             const KeySums& sums, bool of_queries) {
  const int64_t count = std::min(kTile, s.keys - key);
  const FloatRows k = Weigh(s, o, t, key, count, false);
  if (sums.of_v != nullptr) {
    MultiplyTile(count, s.width, t.rows, t.scores, kTile, t.g, true, sums.of_v, sums.v_row);
    MultiplyTile(count, s.depth, t.rows, t.products, kTile, t.q, true, sums.of_k, sums.k_row);
  }
  if (!of_queries) return;
  for (int64_t j = 0; j < count; ++j) {
    for (int64_t i = 0; i < t.rows; ++i) t.across[i * kTile + j] = t.products[j * kTile + i];
  }
  PackColumns(k.at, k.row, false, count, s.depth, t.keys);
  MultiplyTile(t.rows, s.depth, count, t.across, kTile, t.keys, true, t.of_q, kTileColumns);
}

void Clear(float* data, const HeadRows& rows, int64_t head, int64_t count, int64_t columns) {
  for (int64_t i = 0; i < count; ++i) {
    std::fill_n(data + rows.at[head] + i * rows.row, columns, 0.0F);
  }
}

// Calls `visit` for each tile of the queries of all heads that read a head of k and v.
template <typename Visit>
void ForEachTile(const AttentionShape& s, const AttentionGradOperands& o, int64_t head, Queries& t,
                 Visit visit) {
  for (t.head = 0; t.head < static_cast<int64_t>(s.key_of.size()); ++t.head) {
    if (s.key_of[t.head] != head) continue;
    for (t.first = 0; t.first < s.queries; t.first += kTile) {
      t.rows = std::min(kTile, s.queries - t.first);
      ReadQueries(s, o, t);
      visit();
    }
  }
}

void WriteOfQueries(const AttentionShape& s, const AttentionGradOperands& o, const Queries& t) {
  for (int64_t i = 0; i < t.rows; ++i) {
    WriteRow(s.kind, o.of_q, s.q.at[t.head] + (t.first + i) * s.q.row, s.depth,
             t.of_q + i * kTileColumns);
  }
}

// The gradients of one head of k and v, and of all heads of q that read it; sums lie where the
// gradients do.
void AttendGradHead(const AttentionShape& s, const AttentionGradOperands& o, int64_t head,
                    Queries& t) {
  float* of_k = static_cast<float*>(o.of_k);
  float* of_v = static_cast<float*>(o.of_v);
  Clear(of_k, s.k, head, s.keys, s.depth);
  Clear(of_v, s.v, head, s.keys, s.width);
  ForEachTile(s, o, head, t, [&] {
    std::fill_n(t.of_q, t.rows * kTileColumns, 0.0F);
    const int64_t end = t.KeysEnd(s);
    for (int64_t key = t.KeysBegin(s); key < end; key += kTile) {
      const KeySums sums{of_k + s.k.at[head] + key * s.k.row, s.k.row,
                         of_v + s.v.at[head] + key * s.v.row, s.v.row};
      AddKeys(s, o, t, key, sums, true);
    }
    WriteOfQueries(s, o, t);
  });
}

// The same of halves, whose sums have room for one tile: first the keys, for the gradient in q may
// lie where q or g does, of which they need all; then the queries.
void AttendGradHalves(const AttentionShape& s, const AttentionGradOperands& o, int64_t head,
                      Queries& t) {
  for (int64_t key = 0; key < s.keys; key += kTile) {
    std::fill_n(t.of_k, kTile * kTileColumns, 0.0F);
    std::fill_n(t.of_v, kTile * kTileColumns, 0.0F);
    ForEachTile(s, o, head, t, [&] {
      if (key < t.KeysBegin(s) || key >= t.KeysEnd(s)) return;
      AddKeys(s, o, t, key, {t.of_k, kTileColumns, t.of_v, kTileColumns}, false);
    });
    for (int64_t j = 0; j < std::min(kTile, s.keys - key); ++j) {
      WriteRow(s.kind, o.of_k, s.k.at[head] + (key + j) * s.k.row, s.depth,
               t.of_k + j * kTileColumns);
      WriteRow(s.kind, o.of_v, s.v.at[head] + (key + j) * s.v.row, s.width,
               t.of_v + j * kTileColumns);
    }
  }
  ForEachTile(s, o, head, t, [&] {
    std::fill_n(t.of_q, t.rows * kTileColumns, 0.0F);
    const int64_t end = t.KeysEnd(s);
    for (int64_t key = t.KeysBegin(s); key < end; key += kTile) AddKeys(s, o, t, key, {}, true);
    WriteOfQueries(s, o, t);
  });
}

// A tile of the gradient in the mask of some heads: where the mask has one row or column for all,
// the sum over them.
void MaskTile(const AttentionShape& s, const AttentionGradOperands& o, int64_t at, int64_t query,
              int64_t key, Queries& t, void* of_mask) {
  const AttentionMask& m = s.mask;
  const int64_t rows = m.row == 0 ? 1 : std::min(kTile, s.queries - query);
  const int64_t columns = m.column == 0 ? 1 : std::min(kTile, s.keys - key);
  float* sums = t.of_k;  // [rows, kTile]
  std::fill_n(sums, kTile * kTile, 0.0F);
  const int64_t query_end = m.row == 0 ? s.queries : query + rows;
  const int64_t key_end = m.column == 0 ? s.keys : key + columns;
  for (t.head = 0; t.head < static_cast<int64_t>(s.key_of.size()); ++t.head) {
    if (m.at[t.head] != at) continue;
    for (t.first = query; t.first < query_end; t.first += kTile) {
      t.rows = std::min(kTile, s.queries - t.first);
      ReadQueries(s, o, t);
      for (int64_t from = key; from < key_end; from += kTile) {
        if (from < t.KeysBegin(s) || from >= t.KeysEnd(s)) continue;
        const int64_t count = std::min(kTile, s.keys - from);
        Weigh(s, o, t, from, count, true);
        for (int64_t j = 0; j < count; ++j) {
          float* sum = sums + (m.column == 0 ? 0 : j);
          const float* products = t.products + j * kTile;
          for (int64_t i = 0; i < t.rows; ++i) sum[m.row == 0 ? 0 : i * kTile] += products[i];
        }
      }
    }
  }
  for (int64_t i = 0; i < rows; ++i) {
    WriteRow(m.kind, of_mask, at + (query + i) * m.row + key * m.column, columns, sums + i * kTile);
  }
}

}  // namespace

void AttendGrad(const AttentionShape& s, const AttentionGradOperands& o) {
  const auto heads = static_cast<int64_t>(s.k.at.size());
  const int64_t work =
      static_cast<int64_t>(s.key_of.size()) * s.queries * s.keys * (s.depth + s.width);
  ParallelFor(work < kSerialWork, [&](int64_t task, int64_t tasks) {
    const auto t = std::make_unique<Queries>();
    for (int64_t head = task * heads / tasks; head < (task + 1) * heads / tasks; ++head) {
      s.kind == FloatKind::kF32 ? AttendGradHead(s, o, head, *t) : AttendGradHalves(s, o, head, *t);
    }
  });
}

void AttendMaskGrad(const AttentionShape& s, const AttentionGradOperands& o, void* of_mask) {
  std::vector<int64_t> places = s.mask.at;
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  const int64_t down = s.mask.row == 0 ? 1 : CeilDiv(s.queries, kTile);
  const int64_t across = s.mask.column == 0 ? 1 : CeilDiv(s.keys, kTile);
  const int64_t items = static_cast<int64_t>(places.size()) * down * across;
  const int64_t work =
      static_cast<int64_t>(s.key_of.size()) * s.queries * s.keys * (s.depth + s.width);
  ParallelFor(work < kSerialWork, [&](int64_t task, int64_t tasks) {
    const auto t = std::make_unique<Queries>();
    for (int64_t item = task * items / tasks; item < (task + 1) * items / tasks; ++item) {
      const int64_t tile = item % (down * across);
      MaskTile(s, o, places[item / (down * across)], tile / across * kTile, tile % across * kTile,
               *t, of_mask);
    }
  });
}

}  // namespace memc
