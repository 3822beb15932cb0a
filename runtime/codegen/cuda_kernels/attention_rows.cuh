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
  int diagonal;   // Query i sees no key beyond i + diagonal.
  int masked;     // 0: there is no mask; 1: it says what is seen; 2: it is added; 3: as f32.
  int queries, keys;
  int depth, width;  // Columns of q and k, and of v and the result.
  int outer, inner;  // Heads of q.
  int outer_share, inner_share;  // Of those, how many read one of k.
  int tiles;   // Of a head's rows.
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

// Copies kRows or, if that is 0, `count` rows of a matrix from `first` on, and zeros from row `rows`
// and column `columns` on.
template <typename T, int kWidth>
__device__ __forceinline__ void CopyRows(float* shared, const char* global, long long stride,
                                         bool wide, int count, int first, int rows, int columns) {
  constexpr int kQuads = kWidth * T::kBytes / 16;
#pragma unroll 4
  for (int at = Thread(); at < count * kQuads; at += Threads()) {
    const int row = at / kQuads;
    const int quad = at % kQuads;
    const int column = quad * 16 / T::kBytes;
    float* to = shared + row * kRowWords<T, kWidth> + quad * 4;
    const int left = first + row < rows ? columns - column : 0;
    const char* from = global + ((first + row) * stride + column) * T::kBytes;
    if (wide) {
      CopyAsync16(to, reinterpret_cast<const float*>(left > 0 ? from : global), left > 0 ? 16 : 0);
    } else if (T::kBytes == 4) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        CopyAsync4(to + i, reinterpret_cast<const float*>(i < left ? from : global) + (i < left ? i : 0),
                   i < left ? 4 : 0);
      }
    } else {
      const auto half = [&](int i) {
        return i < left ? reinterpret_cast<const unsigned short*>(from)[i] : 0U;
      };
#pragma unroll
      for (int i = 0; i < 4; ++i) to[i] = FloatOf(half(2 * i) | half(2 * i + 1) << 16);
    }
  }
}

// What stands in the mask for a query and a key, as what is added to a score.
template <typename T>
__device__ __forceinline__ float MaskAt(const TrainingAttention& a, long long at) {
  if (a.masked == 1)
    return static_cast<const unsigned char*>(a.mask)[at] != 0 ? 0.0F : -INFINITY;
  if constexpr (T::kBytes == 4) {
    return static_cast<const float*>(a.mask)[at];
  } else {
    return a.masked == 3 ? static_cast<const float*>(a.mask)[at]
                         : T::Unpack(static_cast<const unsigned short*>(a.mask)[at]);
  }
}

// Scores may be left as products of their factors, which the exponentials scale, unless something
// is added to them: those of f32 never are, whose rounding this would move.
template <typename T>
__device__ __forceinline__ float UnitOf(const TrainingAttention& a) {
  return !T::kApart && a.masked < 2 && a.scale > 0 ? a.scale : 1;
}

// A score, in units, of which `product` is the product of its factors; -inf for what is hidden.
// `factor`: the scale, in units.
template <typename T>
__device__ __forceinline__ float ScoreOf(const TrainingAttention& a, float factor,
                                         long long mask_at, float product, int query, int key) {
  if (query >= a.queries || key >= a.keys || key > query + a.diagonal) return -INFINITY;
  const float score = product * factor;
  if (a.masked == 0) return score;
  const float mask = MaskAt<T>(a, mask_at + query * a.mask_at.row + key * a.mask_column);
  // A score that is nan or inf stays hidden.
  return a.masked == 1 && mask != 0 ? mask : score + mask;
}

// e to the power of what a score, in units, exceeds a base by. The difference comes first where
// numbers may be so large that products are inf.
template <typename T>
__device__ __forceinline__ float PowerOf(const TrainingAttention& a, float score, float unit,
                                         float base) {
  if (T::kApart || a.masked >= 2) return PowerOfTwo((score - base) * kLog2OfE);
  return PowerOfTwo(fmaf(score, unit * kLog2OfE, -(base * kLog2OfE)));
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
