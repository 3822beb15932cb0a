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
template <typename T>
__device__ __forceinline__ bool LeavesOut(const TrainingAttention& a) {
  return !T::kMasked && a.diagonal >= 0;
}

// Of a warp's keys and kQueries queries, replaces scores by weights, and products of values and g
// by the gradients in scores. `numbers`: log_sum and, `far` behind it, share of the queries.
template <typename T, int kTiles, int kQueries>
__device__ __forceinline__ void WeighKeys(float unit, const float* numbers, int far,
                                          float (&scores)[kTiles][kQueries / 8][4],
                                          float (&products)[kTiles][kQueries / 8][4]) {
  const float factor = unit * kLog2OfE;
#pragma unroll
  for (int j = 0; j < kQueries / 8; ++j) {
    const int column = j * 8 + Thread() % 4 * 2;
    const float2 log_sums = *reinterpret_cast<const float2*>(numbers + column);
    const float2 shares = *reinterpret_cast<const float2*>(numbers + far + column);
    const float log_sum[2] = {log_sums.x, log_sums.y};
    const float share[2] = {shares.x, shares.y};
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const float base = log_sum[n % 2];
        scores[i][j][n] = PowerOf<T>(scores[i][j][n], factor, base, base * kLog2OfE);
        products[i][j][n] = scores[i][j][n] * (products[i][j][n] - share[n % 2]);
      }
    }
  }
}

// The same of a warp's queries, of which it has the numbers, and keys: the gradients in scores.
template <typename T, int kTiles, int kKeys>
__device__ __forceinline__ void WeighQueries(float unit, const float (&log_sum)[kTiles][2],
                                             const float (&share)[kTiles][2],
                                             float (&scores)[kTiles][kKeys / 8][4],
                                             float (&products)[kTiles][kKeys / 8][4]) {
  const float factor = unit * kLog2OfE;
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const float base = log_sum[i][n / 2];
        const float weight = PowerOf<T>(scores[i][j][n], factor, base, base * kLog2OfE);
        scores[i][j][n] = weight * (products[i][j][n] - share[i][n / 2]);
      }
    }
  }
}

// Stores a warp's sums, times a factor.
template <typename T, int kWidth, int kTiles>
__device__ __forceinline__ void StoreGradient(const TrainingAttention& a,
                                              const float (&sums)[kTiles][kWidth / 8][4],
                                              float factor, void* data, long long at,
                                              long long stride, int first, int rows, int columns) {
  float factors[kTiles][2];
#pragma unroll
  for (int i = 0; i < kTiles; ++i) factors[i][0] = factors[i][1] = factor;
  StoreRows<T, kWidth, kTiles>(sums, factors, data, at, stride, a.wide != 0, first, rows, columns);
}

// The tiles of queries of all heads that read one of k, one after the other: from tile `begin` of
// each head on.
struct QueryTiles {
  int outer, inner;  // The head.
  int tile;

  __device__ __forceinline__ void Advance(const TrainingAttention& a, int begin, int end,
                                          int inner_first) {
    if (++tile < end) return;
    tile = begin;
    if (++inner < inner_first + a.inner_share) return;
    inner = inner_first;
    ++outer;
  }
};

// Copies a tile of queries, of g, and log_sum and share of these, from query `from` on.
template <typename T, int kWidth, int kQueries>
__device__ __forceinline__ void CopyQueries(const TrainingAttention& a, const QueryTiles& at,
                                            float* to) {
  constexpr int kRow = kRowWords<T, kWidth>;
  const Head head{at.outer, at.inner, 0, 0};
  const int from = at.tile * kQueries;
  const bool wide = a.wide != 0;
  CopyRows<T, kWidth>(to, Elements<T>(a.q, head.At(a.q_at)), a.q_at.row, wide, kQueries, from,
                      a.queries, a.depth);
  CopyRows<T, kWidth>(to + kQueries * kRow, Elements<T>(a.g, head.At(a.result_at)), a.result_at.row,
                      wide, kQueries, from, a.queries, a.width);
  const long long of_rows = head.At(a.rows_at);
  for (int i = Thread(); i < 2 * kQueries; i += Threads()) {
    const float* numbers = (i < kQueries ? a.log_sum : a.share) + of_rows;
    const int row = from + i % kQueries;
    const bool is_there = row < a.queries;
    CopyAsync4(to + 2 * kQueries * kRow + i, is_there ? numbers + row * a.rows_at.row : numbers,
               is_there ? 4 : 0);
  }
}

// The gradients in a tile of keys, 16 kTiles for each warp, and in their values, or in one of both,
// by tiles of kQueries of all heads that read the keys, of which kPart are taken at once.
template <typename T, int kWidth, int kTiles, int kQueries, int kPart, bool kOfKeys, bool kOfValues>
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
  const int unseen = LeavesOut<T>(a) && first > a.diagonal ? first - a.diagonal : 0;
  const int begin = unseen / kQueries;
  const int end = (a.queries + kQueries - 1) / kQueries;
  const int steps = end > begin ? a.outer_share * a.inner_share * (end - begin) : 0;
  float* values = shared + rows_of_block * kRow;
  float* queries = values + rows_of_block * kRow;
  QueryTiles copied{outer_first, inner_first, begin};
  QueryTiles taken = copied;
  CopyRows<T, kWidth>(shared, Elements<T>(a.k, of_keys.AtKeys(a.k_at)), a.k_at.row, wide,
                      rows_of_block, first, a.keys, a.depth);
  CopyRows<T, kWidth>(values, Elements<T>(a.v, of_keys.AtKeys(a.v_at)), a.v_at.row, wide,
                      rows_of_block, first, a.keys, a.width);
  if (steps > 0) CopyQueries<T, kWidth, kQueries>(a, copied, queries);
  CommitCopies();
  const float unit = UnitOf<T>(a);
  float of_k[kTiles][kWidth / 8][4] = {};
  float of_v[kTiles][kWidth / 8][4] = {};
  int stage = 0;
  for (int step = 0; step < steps; ++step) {
    WaitForCopies<0>();
    SyncBlock();  // The tile is there, and the one before it read.
    const bool more = step + 1 < steps;
    if (more) copied.Advance(a, begin, end, inner_first);
    if (more && a.stages == 2) {
      CopyQueries<T, kWidth, kQueries>(a, copied, queries + (1 - stage) * kStage);
      CommitCopies();
    }
    const float* at = queries + stage * kStage;
    const Head head{taken.outer, taken.inner, 0, 0};
#pragma unroll 1
    for (int part = 0; part < kQueries; part += kPart) {
      const int from = taken.tile * kQueries + part;
      if (LeavesOut<T>(a) && own > from + kPart - 1 + a.diagonal) continue;
      const float* of_q = at + part * kRow;
      const float* of_g = of_q + kQueries * kRow;
      float scores[kTiles][kPart / 8][4] = {};
      float products[kTiles][kPart / 8][4] = {};
      AddProducts<T, kWidth, kTiles, kPart>(shared + warp * 16 * kTiles * kRow, of_q, scores);
      if constexpr (kOfKeys)
        AddProducts<T, kWidth, kTiles, kPart>(values + warp * 16 * kTiles * kRow, of_g, products);
      MakeScores<T, true, kTiles, kPart>(a, unit, head.At(a.mask_at), own, from, scores);
      WeighKeys<T, kTiles, kPart>(unit, at + 2 * kQueries * kRow + part, kQueries, scores,
                                  products);
      if constexpr (kOfValues) AddWeighted<T, kWidth, kTiles, kPart>(scores, of_g, of_v);
      if constexpr (kOfKeys) AddWeighted<T, kWidth, kTiles, kPart>(products, of_q, of_k);
    }
    taken = copied;
    if (a.stages == 2) {
      stage = 1 - stage;
    } else if (more) {
      SyncBlock();
      CopyQueries<T, kWidth, kQueries>(a, copied, queries);
      CommitCopies();
    }
  }
  WaitForCopies<0>();
  if constexpr (kOfValues)
    StoreGradient<T, kWidth, kTiles>(a, of_v, 1, a.of_v, of_keys.AtKeys(a.v_at), a.v_at.row, own,
                                     a.keys, a.width);
  if constexpr (kOfKeys)
    StoreGradient<T, kWidth, kTiles>(a, of_k, a.scale, a.of_k, of_keys.AtKeys(a.k_at), a.k_at.row,
                                     own, a.keys, a.depth);
}

// The gradient in a tile of queries, 16 kTiles for each warp, by tiles of kKeys, of which kPart are
// taken at once. It may go where the queries or g are: those of the tile are read before.
template <typename T, int kWidth, int kTiles, int kKeys, int kPart>
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
  const int end =
      LeavesOut<T>(a) && last + a.diagonal + 1 < a.keys ? last + a.diagonal + 1 : a.keys;
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
  const float unit = UnitOf<T>(a);
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
    const int own_rows = warp * 16 * kTiles * kRow;
#pragma unroll 1
    for (int part = 0; part < kKeys; part += kPart) {
      if (LeavesOut<T>(a) && from + part > own + 16 * kTiles - 1 + a.diagonal) continue;
      const float* of_k = at + part * kRow;
      float scores[kTiles][kPart / 8][4] = {};
      float products[kTiles][kPart / 8][4] = {};
      AddProducts<T, kWidth, kTiles, kPart>(shared + own_rows, of_k, scores);
      AddProducts<T, kWidth, kTiles, kPart>(of_result + own_rows, of_k + kKeys * kRow, products);
      MakeScores<T, false, kTiles, kPart>(a, unit, head.At(a.mask_at), own, from + part, scores);
      WeighQueries<T, kTiles, kPart>(unit, log_sum, share, scores, products);
      AddWeighted<T, kWidth, kTiles, kPart>(scores, of_k, of_q);
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
  StoreGradient<T, kWidth, kTiles>(a, of_q, a.scale, a.of_q, head.At(a.q_at), a.q_at.row, own,
                                   a.queries, a.depth);
}

}  // namespace training
}  // namespace

#endif  // MEMC_CUDA_KERNELS_ATTENTION_BACKWARD_CUH_
