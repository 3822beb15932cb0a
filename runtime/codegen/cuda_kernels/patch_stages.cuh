// SPDX-License-Identifier: Apache-2.0
// Products with patches of images, which are gathered on their way to shared memory, where every
// element finds its place in a stage by itself. How a stage is multiplied is up to `Sums` of a tile
// T: `Add` adds the products of a stage, and copies the parts of another one meanwhile; `Put` has
// the sums where the stages were.
#ifndef MEMC_CUDA_KERNELS_PATCH_STAGES_CUH_
#define MEMC_CUDA_KERNELS_PATCH_STAGES_CUH_

#include "patch_places.cuh"

namespace {
namespace patches {

constexpr int kDepth = 32;            // Of a stage.
constexpr int kParts = 4;             // That a stage is copied in.
constexpr int kDeepRow = kDepth + 4;  // What is stored deep, apart against conflicts of banks.

// What a block has in shared memory: taps, then stages, and then in their place its tile.
template <typename T, Kind kKind>
struct Shared {
  // Taps of two stages, or of the columns.
  static constexpr int kTaps = 2 * (kKind == kSums ? T::kColumns : 2 * kDepth);
  static constexpr int kElementsA = T::kRows * kDeepRow;
  static constexpr int kRowB = kKind == kSums ? kDeepRow : T::kColumns + 8;
  static constexpr int kElementsB = kRowB * (kKind == kSums ? T::kColumns : kDepth);
  static constexpr int kStage = kElementsA + kElementsB;
  static constexpr int kStaged = T::kStages * kStage;
  static constexpr int kResultRow = T::kColumns + 8;
  static constexpr int kTile = T::kRows * kResultRow;
  static constexpr int kElements = kTaps + (kStaged > kTile ? kStaged : kTile);
};

// A part of a side of a tile that every thread copies one depth of, row by row from its own first
// on.
template <int kRows, int kThreads>
__device__ __forceinline__ void CopyDeep(float* shared, const float* from, long long row, int rows,
                                         bool exists, int part) {
  constexpr int kAtOnce = kThreads / kDepth;
  constexpr int kTurns = kRows / kAtOnce;
#pragma unroll
  for (int turn = part * kTurns / kParts; turn < (part + 1) * kTurns / kParts; ++turn) {
    const int at = turn * kAtOnce + Thread() / kDepth;
    CopyAsync4(shared + at * kDeepRow + Thread() % kDepth, from + at * row,
               exists && at < rows ? 4 : 0);
  }
}

// The same in fours of depth.
template <int kRows, int kThreads>
__device__ __forceinline__ void CopyWide(float* shared, const float* from, long long row, int rows,
                                         int depth, int part) {
  constexpr int kAtOnce = kThreads * 4 / kDepth;
  constexpr int kTurns = kRows / kAtOnce;
  const int inner = Thread() % (kDepth / 4) * 4;
  const int left = depth - inner < 0 ? 0 : depth - inner > 4 ? 4 : depth - inner;
#pragma unroll
  for (int turn = part * kTurns / kParts; turn < (part + 1) * kTurns / kParts; ++turn) {
    const int at = turn * kAtOnce + Thread() / (kDepth / 4);
    const int some = at < rows ? left : 0;
    CopyAsync16(shared + at * kDeepRow + inner, from + (some > 0 ? at * row + inner : 0), 4 * some);
  }
}

// The columns of a thread, each a place.
template <typename T>
struct Columns {
  static constexpr int kSide = T::kThreads < T::kColumns ? T::kThreads : T::kColumns;
  static constexpr int kOwn = T::kColumns / kSide;
  static constexpr int kDeep = kDepth * kSide / T::kThreads;  // Elements of a stage.
  const float* from[kOwn];
  unsigned outside[kOwn];  // Steps that leave the image.

  __device__ __forceinline__ Columns(const PatchProduct& p, int first) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int column = first + i * kSide + Thread() % kSide;
      const Place place(p, column, column < p.n);
      from[i] = p.b + place.image * p.image_x + place.offset;
      outside[i] = ~place.inside;
    }
  }

  __device__ __forceinline__ void Copy(float* shared, const Tap* taps, int row, int part) const {
#pragma unroll
    for (int turn = part * kDeep / kParts; turn < (part + 1) * kDeep / kParts; ++turn) {
      const int at = Thread() / kSide * kDeep + turn;
      const Tap tap = taps[at];
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        CopyAsync4(shared + at * row + i * kSide + Thread() % kSide, from[i] + tap.offset,
                   (tap.steps & outside[i]) == 0 ? 4 : 0);
      }
    }
  }
};

// Where a result is.
template <Kind kKind>
__device__ __forceinline__ long long ResultOf(const PatchProduct& p, int m, int n) {
  if (kKind == kSums) return (static_cast<long long>(Matrix()) * p.m + m) * p.n + n;
  const int image = Quotient(n, p.positions);
  return (static_cast<long long>(image) * p.m + m) * p.positions.by + n - image * p.positions.by;
}

__device__ __forceinline__ float Finished(const PatchProduct& p, float value, float bias,
                                          float residual) {
  value += bias + residual;
  return p.relu && value < 0 ? 0.0f : value;
}

// Adds up the parts of a tile and stores a block's share of the rows, kWidth results at a time.
template <typename T, Kind kKind, int kWidth>
__device__ __forceinline__ void Store(const PatchProduct& p, const float* shared, int first_row,
                                      int first_column, int rank) {
  constexpr int kRow = Shared<T, kKind>::kResultRow;
  constexpr int kOfRow = T::kColumns / kWidth;
  const int share = T::kRows / p.splits;
  for (int at = Thread(); at < share * kOfRow; at += T::kThreads) {
    const int row = rank * share + at / kOfRow;
    const int column = at % kOfRow * kWidth;
    const int m = first_row + row;
    const int n = first_column + column;
    if (m >= p.m || n >= p.n) continue;
    const float* from = shared + row * kRow + column;
    const float bias = p.bias == nullptr ? 0.0f : p.bias[m];
    const long long to = ResultOf<kKind>(p, m, n);
    if (kWidth == 4) {
      float4 sum{0.0f, 0.0f, 0.0f, 0.0f};
      for (int other = 0; other < p.splits; ++other) {
        const float4 four = ReadShared(from, other);
        sum = float4{sum.x + four.x, sum.y + four.y, sum.z + four.z, sum.w + four.w};
      }
      float4 more{0.0f, 0.0f, 0.0f, 0.0f};
      if (p.residual != nullptr) more = *reinterpret_cast<const float4*>(p.residual + to);
      *reinterpret_cast<float4*>(p.c + to) =
          float4{Finished(p, sum.x, bias, more.x), Finished(p, sum.y, bias, more.y),
                 Finished(p, sum.z, bias, more.z), Finished(p, sum.w, bias, more.w)};
    } else {
      float sum = 0;
      for (int other = 0; other < p.splits; ++other) sum += ReadOne(from, other);
      p.c[to] = Finished(p, sum, bias, p.residual == nullptr ? 0.0f : p.residual[to]);
    }
  }
}

// Copies the stages of a tile, part by part.
template <typename T, Kind kKind>
struct Stages {
  using S = Shared<T, kKind>;
  const PatchProduct& p;
  float* staged;
  Tap* taps;
  int first_row, end;
  Columns<T> columns;
  // Of the stage that is being copied.
  float* to = nullptr;
  const float* from = nullptr;
  const float* image = nullptr;
  const Tap* stage_taps = nullptr;
  unsigned outside = 0;
  int depth = 0;

  __device__ __forceinline__ Stages(const PatchProduct& given, float* shared, int row, int column,
                                    int last)
      : p(given),
        staged(shared + S::kTaps),
        taps(reinterpret_cast<Tap*>(shared)),
        first_row(row),
        end(last),
        columns(given, kKind == kSums ? given.n : column) {
    if (kKind == kSums) {
      for (int i = Thread(); i < T::kColumns; i += T::kThreads) {
        taps[i] = TapOf(p, column + i, column + i < p.n);
      }
      SyncBlock();
    }
  }

  // Finds the taps of a stage, which is to be copied after the next barrier.
  __device__ __forceinline__ void Prepare(int stage, int deep) {
    if (kKind == kSums || Thread() >= kDepth) return;
    const int k = deep + Thread();
    taps[stage % 2 * kDepth + Thread()] = TapOf(p, k, k < end);
  }

  // Begins to copy a stage, from a depth on; one beyond the end has nothing.
  __device__ __forceinline__ void Begin(int stage, int deep) {
    to = staged + stage % T::kStages * S::kStage;
    depth = end - deep;
    const long long row = RowOf<kKind>(p);
    const int k = deep + Thread() % kDepth;
    if (kKind == kPatches && p.wide_a) {
      from = p.a + first_row * row + deep;
    } else {
      from = FirstOf<kKind>(p, k < end ? k : 0) + first_row * row;
    }
    if (kKind == kSums) {
      const Place place(p, k, k < end);
      image = p.b + place.image * p.image_x + place.offset;
      outside = ~place.inside;
      stage_taps = taps;
    } else {
      stage_taps = taps + stage % 2 * kDepth;
    }
  }

  __device__ __forceinline__ void Copy(int part) const {
    if (depth <= 0) return;
    const long long row = RowOf<kKind>(p);
    const int rows = p.m - first_row;
    if (kKind == kPatches && p.wide_a) {
      CopyWide<T::kRows, T::kThreads>(to, from, row, rows, depth, part);
    } else {
      CopyDeep<T::kRows, T::kThreads>(to, from, row, rows, Thread() % kDepth < depth, part);
    }
    if (kKind == kSums) {
      CopyPlaces(part);
    } else {
      columns.Copy(to + S::kElementsA, stage_taps, S::kRowB, part);
    }
  }

 private:
  // Columns of a thread's place.
  __device__ __forceinline__ void CopyPlaces(int part) const {
    constexpr int kAtOnce = T::kThreads / kDepth;
    constexpr int kTurns = T::kColumns / kAtOnce;
#pragma unroll
    for (int turn = part * kTurns / kParts; turn < (part + 1) * kTurns / kParts; ++turn) {
      const int at = turn * kAtOnce + Thread() / kDepth;
      const Tap tap = stage_taps[at];
      CopyAsync4(to + S::kElementsA + at * kDeepRow + Thread() % kDepth, image + tap.offset,
                 (tap.steps & outside) == 0 ? 4 : 0);
    }
  }
};

// One tile.
template <typename T, Kind kKind>
__device__ __forceinline__ void Multiply(const PatchProduct& p, float* shared) {
  using S = Shared<T, kKind>;
  const int tile = Block() / p.splits;
  const int rank = Block() - tile * p.splits;
  const int tiles_down = (p.m + T::kRows - 1) / T::kRows;
  const int first_row = tile % tiles_down * T::kRows;
  const int first_column = tile / tiles_down * T::kColumns;
  const int begin = (kKind == kSums ? Matrix() * p.splits + rank : rank) * p.part;
  const int end = begin + p.part < p.k ? begin + p.part : p.k;
  const int steps = (end - begin + kDepth - 1) / kDepth;
  Stages<T, kKind> stages(p, shared, first_row, first_column, end);
#pragma unroll 1
  for (int stage = 0; stage < T::kStages - 1; ++stage) {
    stages.Prepare(stage, begin + stage * kDepth);
    SyncBlock();
    stages.Begin(stage, begin + stage * kDepth);
#pragma unroll
    for (int part = 0; part < kParts; ++part) stages.Copy(part);
    CommitCopies();
  }
  stages.Prepare(T::kStages - 1, begin + (T::kStages - 1) * kDepth);
  typename T::Sums sums;
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    WaitForCopies<T::kStages - 2>();
    SyncBlock();
    const int ahead = step + T::kStages - 1;
    stages.Begin(ahead, begin + ahead * kDepth);
    stages.Prepare(ahead + 1, begin + (ahead + 1) * kDepth);
    const float* from = shared + S::kTaps + step % T::kStages * S::kStage;
    sums.template Add<kKind>(from, from + S::kElementsA, stages);
    CommitCopies();
  }
  WaitForCopies<0>();
  SyncBlock();

  float* results = shared + S::kTaps;
  sums.template Put<kKind>(results);
  SyncCluster();
  if (p.wide_c) {
    Store<T, kKind, 4>(p, results, first_row, first_column, rank);
  } else {
    Store<T, kKind, 1>(p, results, first_row, first_column, rank);
  }
  SyncCluster();  // Until all have read, no block's memory may go.
}

}  // namespace patches
}  // namespace

// A kernel whose blocks have tiles of one size, of products of one kind.
#define PATCH_KERNEL(name, tile, kind)                                        \
  extern "C" __global__ void __launch_bounds__(tile::kThreads, tile::kBlocks) \
      name(const PatchProduct p) {                                            \
    GIVEN_FLOATS(shared, (patches::Shared<tile, kind>::kElements));           \
    patches::Multiply<tile, kind>(p, shared);                                 \
  }

#endif  // MEMC_CUDA_KERNELS_PATCH_STAGES_CUH_
