// SPDX-License-Identifier: Apache-2.0
// Attention in training, forward and backward, without the scores in memory.
//
// The kernels are `<pass>_attention_<version>_<type>_<width>`, for heads of at most `width`
// columns, the type with `masked_` before it where there is a mask: forward, keys (the gradients in
// k and v) and queries (that in q); `TrainingAttention` is what cpp/cuda/cuda_attention_training.cc
// gives them, which also says how much shared memory they take. They are many: ATTENTION_TRAINING
// makes those of one type and width.
#ifndef MEMC_CUDA_KERNELS_ATTENTION_TRAINING_CUH_
#define MEMC_CUDA_KERNELS_ATTENTION_TRAINING_CUH_

#include "attention_backward.cuh"
#include "attention_forward.cuh"

namespace {
namespace training {

// Of a pass, rows of a warp in sixteens, rows of a tile that it walks over, and how many of those
// are taken at once: as many as there are registers for.
struct Tile {
  int sixteens, rows, part;
};

__device__ constexpr Tile ForwardTile(int bytes, int width) {
  if (bytes == 4) return {1, width <= 64 ? 64 : 32, 0};
  return width <= 128 ? Tile{2, 64, 0} : Tile{1, 32, 0};
}
__device__ constexpr Tile KeysTile(int bytes, int width) {
  if (bytes == 4) return {1, 32, 32};
  return width <= 64 ? Tile{2, 64, 32} : width <= 128 ? Tile{1, 64, 64} : Tile{1, 32, 32};
}
__device__ constexpr Tile QueriesTile(int bytes, int width) {
  if (bytes == 4) return {1, 32, 32};
  return width <= 64 ? Tile{2, 64, 32} : width <= 128 ? Tile{1, 64, 32} : Tile{1, 32, 32};
}

template <typename T, int kWidth>
__device__ __forceinline__ void RunForward(const TrainingAttention& a, float* shared) {
  constexpr Tile kTile = ForwardTile(T::kBytes, kWidth);
  Forward<T, kWidth, kTile.sixteens, kTile.rows>(a, shared);
}

// Sums for both gradients have room in the registers up to 128 columns; beyond, half of the grid
// makes one of them.
template <typename T, int kWidth>
__device__ __forceinline__ void RunKeys(const TrainingAttention& a, float* shared) {
  constexpr Tile kTile = KeysTile(T::kBytes, kWidth);
  if constexpr (kWidth <= 128) {
    BackwardKeys<T, kWidth, kTile.sixteens, kTile.rows, kTile.part, true, true>(a, shared);
  } else if (Matrix() == 0) {
    BackwardKeys<T, kWidth, kTile.sixteens, kTile.rows, kTile.part, true, false>(a, shared);
  } else {
    BackwardKeys<T, kWidth, kTile.sixteens, kTile.rows, kTile.part, false, true>(a, shared);
  }
}

template <typename T, int kWidth>
__device__ __forceinline__ void RunQueries(const TrainingAttention& a, float* shared) {
  constexpr Tile kTile = QueriesTile(T::kBytes, kWidth);
  BackwardQueries<T, kWidth, kTile.sixteens, kTile.rows, kTile.part>(a, shared);
}

// Words of shared memory: own rows of one or two matrices, and the stages of two, with `numbers`
// words for each of their rows.
template <typename T, int kWidth>
__device__ __forceinline__ int SharedWords(const TrainingAttention& a, Tile tile, int matrices,
                                           int numbers) {
  constexpr int kRow = kRowWords<T, kWidth>;
  return Threads() / 2 * tile.sixteens * matrices * kRow +
         a.stages * tile.rows * (2 * kRow + numbers);
}

}  // namespace training
}  // namespace

#define ATTENTION_KERNEL(pass, kind, matrices, numbers, Type, name, width)                         \
  extern "C" __global__ void __launch_bounds__(256)                                                \
      pass##_attention_1_##name##_##width(const TrainingAttention a) {                             \
    using namespace training;                                                                      \
    GIVEN_FLOATS(                                                                                  \
        given, (SharedWords<Type, width>(a, kind##Tile(Type::kBytes, width), matrices, numbers))); \
    Run##kind<Type, width>(a, given);                                                              \
  }

#define ATTENTION_TRAINING(Type, name, width)                 \
  ATTENTION_KERNEL(forward, Forward, 1, 0, Type, name, width) \
  ATTENTION_KERNEL(keys, Keys, 2, 2, Type, name, width)       \
  ATTENTION_KERNEL(queries, Queries, 2, 0, Type, name, width)

#endif  // MEMC_CUDA_KERNELS_ATTENTION_TRAINING_CUH_
