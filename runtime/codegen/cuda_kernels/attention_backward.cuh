// SPDX-License-Identifier: Apache-2.0
// The gradients of attention in q, k and v (Dao et al. 2022, FlashAttention, Algorithm 4): the
// weights of the values come from the scores, which are computed again, and each row's
// log-sum-exp. A block has all of the sums for its rows: one kernel walks over the queries of each
// tile of keys, the other one over the keys of each tile of queries, so that all bits are the same
// every time.
#ifndef MEMC_CUDA_KERNELS_ATTENTION_BACKWARD_CUH_
#define MEMC_CUDA_KERNELS_ATTENTION_BACKWARD_CUH_

#include "attention_rows.cuh"

namespace {
namespace training {

// Whether keys beyond the diagonal may be left out: not where rows without keys may be, whose nan
// goes to all of them.
__device__ __forceinline__ bool LeavesOut(const TrainingAttention& a) {
  return a.masked == 0 && a.diagonal >= 0;
}

// Of a warp's keys from `first` on and kQueries queries from `query` on, replaces products of keys
// and queries by weights, and those of values and g by the gradients in scores. `numbers`: log_sum
// and share of the queries.
template <typename T, int kTiles, int kQueries>
__device__ __forceinline__ void WeighKeys(const TrainingAttention& a, long long mask_at, int first,
                                          int query, const float* numbers,
                                          float (&scores)[kTiles][kQueries / 8][4],
                                          float (&products)[kTiles][kQueries / 8][4]) {
  const int lane = Thread() % 32;
  const float unit = UnitOf<T>(a);
  const float factor = a.scale / unit;
  const bool all = a.masked == 0 && query + kQueries <= a.queries &&
                   first + 16 * kTiles <= a.keys && first + 16 * kTiles - 1 <= query + a.diagonal;
#pragma unroll
  for (int j = 0; j < kQueries / 8; ++j) {
    const int column = j * 8 + lane % 4 * 2;
    const float2 log_sum = *reinterpret_cast<const float2*>(numbers + column);
    const float2 share = *reinterpret_cast<const float2*>(numbers + kQueries + column);
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const float product = scores[i][j][n];
        const float score =
            all ? product * factor
                : ScoreOf<T>(a, factor, mask_at, product, query + column + n % 2,
                             first + i * 16 + n / 2 * 8 + lane / 4);
        const float weight = PowerOf<T>(a, score, unit, n % 2 == 0 ? log_sum.x : log_sum.y);
        scores[i][j][n] = weight;
        products[i][j][n] = weight * (products[i][j][n] - (n % 2 == 0 ? share.x : share.y));
      }
    }
  }
}

// The same of a warp's queries, of which it has the numbers, and keys: the gradients in scores.
template <typename T, int kTiles, int kKeys>
__device__ __forceinline__ void WeighQueries(const TrainingAttention& a, long long mask_at,
                                             int first, int key, const float (&log_sum)[kTiles][2],
                                             const float (&share)[kTiles][2],
                                             float (&scores)[kTiles][kKeys / 8][4],
                                             float (&products)[kTiles][kKeys / 8][4]) {
  const int lane = Thread() % 32;
  const float unit = UnitOf<T>(a);
  const float factor = a.scale / unit;
  const bool all = a.masked == 0 && first + 16 * kTiles <= a.queries && key + kKeys <= a.keys &&
                   key + kKeys - 1 <= first + a.diagonal;
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const float product = scores[i][j][n];
        const float score =
            all ? product * factor
                : ScoreOf<T>(a, factor, mask_at, product, first + i * 16 + n / 2 * 8 + lane / 4,
                             key + j * 8 + lane % 4 * 2 + n % 2);
        const float weight = PowerOf<T>(a, score, unit, log_sum[i][n / 2]);
        scores[i][j][n] = weight * (products[i][j][n] - share[i][n / 2]);
      }
    }
  }
}

template <int kTiles>
__device__ __forceinline__ void Fill(float (&factors)[kTiles][2], float value) {
#pragma unroll
  for (int i = 0; i < kTiles; ++i) factors[i][0] = factors[i][1] = value;
}

// The gradients in a tile of keys, 16 kTiles for each warp, and in their values, or in one of both,
// by tiles of kQueries of all heads that read the keys.
template <typename T, int kWidth, int kTiles, int kQueries, bool kOfKeys, bool kOfValues>
__device__ __forceinline__ void BackwardKeys(const TrainingAttention& a, float* shared) {
  constexpr int kRow = kRowWords<T, kWidth>;
  constexpr int kStage = 2 * kQueries * kRow + 2 * kQueries;
  const int warp = Thread() / 32;
  const int rows_of_block = Threads() / 32 * 16 * kTiles;
  const int inner = a.inner / a.inner_share;
  const int heads = a.outer / a.outer_share * inner;
  const int first = Block() / heads * rows_of_block;
  const int outer_first = Block() % heads / inner * a.outer_share;
  const int inner_first = Block() % heads % inner * a.inner_share;
  const Head of_keys = HeadOf(a, outer_first, inner_first);
  const bool wide = a.wide != 0;
  const int own = first + warp * 16 * kTiles;
  // Queries before this see no key of the block.
  const int unseen = LeavesOut(a) && first > a.diagonal ? first - a.diagonal : 0;
  const int begin = unseen / kQueries;
  const int steps = (a.queries + kQueries - 1) / kQueries - begin;
  const int all_steps = steps > 0 ? a.outer_share * a.inner_share * steps : 0;
  float* values = shared + rows_of_block * kRow;
  float* queries = values + rows_of_block * kRow;
  const auto head_of = [&](int step) {
    const int number = step / steps;
    return HeadOf(a, outer_first + number / a.inner_share, inner_first + number % a.inner_share);
  };
  const auto copy = [&](int stage, int step) {
    const Head head = head_of(step);
    const int from = (begin + step % steps) * kQueries;
    float* to = queries + stage * kStage;
    CopyRows<T, kWidth>(to, Elements<T>(a.q, head.At(a.q_at)), a.q_at.row, wide, kQueries, from,
                        a.queries, a.depth);
    CopyRows<T, kWidth>(to + kQueries * kRow, Elements<T>(a.g, head.At(a.result_at)),
                        a.result_at.row, wide, kQueries, from, a.queries, a.width);
    for (int i = Thread(); i < 2 * kQueries; i += Threads()) {
      const float* numbers = i < kQueries ? a.log_sum : a.share;
      const int row = from + i % kQueries;
      const bool is_there = row < a.queries;
      CopyAsync4(to + 2 * kQueries * kRow + i,
                 is_there ? numbers + head.At(a.rows_at) + row * a.rows_at.row : numbers,
                 is_there ? 4 : 0);
    }
  };
  CopyRows<T, kWidth>(shared, Elements<T>(a.k, of_keys.AtKeys(a.k_at)), a.k_at.row, wide,
                      rows_of_block, first, a.keys, a.depth);
  CopyRows<T, kWidth>(values, Elements<T>(a.v, of_keys.AtKeys(a.v_at)), a.v_at.row, wide,
                      rows_of_block, first, a.keys, a.width);
  if (all_steps > 0) copy(0, 0);
  CommitCopies();
  float of_k[kTiles][kWidth / 8][4] = {};
  float of_v[kTiles][kWidth / 8][4] = {};
  int stage = 0;
  for (int step = 0; step < all_steps; ++step) {
    WaitForCopies<0>();
    SyncBlock();  // The tile is there, and the one before it read.
    const bool more = step + 1 < all_steps;
    if (more && a.stages == 2) {
      copy(1 - stage, step + 1);
      CommitCopies();
    }
    const float* at = queries + stage * kStage;
    const int from = (begin + step % steps) * kQueries;
    if (!LeavesOut(a) || own <= from + kQueries - 1 + a.diagonal) {
      float scores[kTiles][kQueries / 8][4] = {};
      float products[kTiles][kQueries / 8][4] = {};
      AddProducts<T, kWidth, kTiles, kQueries>(shared + warp * 16 * kTiles * kRow, at, scores);
      if constexpr (kOfKeys)
        AddProducts<T, kWidth, kTiles, kQueries>(values + warp * 16 * kTiles * kRow,
                                                 at + kQueries * kRow, products);
      WeighKeys<T, kTiles, kQueries>(a, head_of(step).At(a.mask_at), own, from,
                                     at + 2 * kQueries * kRow, scores, products);
      if constexpr (kOfValues)
        AddWeighted<T, kWidth, kTiles, kQueries>(scores, at + kQueries * kRow, of_v);
      if constexpr (kOfKeys) AddWeighted<T, kWidth, kTiles, kQueries>(products, at, of_k);
    }
    if (a.stages == 2) {
      stage = 1 - stage;
    } else if (more) {
      SyncBlock();
      copy(0, step + 1);
      CommitCopies();
    }
  }
  WaitForCopies<0>();
  float factors[kTiles][2];
  if constexpr (kOfValues) {
    Fill(factors, 1);
    StoreRows<T, kWidth, kTiles>(of_v, factors, a.of_v, of_keys.AtKeys(a.v_at), a.v_at.row, wide,
                                 own, a.keys, a.width);
  }
  if constexpr (kOfKeys) {
    Fill(factors, a.scale);
    StoreRows<T, kWidth, kTiles>(of_k, factors, a.of_k, of_keys.AtKeys(a.k_at), a.k_at.row, wide,
                                 own, a.keys, a.depth);
  }
}

// The gradient in a tile of queries, 16 kTiles for each warp, by tiles of kKeys. It may go where
// the queries or g are: those of the tile are read before.
template <typename T, int kWidth, int kTiles, int kKeys>
__device__ __forceinline__ void BackwardQueries(const TrainingAttention& a, float* shared) {
  constexpr int kRow = kRowWords<T, kWidth>;
  const int lane = Thread() % 32;
  const int warp = Thread() / 32;
  const int rows_of_block = Threads() / 32 * 16 * kTiles;
  const int heads = a.outer * a.inner;
  const int first = (a.tiles - 1 - Block() / heads) * rows_of_block;
  const Head head = HeadOf(a, Block() % heads / a.inner, Block() % heads % a.inner);
  const char* k = Elements<T>(a.k, head.AtKeys(a.k_at));
  const char* v = Elements<T>(a.v, head.AtKeys(a.v_at));
  const bool wide = a.wide != 0;
  const int last = (first + rows_of_block < a.queries ? first + rows_of_block : a.queries) - 1;
  const int end = LeavesOut(a) && last + a.diagonal + 1 < a.keys ? last + a.diagonal + 1 : a.keys;
  const int own = first + warp * 16 * kTiles;
  float* of_result = shared + rows_of_block * kRow;
  float* keys = of_result + rows_of_block * kRow;
  const auto copy = [&](int stage, int from) {
    float* to = keys + stage * 2 * kKeys * kRow;
    CopyRows<T, kWidth>(to, k, a.k_at.row, wide, kKeys, from, a.keys, a.depth);
    CopyRows<T, kWidth>(to + kKeys * kRow, v, a.v_at.row, wide, kKeys, from, a.keys, a.width);
  };
  CopyRows<T, kWidth>(shared, Elements<T>(a.q, head.At(a.q_at)), a.q_at.row, wide, rows_of_block,
                      first, a.queries, a.depth);
  CopyRows<T, kWidth>(of_result, Elements<T>(a.g, head.At(a.result_at)), a.result_at.row, wide,
                      rows_of_block, first, a.queries, a.width);
  copy(0, 0);
  CommitCopies();
  float log_sum[kTiles][2];
  float share[kTiles][2];
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = own + i * 16 + h * 8 + lane / 4;
      const long long at = head.At(a.rows_at) + row * a.rows_at.row;
      log_sum[i][h] = row < a.queries ? a.log_sum[at] : 0;
      share[i][h] = row < a.queries ? a.share[at] : 0;
    }
  }
  float of_q[kTiles][kWidth / 8][4] = {};
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
    if (!LeavesOut(a) || from <= own + 16 * kTiles - 1 + a.diagonal) {
      float scores[kTiles][kKeys / 8][4] = {};
      float products[kTiles][kKeys / 8][4] = {};
      const int own_rows = warp * 16 * kTiles * kRow;
      AddProducts<T, kWidth, kTiles, kKeys>(shared + own_rows, at, scores);
      AddProducts<T, kWidth, kTiles, kKeys>(of_result + own_rows, at + kKeys * kRow, products);
      WeighQueries<T, kTiles, kKeys>(a, head.At(a.mask_at), own, from, log_sum, share, scores,
                                     products);
      AddWeighted<T, kWidth, kTiles, kKeys>(scores, at, of_q);
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
  float factors[kTiles][2];
  Fill(factors, a.scale);
  StoreRows<T, kWidth, kTiles>(of_q, factors, a.of_q, head.At(a.q_at), a.q_at.row, wide, own,
                               a.queries, a.depth);
}

}  // namespace training
}  // namespace

#endif  // MEMC_CUDA_KERNELS_ATTENTION_BACKWARD_CUH_
