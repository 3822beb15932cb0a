// SPDX-License-Identifier: Apache-2.0
// What scatters work on: updates with the places that they go to, and elements as what they are
// combined in: floats in f64, integers in 64 bits.
#ifndef MEMC_CUDA_KERNELS_SCATTERS_CUH_
#define MEMC_CUDA_KERNELS_SCATTERS_CUH_

#include "primitives.cuh"

namespace {

using Word = unsigned long long;

constexpr int kMostAxes = 8;

// An entry is the place of an update in the upper half of a word and the update's number below.
struct Scatter {
  const void* indices;
  unsigned* keys;       // The place of each update.
  const Word* entries;  // In order.
  const void* start;    // Null: `fill`.
  const void* updates;
  void* result;
  Word* parts;  // What the parts of uniform place amount to, and 64 of these; null for none.
  Word* many;
  Word fill;               // Eight bytes of elements.
  long long result_bytes;  // All.
  long long count;         // Updates, or rows of them.
  long long places;        // Of the result that rows go to.
  long long lead, row;
  long long from[kMostAxes], to[kMostAxes];
  int axes, axis;  // Axis -1: of rows, and `to` is what their coordinates count.
  int is_wide;     // Indices of 64 bits.
  int words;       // Whether the result and the start are of whole words.
  int reduction;   // 0 none, 1 sum, 2 product, 3 greatest, 4 least.
  int positions;   // Write where an update is in place of it.
  int number, bytes, result_number, result_size;
};

namespace scatters {

constexpr int kThreads = 256;
constexpr int kPart = 64;
constexpr int kMany = kPart * kPart;

__device__ __forceinline__ unsigned PlaceOf(Word entry) {
  return static_cast<unsigned>(entry >> 32);
}
__device__ __forceinline__ long long UpdateOf(Word entry) {
  return static_cast<long long>(entry & 0xffffffffU);
}

// Negative indices count from the end; what is out of range is brought inside.
__device__ __forceinline__ long long IndexOf(const Scatter& s, long long i, long long extent) {
  long long given = s.is_wide != 0 ? static_cast<const long long*>(s.indices)[i]
                                   : static_cast<const int*>(s.indices)[i];
  if (given < 0) given += extent;
  return given < 0 ? 0 : given < extent ? given : extent - 1;
}

__device__ __forceinline__ float FloatOf(unsigned bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

__device__ __forceinline__ double HalfOf(unsigned bits) {
  const unsigned rest = bits & 0x7fffU;
  const unsigned sign = (bits & 0x8000U) << 16;
  if (rest >= 0x7c00) return FloatOf(sign | 0x7f800000U | (rest & 0x3ffU) << 13);
  if (rest >= 0x400) return FloatOf(sign | ((rest << 13) + (112U << 23)));
  const double small = rest * (1.0 / (1 << 24));
  return sign != 0 ? -small : small;
}

// The bits of the nearest float of 16 bits with so many of a fraction; ties to even ones.
__device__ __forceinline__ unsigned Rounded(double value, int fraction) {
  const unsigned infinity = ((1U << (15 - fraction)) - 1) << fraction;
  if (value != value) return infinity | 1U << (fraction - 1);
  const unsigned sign = copysign(1.0, value) < 0 ? 0x8000U : 0;
  const double size = fabs(value);
  const int bias = (1 << (14 - fraction)) - 1;
  int exponent = 0;
  frexp(size, &exponent);
  if (size - size != 0 || exponent - 1 > bias) return sign | infinity;
  if (size == 0 || exponent < 2 - bias) exponent = 2 - bias;  // What is below has no leading one.
  const double units = rint(ldexp(size, fraction + 1 - exponent));
  // A unit more than fits carries into the exponent, up to the infinity.
  return sign |
         static_cast<unsigned>(units) + (static_cast<unsigned>(exponent - 2 + bias) << fraction);
}

struct Floats {
  using State = double;
  static __device__ __forceinline__ State Read(const void* x, int number, int bytes, long long at) {
    if (bytes == 4) return static_cast<const float*>(x)[at];
    if (bytes == 8) return static_cast<const double*>(x)[at];
    const unsigned bits = static_cast<const unsigned short*>(x)[at];
    return number == 3 ? FloatOf(bits << 16) : HalfOf(bits);
  }
  static __device__ __forceinline__ void Write(void* y, int number, int bytes, long long at,
                                               State value) {
    if (bytes == 4) {
      static_cast<float*>(y)[at] = static_cast<float>(value);
    } else if (bytes == 8) {
      static_cast<double*>(y)[at] = value;
    } else {
      static_cast<unsigned short*>(y)[at] =
          static_cast<unsigned short>(Rounded(value, number == 3 ? 7 : 10));
    }
  }
  // A nan stays one.
  static __device__ __forceinline__ State Combine(const Scatter& s, State a, State b) {
    if (s.reduction == 1) return a + b;
    if (s.reduction == 2) return a * b;
    return (s.reduction == 3 ? b > a : b < a) || b != b ? b : a;
  }
};

// Sums and products wrap around: what is above an element's bits is cut off when it is written.
struct Integers {
  using State = Word;
  static __device__ __forceinline__ State Read(const void* x, int number, int bytes, long long at) {
    if (bytes == 8) return static_cast<const Word*>(x)[at];
    if (bytes == 4) {
      const unsigned value = static_cast<const unsigned*>(x)[at];
      return number == 1 ? static_cast<Word>(static_cast<int>(value)) : value;
    }
    if (bytes == 2) {
      const unsigned short value = static_cast<const unsigned short*>(x)[at];
      return number == 1 ? static_cast<Word>(static_cast<short>(value)) : value;
    }
    const unsigned char value = static_cast<const unsigned char*>(x)[at];
    return number == 1 ? static_cast<Word>(static_cast<signed char>(value)) : value;
  }
  static __device__ __forceinline__ void Write(void* y, int, int bytes, long long at, State value) {
    if (bytes == 4) {
      static_cast<unsigned*>(y)[at] = static_cast<unsigned>(value);
    } else if (bytes == 8) {
      static_cast<Word*>(y)[at] = value;
    } else if (bytes == 2) {
      static_cast<unsigned short*>(y)[at] = static_cast<unsigned short>(value);
    } else {
      static_cast<unsigned char*>(y)[at] = static_cast<unsigned char>(value);
    }
  }
  static __device__ __forceinline__ State Combine(const Scatter& s, State a, State b) {
    if (s.reduction == 1) return a + b;
    if (s.reduction == 2) return a * b;
    const bool less = s.number == 1 ? static_cast<long long>(b) < static_cast<long long>(a) : b < a;
    return less == (s.reduction == 4) ? b : a;
  }
};

}  // namespace scatters

}  // namespace

#endif  // MEMC_CUDA_KERNELS_SCATTERS_CUH_
