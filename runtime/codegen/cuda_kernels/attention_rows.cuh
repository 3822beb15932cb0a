// SPDX-License-Identifier: Apache-2.0
// What the kernels of attention in training share: what they are given, tiles of rows in shared
// memory, masks, and results.
#ifndef MEMC_CUDA_KERNELS_ATTENTION_ROWS_CUH_
#define MEMC_CUDA_KERNELS_ATTENTION_ROWS_CUH_

#include "attention_factors.cuh"

namespace {

// Elements from one head, outer or inner, to the next, and from one row to the next.
struct HeadStrides {
  long long outer, inner, row;
};

struct TrainingAttention {
  const void* q;
  const void* k;
  const void* v;
  const void* mask;
  const void* g;       // The gradient in the result.
  const float* share;  // Of each row of q, the sum of g times the result.
  void* result;
  float* log_sum;  // Of each row of q: a result of the forward kernel, given to the others.
  void* of_q;      // The gradients.
  void* of_k;
  void* of_v;
  HeadStrides q_at, k_at, v_at, mask_at, result_at, rows_at;  // Of g as of the result.
  long long mask_column;  // Elements of the mask from one column to the next, 0 or 1.
  float scale;
  int diagonal;  // Query i sees no key beyond i + diagonal.
  int masked;    // 0: there is no mask; 1: it says what is seen; 2: it is added; 3: as f32.
  int queries, keys;
  int depth, width;              // Columns of q and k, and of v and the result.
  int outer, inner;              // Heads of q.
  int outer_share, inner_share;  // Of those, how many read one of k.
  int tiles;                     // Of a head's rows.
  int stages;  // Of tiles that are read one after the other: 2, or 1 where memory is short.
  int wide;    // Whether all rows begin at multiples of 16 bytes and are as long.
};

namespace training {

constexpr float kLog2OfE = 1.44269504088896340736F;

// A head of q, and that of k which it reads.
struct Head {
  int outer, inner;
  int of_k_outer, of_k_inner;

  __device__ __forceinline__ long long At(const HeadStrides& s) const {
    return outer * s.outer + inner * s.inner;
  }
  __device__ __forceinline__ long long AtKeys(const HeadStrides& s) const {
    return of_k_outer * s.outer + of_k_inner * s.inner;
  }
};

__device__ __forceinline__ Head HeadOf(const TrainingAttention& a, int outer, int inner) {
  return {outer, inner, outer / a.outer_share, inner / a.inner_share};
}

template <typename T>
__device__ __forceinline__ const char* Elements(const void* data, long long at) {
  return static_cast<const char*>(data) + at * T::kBytes;
}

// Copies 16 bytes of a row that may begin anywhere, of which `left` elements are there.
template <typename T>
__device__ __forceinline__ void CopyElements(float* to, const char* from, int left) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (T::kBytes == 4) {
      to[i] = i < left ? reinterpret_cast<const float*>(from)[i] : 0;
    } else {
      const auto half = [&](int n) {
        return n < left ? reinterpret_cast<const unsigned short*>(from)[n] : 0U;
      };
      to[i] = FloatOf(half(2 * i) | half(2 * i + 1) << 16);
    }
  }
}

// Copies `count` rows of a matrix from `first` on, and zeros from row `rows` and column `columns`
// on. `wide`: all begin at multiples of 16 bytes, and have so many.
template <typename T, int kWidth>
__device__ __forceinline__ void CopyRows(float* shared, const char* global, long long stride,
                                         bool wide, int count, int first, int rows, int columns) {
  constexpr int kQuads = kWidth * T::kBytes / 16;
  constexpr int kElements = 16 / T::kBytes;
  global += first * stride * T::kBytes;
  const int there = rows - first;
  if (wide) {
    // A thread copies the same columns of several rows. What is not there is not read.
    constexpr int kAcross = kQuads < 32 ? kQuads : 32;
    const int step = Threads() / kAcross;
    int row = Thread() / kAcross;
    const int quad = Thread() % kAcross;
    if (row >= step) return;
    float* to = shared + row * kRowWords<T, kWidth> + quad * 4;
    const char* from = global + row * stride * T::kBytes + quad * 16;
    const long long far = step * stride * T::kBytes;
#pragma unroll 4
    for (; row < count; row += step) {
#pragma unroll
      for (int across = 0; across < kQuads; across += kAcross) {
        const bool is_there = row < there && (quad + across) * kElements < columns;
        CopyAsync16(to + across * 4, reinterpret_cast<const float*>(from + across * 16),
                    is_there ? 16 : 0);
      }
      to += step * kRowWords<T, kWidth>;
      from += far;
    }
    return;
  }
#pragma unroll 1
  for (int at = Thread(); at < count * kQuads; at += Threads()) {
    const int row = at / kQuads;
    const int quad = at % kQuads;
    const int left = row < there ? columns - quad * kElements : 0;
    CopyElements<T>(shared + row * kRowWords<T, kWidth> + quad * 4,
                    global + row * stride * T::kBytes + quad * 16, left);
  }
}

// A matrix of one head.
struct HeadRows {
  const char* data;
  long long stride;
};

// Copies `count` rows of two matrices from `first` on, the second one behind the first: columns of
// queries and keys, and columns of values and the result.
template <typename T, int kWidth>
__device__ __forceinline__ void CopyPair(const TrainingAttention& a, const HeadRows& deep,
                                         const HeadRows& wide, int count, int first, int rows,
                                         float* to) {
  CopyRows<T, kWidth>(to, deep.data, deep.stride, a.wide != 0, count, first, rows, a.depth);
  CopyRows<T, kWidth>(to + count * kRowWords<T, kWidth>, wide.data, wide.stride, a.wide != 0, count,
                      first, rows, a.width);
}

// A head's queries, gradients in the result, keys and values.
template <typename T>
__device__ __forceinline__ HeadRows QueriesOf(const TrainingAttention& a, const Head& head) {
  return {Elements<T>(a.q, head.At(a.q_at)), a.q_at.row};
}
template <typename T>
__device__ __forceinline__ HeadRows GradientsOf(const TrainingAttention& a, const Head& head) {
  return {Elements<T>(a.g, head.At(a.result_at)), a.result_at.row};
}
template <typename T>
__device__ __forceinline__ HeadRows KeysOf(const TrainingAttention& a, const Head& head) {
  return {Elements<T>(a.k, head.AtKeys(a.k_at)), a.k_at.row};
}
template <typename T>
__device__ __forceinline__ HeadRows ValuesOf(const TrainingAttention& a, const Head& head) {
  return {Elements<T>(a.v, head.AtKeys(a.v_at)), a.v_at.row};
}

// What stands in the mask for a query and a key, as what is added to a score.
template <typename T>
__device__ __forceinline__ float MaskAt(const TrainingAttention& a, long long at) {
  if (a.masked == 1) return static_cast<const unsigned char*>(a.mask)[at] != 0 ? 0.0F : -INFINITY;
  if constexpr (T::kBytes == 4) {
    return static_cast<const float*>(a.mask)[at];
  } else {
    return a.masked == 3 ? static_cast<const float*>(a.mask)[at]
                         : T::Unpack(static_cast<const unsigned short*>(a.mask)[at]);
  }
}

// Whether the difference of a score and what is subtracted from it comes before any factor: where
// numbers may be so large that products are inf, and for f32, whose rounding this would move.
template <typename T>
constexpr bool kDiffersFirst = T::kApart || T::kMasked;

// Otherwise, scores are left in units: as products of their factors, which the exponentials scale.
template <typename T>
__device__ __forceinline__ float UnitOf(const TrainingAttention& a) {
  return !kDiffersFirst<T> && a.scale > 0 ? a.scale : 1;
}

// e to the power of what a score, in units, exceeds a base by. `factor`: the unit, and
// `base_factor`: the base, times the logarithm of e.
template <typename T>
__device__ __forceinline__ float PowerOf(float score, float factor, float base, float base_factor) {
  return kDiffersFirst<T> ? PowerOfTwo((score - base) * kLog2OfE)
                          : PowerOfTwo(fmaf(score, factor, -base_factor));
}

// Adds the mask to a score that may be seen.
template <typename T>
__device__ __forceinline__ float MaskedScore(const TrainingAttention& a, long long mask_at,
                                             float score, int query, int key) {
  if (query >= a.queries || key >= a.keys) return score;
  const float mask = MaskAt<T>(a, mask_at + query * a.mask_at.row + key * a.mask_column);
  // A score that is nan or inf stays hidden.
  return a.masked == 1 && mask != 0 ? mask : score + mask;
}

// Scales, to units, and masks products of a warp's rows from `first` on with `kColumns` others from
// `other` on: -inf for what is hidden. `kKeys`: the rows are keys, and the others queries; else the
// other way round.
template <typename T, bool kKeys, int kTiles, int kColumns>
__device__ __forceinline__ void MakeScores(const TrainingAttention& a, float unit,
                                           long long mask_at, int first, int other,
                                           float (&scores)[kTiles][kColumns / 8][4]) {
  const auto each = [&](const auto& change) {
    const int row = first + Thread() % 32 / 4;
    const int column = other + Thread() % 4 * 2;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int j = 0; j < kColumns / 8; ++j) {
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          const int own = row + i * 16 + n / 2 * 8;
          const int across = column + j * 8 + n % 2;
          scores[i][j][n] = change(scores[i][j][n], kKeys ? across : own, kKeys ? own : across);
        }
      }
    }
  };
  const float factor = a.scale / unit;
  if (factor != 1) each([&](float score, int, int) { return score * factor; });
  if constexpr (T::kMasked) {
    each([&](float score, int query, int key) {
      return MaskedScore<T>(a, mask_at, score, query, key);
    });
  }
  const int key = kKeys ? first : other;
  const int query = kKeys ? other : first;
  constexpr int kOwn = 16 * kTiles;
  const bool all = query + (kKeys ? kColumns : kOwn) <= a.queries &&
                   key + (kKeys ? kOwn : kColumns) <= a.keys &&
                   key + (kKeys ? kOwn : kColumns) - 1 <= query + a.diagonal;
  if (all) return;
  each([&](float score, int query_of, int key_of) {
    const int end = query_of + a.diagonal < a.keys ? query_of + a.diagonal + 1 : a.keys;
    return key_of < end && query_of < a.queries ? score : -INFINITY;
  });
}

// Stores the rows of a warp's sums, times a factor for each row, from `first` on.
template <typename T, int kWidth, int kTiles>
__device__ __forceinline__ void StoreRows(const float (&sums)[kTiles][kWidth / 8][4],
                                          const float (&factors)[kTiles][2], void* data,
                                          long long at, long long stride, bool wide, int first,
                                          int rows, int columns) {
  const int lane = Thread() % 32;
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = first + i * 16 + h * 8 + lane / 4;
      if (row >= rows) continue;
      char* to = static_cast<char*>(data) + (at + row * stride) * T::kBytes;
#pragma unroll
      for (int j = 0; j < kWidth / 8; ++j) {
        const int column = j * 8 + lane % 4 * 2;
        const float low = sums[i][j][2 * h] * factors[i][h];
        const float high = sums[i][j][2 * h + 1] * factors[i][h];
        if constexpr (T::kBytes == 4) {
          float* own = reinterpret_cast<float*>(to) + column;
          if (wide && column < columns) {
            *reinterpret_cast<float2*>(own) = {low, high};
          } else {
            if (column < columns) own[0] = low;
            if (column + 1 < columns) own[1] = high;
          }
        } else {
          const float both = T::Pack(low, high);
          unsigned short* own = reinterpret_cast<unsigned short*>(to) + column;
          if (wide && column < columns) {
            *reinterpret_cast<float*>(own) = both;
          } else {
            if (column < columns) own[0] = static_cast<unsigned short>(BitsOf(both) & 0xffffU);
            if (column + 1 < columns) own[1] = static_cast<unsigned short>(BitsOf(both) >> 16);
          }
        }
      }
    }
  }
}

}  // namespace training
}  // namespace

#endif  // MEMC_CUDA_KERNELS_ATTENTION_ROWS_CUH_
