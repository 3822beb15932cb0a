// SPDX-License-Identifier: Apache-2.0
// softmax(scale q k' + mask) v of f32, head by head, without the scores in memory: a block takes
// some queries and walks over the keys with the running maximum and sum of each row (Milakov and
// Gimelshein 2018, Online normalizer calculation for softmax; Dao et al. 2022, FlashAttention,
// Algorithm 1). Where there are few queries, the keys are split among the blocks of a cluster,
// which put their parts together out of each other's shared memory, always in the same order.
//
// The kernels are `attention_<version>_<queries>x<keys>_<width>`, for heads of at most `width`
// columns; `Attention` is what cpp/cuda/cuda_attention.cc gives them.
#include "primitives.cuh"

namespace {

// Elements from one head, outer or inner, to the next, and from one row to the next.
struct Strides {
  long long outer, inner, row;
};

struct Attention {
  const float* q;
  const float* k;
  const float* v;
  const float* mask;  // Null for none.
  float* result;
  Strides of_q, of_k, of_v, of_mask, of_result;
  long long mask_column;  // Elements from one column to the next, 0 or 1.
  float scale;
  int queries, keys;
  int depth, width;  // Columns of q and k, and of v and the result.
  int inner;         // Heads side by side in one outer one.
  int tiles;         // Of queries, of one head.
  int part;          // Keys that a block takes, a multiple of those of a stage.
  int splits;        // Blocks of a tile.
  int wide;          // Whether all rows but the mask's begin at multiples of 16 bytes.
};

constexpr int kThreads = 128;
constexpr int kLanes = 16;  // Threads of a row.
constexpr int kGroups = kThreads / kLanes;
constexpr int kGap = 4;  // Elements between rows, against conflicts of banks.

// Where things lie in a block's shared memory. After the last stage, queries make place for the
// block's part of the result, and powers for [maximum, sum, 0, 0] of each row.
template <int kQueries, int kKeys, int kWidth>
struct Places {
  static constexpr int kRow = kWidth + kGap;
  static constexpr int kPowersRow = kKeys + kGap;
  static constexpr int kK = kQueries * kRow;
  static constexpr int kV = kK + kKeys * kRow;
  static constexpr int kPowers = kV + kKeys * kRow;
  static constexpr int kElements = kPowers + kQueries * kPowersRow;
};

// Copies kRows rows of a matrix from `first` on, and zeros from row `rows` and column `columns` on,
// up to a multiple of four columns.
template <int kRows, int kWidth>
__device__ __forceinline__ void CopyRows(float* shared, const float* global, long long stride,
                                         bool wide, int first, int rows, int columns) {
  constexpr int kInner = kWidth / 4;
#pragma unroll
  for (int turn = 0; turn < kRows * kInner / kThreads; ++turn) {
    const int quad = turn * kThreads + Thread();
    const int row = quad / kInner;
    const int column = quad % kInner * 4;
    const int count = first + row < rows ? columns - column : 0;
    float* to = shared + row * (kWidth + kGap) + column;
    const float* from = global + (first + row) * stride + column;
    if (wide) {
      CopyAsync16(to, count > 0 ? from : global, count > 0 ? 16 : 0);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        CopyAsync4(to + i, i < count ? from + i : global, i < count ? 4 : 0);
    }
  }
}

__device__ __forceinline__ float4 Four(const float* shared) {
  return *reinterpret_cast<const float4*>(shared);
}

// The maximum and the sum over the threads of a row.
__device__ __forceinline__ float MaximumOfRow(float value) {
#pragma unroll
  for (int mask = 1; mask < kLanes; mask *= 2) value = fmaxf(value, Exchange(value, mask));
  return value;
}
__device__ __forceinline__ float SumOfRow(float value) {
#pragma unroll
  for (int mask = 1; mask < kLanes; mask *= 2) value += Exchange(value, mask);
  return value;
}

// What is subtracted before exponentials: the maximum, but 0 where all is -inf so far.
__device__ __forceinline__ float Base(float maximum) { return maximum == -INFINITY ? 0 : maximum; }

// What a thread has of its rows so far.
template <int kOwnRows, int kOwnFours>
struct Rows {
  float maxima[kOwnRows];
  float sums[kOwnRows] = {};
  float results[kOwnRows][kOwnFours][4] = {};

  __device__ __forceinline__ Rows() {
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) maxima[i] = -INFINITY;
  }
};

// Adds the products of a stage's keys and a thread's queries to its scores.
template <typename At, int kOwnRows, int kOwnKeys>
__device__ __forceinline__ void AddScores(const float* shared, int depth, int group, int lane,
                                          float (&scores)[kOwnRows][kOwnKeys]) {
#pragma unroll 4
  for (int deep = 0; deep < depth; deep += 4) {
    float4 left[kOwnRows];
    float4 right[kOwnKeys];
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i)
      left[i] = Four(shared + (i * kGroups + group) * At::kRow + deep);
#pragma unroll
    for (int j = 0; j < kOwnKeys; ++j)
      right[j] = Four(shared + At::kK + (j * kLanes + lane) * At::kRow + deep);
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) {
#pragma unroll
      for (int j = 0; j < kOwnKeys; ++j) {
        float sum = fmaf(left[i].x, right[j].x, scores[i][j]);
        sum = fmaf(left[i].y, right[j].y, sum);
        sum = fmaf(left[i].z, right[j].z, sum);
        scores[i][j] = fmaf(left[i].w, right[j].w, sum);
      }
    }
  }
}

// Adds the values of a stage, times their powers, to a thread's results.
template <typename At, int kKeys, int kOwnRows, int kOwnFours>
__device__ __forceinline__ void AddValues(const float* shared, int group, int lane,
                                          Rows<kOwnRows, kOwnFours>& rows) {
  const float* own_powers = shared + At::kPowers + group * At::kPowersRow;
#pragma unroll 2
  for (int key = 0; key < kKeys; key += 4) {
    float4 powers[kOwnRows];
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i)
      powers[i] = Four(own_powers + i * kGroups * At::kPowersRow + key);
#pragma unroll
    for (int n = 0; n < 4; ++n) {
#pragma unroll
      for (int c = 0; c < kOwnFours; ++c) {
        const float4 value = Four(shared + At::kV + (key + n) * At::kRow + (c * kLanes + lane) * 4);
#pragma unroll
        for (int i = 0; i < kOwnRows; ++i) {
          const float power = n == 0   ? powers[i].x
                              : n == 1 ? powers[i].y
                              : n == 2 ? powers[i].z
                                       : powers[i].w;
          rows.results[i][c][0] = fmaf(power, value.x, rows.results[i][c][0]);
          rows.results[i][c][1] = fmaf(power, value.y, rows.results[i][c][1]);
          rows.results[i][c][2] = fmaf(power, value.z, rows.results[i][c][2]);
          rows.results[i][c][3] = fmaf(power, value.w, rows.results[i][c][3]);
        }
      }
    }
  }
}

// Stores a block's part of the result as it is, where queries and powers were.
template <typename At, int kOwnRows, int kOwnFours>
__device__ __forceinline__ void StorePart(float* shared, int group, int lane,
                                          const Rows<kOwnRows, kOwnFours>& rows) {
#pragma unroll
  for (int i = 0; i < kOwnRows; ++i) {
    const int row = i * kGroups + group;
#pragma unroll
    for (int c = 0; c < kOwnFours; ++c) {
      float* to = shared + row * At::kRow + (c * kLanes + lane) * 4;
#pragma unroll
      for (int e = 0; e < 4; ++e) to[e] = rows.results[i][c][e];
    }
    if (lane < 4) {
      shared[At::kPowers + row * 4 + lane] = lane == 0   ? rows.maxima[i]
                                             : lane == 1 ? rows.sums[i]
                                                         : 0;
    }
  }
}

// Puts the parts of a tile together. Each block finishes the same share of the rows, in fours of a
// row.
template <typename At, int kQueries>
__device__ __forceinline__ void Normalize(const Attention& a, const float* shared, float* result,
                                          int first, int rank) {
  const int fours = (a.width + 3) / 4;
  const int share = kQueries / a.splits;
  for (int at = Thread(); at < share * fours; at += kThreads) {
    const int row = rank * share + at / fours;
    const int column = at % fours * 4;
    if (first + row >= a.queries) continue;
    float most = -INFINITY;
    for (int other = 0; other < a.splits; ++other)
      most = fmaxf(most, ReadShared(shared + At::kPowers + row * 4, other).x);
    float sum = 0;
    float found[4] = {};
    for (int other = 0; other < a.splits; ++other) {
      const float4 about = ReadShared(shared + At::kPowers + row * 4, other);
      const float4 four = ReadShared(shared + row * At::kRow + column, other);
      const float less = expf(about.x - Base(most));
      sum = fmaf(about.y, less, sum);
      found[0] = fmaf(four.x, less, found[0]);
      found[1] = fmaf(four.y, less, found[1]);
      found[2] = fmaf(four.z, less, found[2]);
      found[3] = fmaf(four.w, less, found[3]);
    }
    float* to = result + (first + row) * a.of_result.row + column;
    if (a.wide != 0) {
      *reinterpret_cast<float4*>(to) = {found[0] / sum, found[1] / sum, found[2] / sum,
                                        found[3] / sum};
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (column + i < a.width) to[i] = found[i] / sum;
      }
    }
  }
}

// Replaces the scores of a stage by powers, in shared memory, and brings the maxima, sums and
// results of a thread's rows up to date.
template <typename At, int kOwnRows, int kOwnKeys, int kOwnFours>
__device__ __forceinline__ void Exponentiate(const Attention& a, const float* mask, int from,
                                             int end, int first, int group, int lane, float* shared,
                                             float (&scores)[kOwnRows][kOwnKeys],
                                             Rows<kOwnRows, kOwnFours>& rows) {
  float* own_powers = shared + At::kPowers + group * At::kPowersRow;
#pragma unroll
  for (int i = 0; i < kOwnRows; ++i) {
    const int row = first + i * kGroups + group;
    float most = rows.maxima[i];
#pragma unroll
    for (int j = 0; j < kOwnKeys; ++j) {
      const int key = from + j * kLanes + lane;
      float score = scores[i][j] * a.scale;
      if (key >= end) {
        score = -INFINITY;
      } else if (mask != nullptr && row < a.queries) {
        score += mask[row * a.of_mask.row + key * a.mask_column];
      }
      scores[i][j] = score;
      most = fmaxf(most, score);
    }
    most = MaximumOfRow(most);
    const float less = expf(rows.maxima[i] - Base(most));
    rows.maxima[i] = most;
    float sum = 0;
#pragma unroll
    for (int j = 0; j < kOwnKeys; ++j) {
      const float power = expf(scores[i][j] - Base(most));
      own_powers[i * kGroups * At::kPowersRow + j * kLanes + lane] = power;
      sum += power;
    }
    rows.sums[i] = rows.sums[i] * less + SumOfRow(sum);
#pragma unroll
    for (int c = 0; c < kOwnFours; ++c) {
#pragma unroll
      for (int e = 0; e < 4; ++e) rows.results[i][c][e] *= less;
    }
  }
}

// One tile of one head. A thread has every kGroups-th row; of its scores every kLanes-th column,
// and of its results fours that lie kLanes fours apart.
template <int kQueries, int kKeys, int kWidth>
__device__ __forceinline__ void Attend(const Attention& a, float* shared) {
  using At = Places<kQueries, kKeys, kWidth>;
  constexpr int kOwnRows = kQueries / kGroups;
  constexpr int kOwnKeys = kKeys / kLanes;
  const int tile = Block() / a.splits;
  const int rank = Block() - tile * a.splits;
  const int head = tile / a.tiles;
  const int first = (tile - head * a.tiles) * kQueries;
  const int outer = head / a.inner;
  const int inner = head - outer * a.inner;
  const auto of_head = [&](const Strides& s) { return outer * s.outer + inner * s.inner; };
  const float* k = a.k + of_head(a.of_k);
  const float* v = a.v + of_head(a.of_v);
  const float* mask = a.mask == nullptr ? nullptr : a.mask + of_head(a.of_mask);
  const bool wide = a.wide != 0;
  const int begin = rank * a.part;
  const int end = begin + a.part < a.keys ? begin + a.part : a.keys;
  const int steps = end > begin ? (end - begin + kKeys - 1) / kKeys : 0;
  const int lane = Thread() % kLanes;
  const int group = Thread() / kLanes;

  CopyRows<kQueries, kWidth>(shared, a.q + of_head(a.of_q), a.of_q.row, wide, first, a.queries,
                             a.depth);
  CopyRows<kKeys, kWidth>(shared + At::kK, k, a.of_k.row, wide, begin, end, a.depth);
  CommitCopies();
  CopyRows<kKeys, kWidth>(shared + At::kV, v, a.of_v.row, wide, begin, end, a.width);
  CommitCopies();
  Rows<kOwnRows, kWidth / 4 / kLanes> rows;

  for (int step = 0; step < steps; ++step) {
    const int from = begin + step * kKeys;
    if (step == 0) {
      WaitForCopies<1>();
    } else {
      WaitForCopies<0>();
    }
    SyncBlock();  // The keys are there, and the values before them read.
    if (step > 0) {
      CopyRows<kKeys, kWidth>(shared + At::kV, v, a.of_v.row, wide, from, end, a.width);
      CommitCopies();
    }
    float scores[kOwnRows][kOwnKeys] = {};
    AddScores<At, kOwnRows, kOwnKeys>(shared, a.depth, group, lane, scores);
    Exponentiate<At>(a, mask, from, end, first, group, lane, shared, scores, rows);
    WaitForCopies<0>();
    SyncBlock();  // The values and powers are there, and the keys read.
    if (step + 1 < steps) {
      CopyRows<kKeys, kWidth>(shared + At::kK, k, a.of_k.row, wide, from + kKeys, end, a.depth);
      CommitCopies();
    }
    AddValues<At, kKeys>(shared, group, lane, rows);
  }
  WaitForCopies<0>();
  SyncBlock();
  StorePart<At>(shared, group, lane, rows);
  SyncCluster();
  Normalize<At, kQueries>(a, shared, a.result + of_head(a.of_result), first, rank);
  SyncCluster();  // Until all have read, no block's memory may go.
}

}  // namespace

// `blocks`: of a multiprocessor, as many as its registers must do for.
#define ATTENTION(queries, keys, width, blocks)                       \
  extern "C" __global__ void __launch_bounds__(kThreads, blocks)      \
      attention_1_##queries##x##keys##_##width(const Attention a) {   \
    SHARED_FLOATS(shared, (Places<queries, keys, width>::kElements)); \
    Attend<queries, keys, width>(a, shared);                          \
  }

ATTENTION(32, 32, 64, 4)
ATTENTION(64, 32, 64, 2)
ATTENTION(16, 32, 128, 3)
