// SPDX-License-Identifier: Apache-2.0
// Floats of 16 bits as f32 and back, rounded to the nearest, ties to even; without branches, so
// that loops over them are vectorized.
#ifndef MEMC_HALF_FLOATS_H_
#define MEMC_HALF_FLOATS_H_

#include <cstdint>
#include <cstring>

namespace memc {

enum class FloatKind { kF32, kF16, kBf16 };

inline uint32_t BitsOf(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
}

inline float FloatOf(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}

inline float FromBf16(uint16_t x) { return FloatOf(static_cast<uint32_t>(x) << 16); }

inline uint16_t ToBf16(float x) {
  const uint32_t bits = BitsOf(x);
  const uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const bool is_nan = (bits & 0x7fffffffU) > 0x7f800000U;
  return static_cast<uint16_t>(is_nan ? (bits >> 16) | 0x40U : rounded);
}

inline float FromF16(uint16_t x) {
  const uint32_t magnitude = (x & 0x7fffU) << 13;
  const bool is_finite = (x & 0x7c00U) != 0x7c00U;
  // The exponents' biases differ by 112; a product makes numbers of subnormal ones, too.
  const uint32_t finite = BitsOf(FloatOf(magnitude) * 0x1p112F);
  const uint32_t found = is_finite ? finite : magnitude | 0x7f800000U;
  return FloatOf(found | ((x & 0x8000U) << 16));
}

inline uint16_t ToF16(float x) {
  const uint32_t bits = BitsOf(x);
  const uint32_t magnitude = bits & 0x7fffffffU;
  // A sum with 0.5 leaves the bits that a subnormal number has, rounded.
  const uint32_t tiny = BitsOf(FloatOf(magnitude) + 0.5F) - 0x3f000000U;
  const uint32_t normal = (magnitude - 0x38000000U + 0xfffU + ((magnitude >> 13) & 1U)) >> 13;
  const uint32_t huge = magnitude > 0x7f800000U ? 0x7e00U : 0x7c00U;
  uint32_t found = magnitude < 0x38800000U ? tiny : normal;
  found = magnitude >= 0x47800000U ? huge : found;
  return static_cast<uint16_t>(found | ((bits >> 16) & 0x8000U));
}

}  // namespace memc

#endif  // MEMC_HALF_FLOATS_H_
