// SPDX-License-Identifier: Apache-2.0
// What running sums and products are made of: states, which stand for a stretch of a line and are
// combined with those before in any grouping.
#ifndef MEMC_CUDA_KERNELS_SCANS_CUH_
#define MEMC_CUDA_KERNELS_SCANS_CUH_

#include "primitives.cuh"

namespace {

struct Scan {
  const void* x;
  void* y;
  void* sums;  // The state of each part, line by line.
  long long lead, extent, trail;
  long long parts;       // Of a line, each for one block.
  long long chunks;      // Of a part, which the block takes one after the other.
  long long line_tiles;  // Blocks of as many lines as they take, of `trail` lines.
  int wide;              // Lines of a block: a power of two, at most 32.
  int bytes;             // Of an element, of integers.
  int exclusive, reverse;
};

namespace scans {

using Word = unsigned long long;

// Integers wrap around: what is above an element's bits is cut off when it is stored.
struct Integer {
  using Element = Word;
  using State = Word;
  static __device__ __forceinline__ Element Read(const Scan& s, long long place) {
    if (s.bytes == 4) return static_cast<const unsigned*>(s.x)[place];
    if (s.bytes == 8) return static_cast<const Word*>(s.x)[place];
    if (s.bytes == 2) return static_cast<const unsigned short*>(s.x)[place];
    return static_cast<const unsigned char*>(s.x)[place];
  }
  static __device__ __forceinline__ void Write(const Scan& s, long long place, Element value) {
    if (s.bytes == 4) {
      static_cast<unsigned*>(s.y)[place] = static_cast<unsigned>(value);
    } else if (s.bytes == 8) {
      static_cast<Word*>(s.y)[place] = value;
    } else if (s.bytes == 2) {
      static_cast<unsigned short*>(s.y)[place] = static_cast<unsigned short>(value);
    } else {
      static_cast<unsigned char*>(s.y)[place] = static_cast<unsigned char>(value);
    }
  }
  static __device__ __forceinline__ State Of(Element x) { return x; }
  static __device__ __forceinline__ Element Value(State a) { return a; }
  static __device__ __forceinline__ bool Leaves(State, State) { return false; }
  static __device__ __forceinline__ Element Next(Element a, Element) { return a; }
};

struct IntegerSum : Integer {
  static __device__ __forceinline__ State None() { return 0; }
  static __device__ __forceinline__ State Combine(State a, State b) { return a + b; }
};

struct IntegerProduct : Integer {
  static __device__ __forceinline__ State None() { return 1; }
  static __device__ __forceinline__ State Combine(State a, State b) { return a * b; }
};

template <typename T>
struct Float {
  using Element = T;
  static __device__ __forceinline__ Element Read(const Scan& s, long long place) {
    return static_cast<const T*>(s.x)[place];
  }
  static __device__ __forceinline__ void Write(const Scan& s, long long place, Element value) {
    static_cast<T*>(s.y)[place] = value;
  }
};

template <typename T>
struct FloatSum : Float<T> {
  using State = double;
  static __device__ __forceinline__ State None() { return 0; }
  static __device__ __forceinline__ State Combine(State a, State b) { return a + b; }
  static __device__ __forceinline__ State Of(T x) { return x; }
  static __device__ __forceinline__ T Value(State a) { return static_cast<T>(a); }
  static __device__ __forceinline__ bool Leaves(State, State) { return false; }
  static __device__ __forceinline__ T Next(T a, T) { return a; }
};

// fraction times 2^exponent, the fraction in [0.5, 1) or zero, infinite or nan; and between what
// exponents all running products are that are finite and not zero.
struct Scaled {
  double fraction;
  long long exponent, high, low;
};

constexpr long long kFar = 1LL << 60;

template <typename T>
struct FloatProduct : Float<T> {
  using State = Scaled;
  // Of the type's normal numbers. Close to its greatest, rounding may make an infinity.
  static constexpr long long kHigh = sizeof(T) == 4 ? 127 : 1023;
  static constexpr long long kLow = sizeof(T) == 4 ? -125 : -1021;

  static __device__ __forceinline__ bool IsUsual(double a) { return a != 0 && a - a == 0; }
  static __device__ __forceinline__ State None() { return {0.5, 1, -kFar, kFar}; }
  static __device__ __forceinline__ State Of(T x) {
    if (!IsUsual(x)) return {x, 0, -kFar, kFar};
    int exponent = 0;
    const double fraction = frexp(static_cast<double>(x), &exponent);
    return {fraction, exponent, exponent, exponent};
  }
  static __device__ __forceinline__ State Combine(const State& a, const State& b) {
    if (IsUsual(a.fraction) && a.high == -kFar) return b;  // None.
    State c{a.fraction * b.fraction, a.exponent + b.exponent, a.high, a.low};
    if (!IsUsual(a.fraction)) return c;
    if (c.fraction < 0.5 && c.fraction > -0.5 && c.fraction != 0) {
      c.fraction *= 2;
      --c.exponent;
    }
    // Of products in [0.25, 1) of fractions one half may be just below what is said here.
    if (a.exponent + b.high > c.high) c.high = a.exponent + b.high;
    if (a.exponent + b.low - 1 < c.low) c.low = a.exponent + b.low - 1;
    return c;
  }
  static __device__ __forceinline__ T Value(const State& a) {
    if (!IsUsual(a.fraction)) return static_cast<T>(a.fraction);
    const long long most = 4000;
    const long long exponent = a.exponent > most ? most : a.exponent < -most ? -most : a.exponent;
    return static_cast<T>(ldexp(a.fraction, static_cast<int>(exponent)));
  }
  // Whether a running product that goes on from `a` through `b` may be infinite or lose digits.
  static __device__ __forceinline__ bool Leaves(const State& a, const State& b) {
    if (!IsUsual(a.fraction)) return false;  // It is zero, infinite or nan whatever follows is.
    return a.exponent + b.high > kHigh || a.exponent + b.low - 1 < kLow;
  }
  static __device__ __forceinline__ T Next(T a, T b) { return a * b; }
};

}  // namespace scans

}  // namespace

#endif  // MEMC_CUDA_KERNELS_SCANS_CUH_
