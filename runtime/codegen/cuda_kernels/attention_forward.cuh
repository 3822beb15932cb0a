// SPDX-License-Identifier: Apache-2.0
// softmax(scale q k' + mask) v, and the logarithm of each row's sum of exponentials: a block takes
// some queries of a head and walks over the keys with the running maximum and sum of each row
// (Milakov and Gimelshein 2018, Online normalizer calculation for softmax; Dao et al. 2022,
// FlashAttention, Algorithm 1).
#ifndef MEMC_CUDA_KERNELS_ATTENTION_FORWARD_CUH_
#define MEMC_CUDA_KERNELS_ATTENTION_FORWARD_CUH_

#include "attention_rows.cuh"

namespace {
namespace training {

// What is subtracted before exponentials: the maximum, but 0 where all is -inf so far.
__device__ __forceinline__ float BaseOf(float maximum) {
  return maximum == -INFINITY ? 0 : maximum;
}

// Of a warp's rows, the sums so far: a thread has its own part of each sum.
template <int kTiles, int kWidth>
struct Running {
  float most[kTiles][2];
  float sum[kTiles][2] = {};
  float result[kTiles][kWidth / 8][4] = {};

  __device__ __forceinline__ Running() {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) most[i][0] = most[i][1] = -INFINITY;
  }
};

// Replaces the scores of one row, which is h of the two in a tile of sixteen, by their
// exponentials, and brings what a thread has of the row's sum up to date.
template <typename T, int kKeys>
__device__ __forceinline__ void ExponentiateRow(float (&scores)[kKeys / 8][4], int h, float factor,
                                                float base, float less, float& sum) {
  const float base_factor = base * kLog2OfE;
  float added = 0;
#pragma unroll
  for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
    for (int n = 2 * h; n < 2 * h + 2; ++n) {
      scores[j][n] = PowerOf<T>(scores[j][n], factor, base, base_factor);
      added += scores[j][n];
    }
  }
  sum = fmaf(sum, less, added);
}

// Replaces scores by their exponentials, and brings the sums so far up to date.
template <typename T, int kTiles, int kWidth, int kKeys>
__device__ __forceinline__ void Exponentiate(float unit, float (&scores)[kTiles][kKeys / 8][4],
                                             Running<kTiles, kWidth>& rows) {
  const float factor = unit * kLog2OfE;
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float most = rows.most[i][h];
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j)
        most = fmaxf(most, fmaxf(scores[i][j][2 * h], scores[i][j][2 * h + 1]));
      most = fmaxf(most, Exchange(most, 1));
      most = fmaxf(most, Exchange(most, 2));
      const float base = BaseOf(most) * unit;
      const float less = PowerOf<T>(rows.most[i][h], factor, base, base * kLog2OfE);
      rows.most[i][h] = most;
      ExponentiateRow<T, kKeys>(scores[i], h, factor, base, less, rows.sum[i][h]);
#pragma unroll
      for (int j = 0; j < kWidth / 8; ++j) {
        rows.result[i][j][2 * h] *= less;
        rows.result[i][j][2 * h + 1] *= less;
      }
    }
  }
}

// Writes a warp's rows of the result, and their log-sum-exp.
template <typename T, int kWidth, int kTiles>
__device__ __forceinline__ void Finish(const TrainingAttention& a, const Head& head, int first,
                                       Running<kTiles, kWidth>& rows) {
  const int lane = Thread() % 32;
  float factors[kTiles][2];
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float sum = rows.sum[i][h];
      sum += Exchange(sum, 1);
      sum += Exchange(sum, 2);
      factors[i][h] = 1 / sum;
      const int row = first + i * 16 + h * 8 + lane / 4;
      // A row that sees no key has none.
      const float log_sum = sum > 0 ? rows.most[i][h] * UnitOf<T>(a) + logf(sum) : NAN;
      if (lane % 4 == 0 && row < a.queries)
        a.log_sum[head.At(a.rows_at) + row * a.rows_at.row] = log_sum;
    }
  }
  StoreRows<T, kWidth, kTiles>(rows.result, factors, a.result, head.At(a.result_at),
                               a.result_at.row, a.wide != 0, first, a.queries, a.width);
}

// One tile of queries of one head, of 16 kTiles for each warp, by tiles of kKeys.
template <typename T, int kWidth, int kTiles, int kKeys>
__device__ __forceinline__ void Forward(const TrainingAttention& a, float* shared) {
  constexpr int kRow = kRowWords<T, kWidth>;
  const int warp = Thread() / 32;
  const int rows_of_block = Threads() / 32 * 16 * kTiles;
  const int heads = a.outer * a.inner;
  // Tiles with more keys come first.
  const int first = (a.tiles - 1 - Block() / heads) * rows_of_block;
  const Head head = HeadOf(a, Block() % heads / a.inner, Block() % heads % a.inner);
  const HeadRows q = QueriesOf<T>(a, head);
  const HeadRows k = KeysOf<T>(a, head);
  const HeadRows v = ValuesOf<T>(a, head);
  const int last = (first + rows_of_block < a.queries ? first + rows_of_block : a.queries) - 1;
  const int end = last + a.diagonal + 1 < a.keys ? last + a.diagonal + 1 : a.keys;
  const int own = first + warp * 16 * kTiles;
  float* keys = shared + rows_of_block * kRow;
  const auto copy = [&](int stage, int from) {
    CopyPair<T, kWidth>(a, k, v, kKeys, from, a.keys, keys + stage * 2 * kKeys * kRow);
  };
  CopyRows<T, kWidth>(shared, q.data, q.stride, a.wide != 0, rows_of_block, first, a.queries,
                      a.depth);
  if (end > 0) copy(0, 0);
  CommitCopies();
  const float unit = UnitOf<T>(a);
  Running<kTiles, kWidth> rows;
  int stage = 0;
  for (int from = 0; from < end; from += kKeys) {
    WaitForCopies<0>();
    SyncBlock();  // The tile is there, and the one before it read.
    const bool more = from + kKeys < end;
    if (more && a.stages == 2) {
      copy(1 - stage, from + kKeys);
      CommitCopies();
    }
    const float* at = keys + stage * 2 * kKeys * kRow;
    if (from <= own + 16 * kTiles - 1 + a.diagonal) {
      float scores[kTiles][kKeys / 8][4] = {};
      AddProducts<T, kWidth, kTiles, kKeys>(shared + warp * 16 * kTiles * kRow, at, scores);
      MakeScores<T, false, kTiles, kKeys>(a, unit, head.At(a.mask_at), own, from, scores);
      Exponentiate<T, kTiles, kWidth, kKeys>(unit, scores, rows);
      AddWeighted<T, kWidth, kTiles, kKeys>(scores, at + kKeys * kRow, rows.result);
    }
    if (a.stages == 2) {
      stage = 1 - stage;
    } else if (more) {
      SyncBlock();
      copy(0, from + kKeys);
      CommitCopies();
    }
  }
  WaitForCopies<0>();
  Finish<T, kWidth, kTiles>(a, head, own, rows);
}

}  // namespace training
}  // namespace

#endif  // MEMC_CUDA_KERNELS_ATTENTION_FORWARD_CUH_
