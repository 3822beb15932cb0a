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

// The tiles of queries of all heads that read one of k, one after the other: of each head, those
// from `begin` to `end`.
struct QueryTiles {
  int outer, inner;  // The head.
  int tile;
  int begin, end;
  int inner_first;

  __device__ __forceinline__ int Count(const TrainingAttention& a) const {
    return end > begin ? a.outer_share * a.inner_share * (end - begin) : 0;
  }

  __device__ __forceinline__ void Advance(const TrainingAttention& a) {
    if (++tile < end) return;
    tile = begin;
    if (++inner < inner_first + a.inner_share) return;
    inner = inner_first;
    ++outer;
  }
};

// Those for the keys of a head from `first` on.
template <typename T, int kQueries>
__device__ __forceinline__ QueryTiles TilesOf(const TrainingAttention& a, int head, int first) {
  const int inner = a.inner / a.inner_share;
  QueryTiles tiles;
  tiles.outer = head / inner * a.outer_share;
  tiles.inner = tiles.inner_first = head % inner * a.inner_share;
  // Queries before this see no key of the block.
  const int unseen = LeavesOut<T>(a) && first > a.diagonal ? first - a.diagonal : 0;
  tiles.tile = tiles.begin = unseen / kQueries;
  tiles.end = (a.queries + kQueries - 1) / kQueries;
  return tiles;
}

// Copies a tile of queries, of g, and log_sum and share of these, from query `from` on.
template <typename T, int kWidth, int kQueries>
__device__ __forceinline__ void CopyQueries(const TrainingAttention& a, const QueryTiles& at,
                                            float* to) {
  constexpr int kRow = kRowWords<T, kWidth>;
  const Head head{at.outer, at.inner, 0, 0};
  const int from = at.tile * kQueries;
  CopyPair<T, kWidth>(a, QueriesOf<T>(a, head), GradientsOf<T>(a, head), kQueries, from, a.queries,
                      to);
  const long long of_rows = head.At(a.rows_at);
  for (int i = Thread(); i < 2 * kQueries; i += Threads()) {
    const float* numbers = (i < kQueries ? a.log_sum : a.share) + of_rows;
    const int row = from + i % kQueries;
    const bool is_there = row < a.queries;
    CopyAsync4(to + 2 * kQueries * kRow + i, is_there ? numbers + row * a.rows_at.row : numbers,
               is_there ? 4 : 0);
  }
}

// What kPart queries from `query` on, which are at `part` of a tile, add to the gradients in a
// warp's keys and their values.
template <typename T, int kWidth, int kTiles, int kQueries, int kPart, bool kOfKeys, bool kOfValues>
__device__ __forceinline__ void AddQueries(const TrainingAttention& a, float unit,
                                           long long mask_at, int first, int query,
                                           const float* keys, const float* values,
                                           const float* tile, int part,
                                           float (&of_k)[kTiles][kWidth / 8][4],
                                           float (&of_v)[kTiles][kWidth / 8][4]) {
  constexpr int kRow = kRowWords<T, kWidth>;
  const float* q = tile + part * kRow;
  const float* g = q + kQueries * kRow;
  float scores[kTiles][kPart / 8][4] = {};
  float products[kTiles][kPart / 8][4] = {};
  AddProducts<T, kWidth, kTiles, kPart>(keys, q, scores);
  if constexpr (kOfKeys) AddProducts<T, kWidth, kTiles, kPart>(values, g, products);
  MakeScores<T, true, kTiles, kPart>(a, unit, mask_at, first, query, scores);
  WeighKeys<T, kTiles, kPart>(unit, tile + 2 * kQueries * kRow + part, kQueries, scores, products);
  if constexpr (kOfValues) AddWeighted<T, kWidth, kTiles, kPart>(scores, g, of_v);
  if constexpr (kOfKeys) AddWeighted<T, kWidth, kTiles, kPart>(products, q, of_k);
}

// The gradients in a tile of keys, 16 kTiles for each warp, and in their values, or in one of both,
// by tiles of kQueries of all heads that read the keys, of which kPart are taken at once.
template <typename T, int kWidth, int kTiles, int kQueries, int kPart, bool kOfKeys, bool kOfValues>
__device__ __forceinline__ void BackwardKeys(const TrainingAttention& a, float* shared) {
  constexpr int kRow = kRowWords<T, kWidth>;
  constexpr int kStage = 2 * kQueries * kRow + 2 * kQueries;
  const int warp = Thread() / 32;
  const int rows_of_block = Threads() / 32 * 16 * kTiles;
  const int heads = a.outer / a.outer_share * (a.inner / a.inner_share);
  const int first = Block() / heads * rows_of_block;
  QueryTiles copied = TilesOf<T, kQueries>(a, Block() % heads, first);
  const Head of_keys = HeadOf(a, copied.outer, copied.inner);
  const int own = first + warp * 16 * kTiles;
  const int steps = copied.Count(a);
  float* values = shared + rows_of_block * kRow;
  float* queries = values + rows_of_block * kRow;
  QueryTiles taken = copied;
  CopyPair<T, kWidth>(a, KeysOf<T>(a, of_keys), ValuesOf<T>(a, of_keys), rows_of_block, first,
                      a.keys, shared);
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
    if (more) copied.Advance(a);
    if (more && a.stages == 2) {
      CopyQueries<T, kWidth, kQueries>(a, copied, queries + (1 - stage) * kStage);
      CommitCopies();
    }
    const float* at = queries + stage * kStage;
    const Head head{taken.outer, taken.inner, 0, 0};
    const int own_rows = warp * 16 * kTiles * kRow;
#pragma unroll 1
    for (int part = 0; part < kQueries; part += kPart) {
      const int from = taken.tile * kQueries + part;
      if (LeavesOut<T>(a) && own > from + kPart - 1 + a.diagonal) continue;
      AddQueries<T, kWidth, kTiles, kQueries, kPart, kOfKeys, kOfValues>(
          a, unit, head.At(a.mask_at), own, from, shared + own_rows, values + own_rows, at, part,
          of_k, of_v);
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

// A number for each of a warp's rows that a thread has.
template <int kTiles>
__device__ __forceinline__ void LoadNumbers(const TrainingAttention& a, const float* numbers,
                                            int first, float (&to)[kTiles][2]) {
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = first + i * 16 + h * 8 + Thread() % 32 / 4;
      to[i][h] = row < a.queries ? numbers[row * a.rows_at.row] : 0;
    }
  }
}

// What kPart keys from `key` on add to the gradients in a warp's queries, whose
// values are at `values`.
template <typename T, int kWidth, int kTiles, int kPart>
__device__ __forceinline__ void AddKeys(const TrainingAttention& a, float unit, long long mask_at,
                                        int first, int key, const float* q, const float* g,
                                        const float* keys, const float* values,
                                        const float (&log_sum)[kTiles][2],
                                        const float (&share)[kTiles][2],
                                        float (&of_q)[kTiles][kWidth / 8][4]) {
  float scores[kTiles][kPart / 8][4] = {};
  float products[kTiles][kPart / 8][4] = {};
  AddProducts<T, kWidth, kTiles, kPart>(q, keys, scores);
  AddProducts<T, kWidth, kTiles, kPart>(g, values, products);
  MakeScores<T, false, kTiles, kPart>(a, unit, mask_at, first, key, scores);
  WeighQueries<T, kTiles, kPart>(unit, log_sum, share, scores, products);
  AddWeighted<T, kWidth, kTiles, kPart>(scores, keys, of_q);
}

// The gradient in a tile of queries, 16 kTiles for each warp, by tiles of kKeys, of which kPart are
// taken at once. It may go where the queries or g are: those of the tile are read before.
template <typename T, int kWidth, int kTiles, int kKeys, int kPart>
__device__ __forceinline__ void BackwardQueries(const TrainingAttention& a, float* shared) {
  constexpr int kRow = kRowWords<T, kWidth>;
  const int warp = Thread() / 32;
  const int rows_of_block = Threads() / 32 * 16 * kTiles;
  const int heads = a.outer * a.inner;
  const int first = (a.tiles - 1 - Block() / heads) * rows_of_block;
  const Head head = HeadOf(a, Block() % heads / a.inner, Block() % heads % a.inner);
  const HeadRows k = KeysOf<T>(a, head);
  const HeadRows v = ValuesOf<T>(a, head);
  const int last = (first + rows_of_block < a.queries ? first + rows_of_block : a.queries) - 1;
  const int end =
      LeavesOut<T>(a) && last + a.diagonal + 1 < a.keys ? last + a.diagonal + 1 : a.keys;
  const int own = first + warp * 16 * kTiles;
  float* of_result = shared + rows_of_block * kRow;
  float* keys = of_result + rows_of_block * kRow;
  const auto copy = [&](int stage, int from) {
    CopyPair<T, kWidth>(a, k, v, kKeys, from, a.keys, keys + stage * 2 * kKeys * kRow);
  };
  CopyPair<T, kWidth>(a, QueriesOf<T>(a, head), GradientsOf<T>(a, head), rows_of_block, first,
                      a.queries, shared);
  copy(0, 0);
  CommitCopies();
  float log_sum[kTiles][2];
  float share[kTiles][2];
  LoadNumbers(a, a.log_sum + head.At(a.rows_at), own, log_sum);
  LoadNumbers(a, a.share + head.At(a.rows_at), own, share);
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
      const float* of_part = at + part * kRow;
      AddKeys<T, kWidth, kTiles, kPart>(a, unit, head.At(a.mask_at), own, from + part,
                                        shared + own_rows, of_result + own_rows, of_part,
                                        of_part + kKeys * kRow, log_sum, share, of_q);
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
