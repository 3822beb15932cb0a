// SPDX-License-Identifier: Apache-2.0
// What the kernels of attention in training multiply: rows of f32 or halves in shared memory, on
// tensor cores, with sums of f32. In bytes, all element types look the same: a step of the depth
// takes 32 bytes of a row, a thread has words of 4 bytes, which hold one f32 or two halves.
#ifndef MEMC_CUDA_KERNELS_ATTENTION_FACTORS_CUH_
#define MEMC_CUDA_KERNELS_ATTENTION_FACTORS_CUH_

#include "primitives.cuh"

namespace {
namespace training {

// Elements of f16.
struct F16 {
  static constexpr int kBytes = 2;
  static constexpr bool kApart = false;
  static constexpr bool kMasked = false;
  using A = float[4];
  using B = float[2];

  static __device__ __forceinline__ void Left(const float (&from)[4], A& to) {
#pragma unroll
    for (int n = 0; n < 4; ++n) to[n] = from[n];
  }
  static __device__ __forceinline__ void Right(float low, float high, B& to) {
    to[0] = low;
    to[1] = high;
  }
  static __device__ __forceinline__ void Multiply(float (&sums)[4], const A& a, const B& b) {
    MultiplyAddF16(sums, a, b);
  }
  static __device__ __forceinline__ float Pack(float low, float high) { return PackF16(low, high); }
  static __device__ __forceinline__ float Unpack(unsigned short bits) { return UnpackF16(bits); }
};

// Elements of bf16.
struct Bf16 : F16 {
  static __device__ __forceinline__ void Multiply(float (&sums)[4], const A& a, const B& b) {
    MultiplyAddBf16(sums, a, b);
  }
  static __device__ __forceinline__ float Pack(float low, float high) {
    return PackBf16(low, high);
  }
  static __device__ __forceinline__ float Unpack(unsigned short bits) {
    return FloatOf(static_cast<unsigned>(bits) << 16);
  }
};

// Elements of f32, which are rounded to TF32.
struct Tf32 {
  static constexpr int kBytes = 4;
  static constexpr bool kApart = false;
  static constexpr bool kMasked = false;
  using A = float[4];
  using B = float[2];

  static __device__ __forceinline__ void Left(const float (&from)[4], A& to) {
#pragma unroll
    for (int n = 0; n < 4; ++n) to[n] = RoundedToTf32(from[n]);
  }
  static __device__ __forceinline__ void Right(float low, float high, B& to) {
    to[0] = RoundedToTf32(low);
    to[1] = RoundedToTf32(high);
  }
  static __device__ __forceinline__ void Multiply(float (&sums)[4], const A& a, const B& b) {
    MultiplyAdd(sums, a, b);
  }
};

// Elements of f32, each the sum of two numbers of TF32 (Ootomo and Yokota 2022, Recovering single
// precision accuracy from Tensor Cores): three products in place of one. Tensor cores round sums
// towards zero; so that this does not add up, long ones are made apart and added in f32.
struct F32 {
  static constexpr int kBytes = 4;
  static constexpr bool kApart = true;
  static constexpr bool kMasked = false;
  struct A {
    float most[4];
    float rest[4];
  };
  struct B {
    float most[2];
    float rest[2];
  };

  static __device__ __forceinline__ void Split(float value, float& most, float& rest) {
    most = FloatOf((BitsOf(value) + 0x1000U) & 0xffffe000U);
    rest = value - most;
  }
  static __device__ __forceinline__ void Left(const float (&from)[4], A& to) {
#pragma unroll
    for (int n = 0; n < 4; ++n) Split(from[n], to.most[n], to.rest[n]);
  }
  static __device__ __forceinline__ void Right(float low, float high, B& to) {
    Split(low, to.most[0], to.rest[0]);
    Split(high, to.most[1], to.rest[1]);
  }
  static __device__ __forceinline__ void Multiply(float (&sums)[4], const A& a, const B& b) {
    MultiplyAdd(sums, a.rest, b.most);
    MultiplyAdd(sums, a.most, b.rest);
    MultiplyAdd(sums, a.most, b.most);
  }
};

// Elements of attention with a mask.
template <typename T>
struct Masked : T {
  static constexpr bool kMasked = true;
};

// Words from one row of shared memory to the next: 16 bytes more than it has, so that no bank is
// asked twice at once.
template <typename T, int kWidth>
constexpr int kRowWords = kWidth * T::kBytes / 4 + 4;

// Adds to sums [16 kTiles, kColumns] the products of a warp's rows with others, from `left` and
// `right` on: left right'.
template <typename T, int kWidth, int kTiles, int kColumns>
__device__ __forceinline__ void AddProducts(const float* left, const float* right,
                                            float (&sums)[kTiles][kColumns / 8][4]) {
  constexpr int kRow = kRowWords<T, kWidth>;
  const int lane = Thread() % 32;
  left += lane % 16 * kRow + lane / 16 * 4;
  right += (lane / 16 * 8 + lane % 8) * kRow + lane / 8 % 2 * 4;
#pragma unroll
  for (int deep = 0; deep < kWidth * T::kBytes / 4; deep += 8) {
    typename T::A a[kTiles];
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      float four[4];
      LoadMatrices(four, left + i * 16 * kRow + deep);
      T::Left(four, a[i]);
    }
#pragma unroll
    for (int j = 0; j < kColumns / 8; j += 2) {
      float four[4];
      LoadMatrices(four, right + j * 8 * kRow + deep);
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        typename T::B b;
        T::Right(four[2 * n], four[2 * n + 1], b);
#pragma unroll
        for (int i = 0; i < kTiles; ++i) T::Multiply(sums[i][j + n], a[i], b);
      }
    }
  }
}

// Adds to sums [16 kTiles, kWidth] the product of weights [16 kTiles, kRows], which have the form
// of sums, with rows of halves in shared memory.
template <typename T, int kWidth, int kTiles, int kRows>
__device__ __forceinline__ void AddHalves(const float (&weights)[kTiles][kRows / 8][4],
                                          const float* rows, float (&sums)[kTiles][kWidth / 8][4]) {
  constexpr int kRow = kRowWords<T, kWidth>;
  const int lane = Thread() % 32;
  rows += lane % 16 * kRow + lane / 16 * 4;
#pragma unroll
  for (int deep = 0; deep < kRows; deep += 16) {
    float a[kTiles][4];
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const float (&from)[4] = weights[i][deep / 8 + n / 2];
        a[i][n] = T::Pack(from[n % 2 * 2], from[n % 2 * 2 + 1]);
      }
    }
#pragma unroll
    for (int j = 0; j < kWidth / 8; j += 2) {
      float four[4];
      LoadAcross(four, rows + deep * kRow + j * 4);
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const float b[2] = {four[2 * n], four[2 * n + 1]};
#pragma unroll
        for (int i = 0; i < kTiles; ++i) T::Multiply(sums[i][j + n], a[i], b);
      }
    }
  }
}

// The same of f32. The depth is taken in another order: a thread has neighbours where the left
// factor wants those four columns apart.
template <typename T, int kWidth, int kTiles, int kRows>
__device__ __forceinline__ void AddSingles(const float (&weights)[kTiles][kRows / 8][4],
                                           const float* rows,
                                           float (&sums)[kTiles][kWidth / 8][4]) {
  constexpr int kRow = kRowWords<T, kWidth>;
  const int lane = Thread() % 32;
  rows += lane % 4 * 2 * kRow + lane / 4;
  constexpr int kGroup = 4;  // Of eight columns each.
#pragma unroll
  for (int first = 0; first < kWidth / 8; first += kGroup) {
    float apart[kTiles][kGroup][4] = {};
#pragma unroll
    for (int deep = 0; deep < kRows; deep += 8) {
      typename T::A a[kTiles];
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        const float (&from)[4] = weights[i][deep / 8];
        const float four[4] = {from[0], from[2], from[1], from[3]};
        T::Left(four, a[i]);
      }
#pragma unroll
      for (int j = 0; j < kGroup; ++j) {
        const float* at = rows + deep * kRow + (first + j) * 8;
        typename T::B b;
        T::Right(at[0], at[kRow], b);
#pragma unroll
        for (int i = 0; i < kTiles; ++i)
          T::Multiply(T::kApart ? apart[i][j] : sums[i][first + j], a[i], b);
      }
    }
    if constexpr (T::kApart) {
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
#pragma unroll
        for (int j = 0; j < kGroup; ++j) {
#pragma unroll
          for (int n = 0; n < 4; ++n) sums[i][first + j][n] += apart[i][j][n];
        }
      }
    }
  }
}

template <typename T, int kWidth, int kTiles, int kRows>
__device__ __forceinline__ void AddWeighted(const float (&weights)[kTiles][kRows / 8][4],
                                            const float* rows,
                                            float (&sums)[kTiles][kWidth / 8][4]) {
  if constexpr (T::kBytes == 2) {
    AddHalves<T, kWidth, kTiles, kRows>(weights, rows, sums);
  } else {
    AddSingles<T, kWidth, kTiles, kRows>(weights, rows, sums);
  }
}

}  // namespace training
}  // namespace

#endif  // MEMC_CUDA_KERNELS_ATTENTION_FACTORS_CUH_
