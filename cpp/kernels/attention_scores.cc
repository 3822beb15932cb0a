// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/attention_tiles.h"
#include "kernels/philox.h"

namespace memc {

namespace {

constexpr float kHidden = -std::numeric_limits<float>::infinity();

float ElementOf(const float* data, FloatKind /*kind*/, int64_t at) { return data[at]; }
float ElementOf(const uint16_t* data, FloatKind kind, int64_t at) {
  return kind == FloatKind::kF16 ? FromF16(data[at]) : FromBf16(data[at]);
}

// Rows of a tile are queries, or keys.
template <bool kAcross>
int64_t Place(int64_t query, int64_t key) {
  return kAcross ? key * kTile + query : query * kTile + key;
}

// Calls `visit(query, key)` for all of a tile, in the order in which they lie.
template <bool kAcross, typename Visit>
void ForEach(const ScoreTile& t, Visit visit) {
  const int64_t outer = kAcross ? t.count : t.rows, inner = kAcross ? t.rows : t.count;
  for (int64_t a = 0; a < outer; ++a) {
    for (int64_t b = 0; b < inner; ++b) visit(kAcross ? b : a, kAcross ? a : b);
  }
}

template <bool kAcross>
void Cap(const AttentionShape& s, const ScoreTile& t, float* scores, float* slopes) {
  ForEach<kAcross>(t, [&](int64_t i, int64_t j) {
    float& score = scores[Place<kAcross>(i, j)];
    const float share = std::tanh(score / s.cap);
    score = share * s.cap;
    if (slopes != nullptr) slopes[Place<kAcross>(i, j)] = 1 - share * share;
  });
}

template <bool kAcross, typename T>
void AddMask(const AttentionMask& mask, const ScoreTile& t, int64_t at, float* scores) {
  const T* added = static_cast<const T*>(mask.added);
  ForEach<kAcross>(t, [&](int64_t i, int64_t j) {
    scores[Place<kAcross>(i, j)] +=
        ElementOf(added, mask.kind, at + i * mask.row + j * mask.column);
  });
}

template <bool kAcross>
void Hide(const AttentionShape& s, const ScoreTile& t, float* scores) {
  const AttentionMask& mask = s.mask;
  const int64_t at =
      mask.IsGiven() ? mask.at[t.head] + t.query * mask.row + t.key * mask.column : 0;
  if (mask.added != nullptr && mask.kind == FloatKind::kF32) {
    AddMask<kAcross, float>(mask, t, at, scores);
  } else if (mask.added != nullptr) {
    AddMask<kAcross, uint16_t>(mask, t, at, scores);
  } else if (mask.seen != nullptr) {
    ForEach<kAcross>(t, [&](int64_t i, int64_t j) {
      if (mask.seen[at + i * mask.row + j * mask.column] == 0)
        scores[Place<kAcross>(i, j)] = kHidden;
    });
  }
  const int64_t last_key = t.key + t.count - 1, last_query = t.query + t.rows - 1;
  if (last_key <= t.query + s.diagonal && FirstKey(s, last_query) <= t.key) return;
  ForEach<kAcross>(t, [&](int64_t i, int64_t j) {
    const int64_t key = t.key + j, query = t.query + i;
    if (key > query + s.diagonal || key < FirstKey(s, query))
      scores[Place<kAcross>(i, j)] = kHidden;
  });
}

template <bool kAcross>
void Make(const AttentionShape& s, const ScoreTile& t, float* scores, float* slopes) {
  ForEach<kAcross>(t, [&](int64_t i, int64_t j) { scores[Place<kAcross>(i, j)] *= s.scale; });
  if (s.cap > 0) Cap<kAcross>(s, t, scores, slopes);
  Hide<kAcross>(s, t, scores);
}

template <bool kAcross>
void Draw(const AttentionShape& s, const ScoreTile& t, float* kept) {
  const AttentionDropout& d = s.dropout;
  const auto first = static_cast<uint64_t>((t.head * s.queries + t.query) * s.keys + t.key);
  const auto keys = static_cast<uint64_t>(s.keys);
  ForEach<kAcross>(t, [&](int64_t i, int64_t j) {
    const uint64_t index = first + static_cast<uint64_t>(i) * keys + static_cast<uint64_t>(j);
    const bool is_kept = DrawnWord(index, d.stream, d.seed) >= d.threshold;
    kept[Place<kAcross>(i, j)] = is_kept ? d.kept : 0.0F;
  });
}

template <typename Convert>
void ConvertRows(const void* data, int64_t at, int64_t row, int64_t rows, int64_t columns,
                 float* scratch, Convert convert) {
  const uint16_t* from = static_cast<const uint16_t*>(data) + at;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t c = 0; c < columns; ++c) {
      scratch[i * kTileColumns + c] = convert(from[i * row + c]);
    }
  }
}

}  // namespace

FloatRows ReadRows(FloatKind kind, const void* data, int64_t at, int64_t row, int64_t rows,
                   int64_t columns, float* scratch) {
  if (kind == FloatKind::kF32) return {static_cast<const float*>(data) + at, row};
  if (kind == FloatKind::kF16) {
    ConvertRows(data, at, row, rows, columns, scratch, [](uint16_t x) { return FromF16(x); });
  } else {
    ConvertRows(data, at, row, rows, columns, scratch, [](uint16_t x) { return FromBf16(x); });
  }
  return {scratch, kTileColumns};
}

void WriteRow(FloatKind kind, void* data, int64_t at, int64_t columns, const float* from) {
  if (kind == FloatKind::kF32) {
    std::copy_n(from, columns, static_cast<float*>(data) + at);
    return;
  }
  uint16_t* to = static_cast<uint16_t*>(data) + at;
  if (kind == FloatKind::kF16) {
    for (int64_t c = 0; c < columns; ++c) to[c] = ToF16(from[c]);
  } else {
    for (int64_t c = 0; c < columns; ++c) to[c] = ToBf16(from[c]);
  }
}

void MakeScores(const AttentionShape& s, const ScoreTile& tile, bool is_across, float* scores,
                float* slopes) {
  is_across ? Make<true>(s, tile, scores, slopes) : Make<false>(s, tile, scores, slopes);
}

void DrawKept(const AttentionShape& s, const ScoreTile& tile, bool is_across, float* kept) {
  is_across ? Draw<true>(s, tile, kept) : Draw<false>(s, tile, kept);
}

}  // namespace memc
