// SPDX-License-Identifier: Apache-2.0
// What two elements become under a reduction, for all element types.
#ifndef MEMC_COMBINE_H_
#define MEMC_COMBINE_H_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <type_traits>

#include "kernels/scatters.h"

namespace memc {

struct HalfFloat {
  uint16_t bits;
};

struct BrainFloat {
  uint16_t bits;
};

inline float FloatOf(uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

template <typename T>
T Wide(T x) {
  return x;
}
inline float Wide(BrainFloat x) { return FloatOf(uint32_t{x.bits} << 16); }
inline float Wide(HalfFloat x) {
  const uint32_t sign = uint32_t{x.bits & 0x8000U} << 16;
  const uint32_t rest = x.bits & 0x7fffU;
  if (rest >= 0x7c00) return FloatOf(sign | 0x7f800000U | (rest & 0x3ffU) << 13);
  if (rest >= 0x400) return FloatOf(sign | ((rest << 13) + (112U << 23)));
  return std::copysign(static_cast<float>(rest) * 0x1p-24F, FloatOf(sign));
}

// The least or greatest of a type, for maxima and minima to begin with.
template <typename T>
T End(bool greatest) {
  if constexpr (std::is_same_v<T, HalfFloat>) {
    return {static_cast<uint16_t>(greatest ? 0x7c00 : 0xfc00)};
  } else if constexpr (std::is_same_v<T, BrainFloat>) {
    return {static_cast<uint16_t>(greatest ? 0x7f80 : 0xff80)};
  } else if constexpr (std::is_floating_point_v<T>) {
    return greatest ? std::numeric_limits<T>::infinity() : -std::numeric_limits<T>::infinity();
  } else {
    return greatest ? std::numeric_limits<T>::max() : std::numeric_limits<T>::min();
  }
}

template <typename U>
struct Put {
  using From = U;
  using To = U;
  static constexpr bool kPosition = false;
  static To Start() { return {}; }
  static To Of(To /*old*/, From next) { return next; }
};

template <typename T>
struct LastPosition {
  using From = char;  // Is not read.
  using To = T;
  static constexpr bool kPosition = true;
  static To Start() { return -1; }
};

// Integers wrap around.
template <typename U, typename T>
struct Sum {
  using From = U;
  using To = T;
  static constexpr bool kPosition = false;
  static To Start() { return 0; }
  static To Of(To old, From next) {
    if constexpr (std::is_integral_v<T>) return static_cast<T>(uint64_t{old} + next);
    return static_cast<T>(old + Wide(next));
  }
};

template <typename U, typename T>
struct Product {
  using From = U;
  using To = T;
  static constexpr bool kPosition = false;
  static To Start() { return 1; }
  static To Of(To old, From next) {
    if constexpr (std::is_integral_v<T>) return static_cast<T>(uint64_t{old} * next);
    return static_cast<T>(old * Wide(next));
  }
};

// A nan stays one.
template <typename T, bool kGreatest>
struct Extremum {
  using From = T;
  using To = T;
  static constexpr bool kPosition = false;
  static To Start() { return End<T>(!kGreatest); }
  static To Of(To old, From next) {
    const auto a = Wide(old);
    const auto b = Wide(next);
    return (kGreatest ? b > a : b < a) || b != b ? next : old;
  }
};

template <typename Fn>
void WithPosition(const Updates& u, const Fn& fn) {
  if (u.result_bytes == 4) return fn(LastPosition<int32_t>{});
  if (u.result_bytes == 8) return fn(LastPosition<int64_t>{});
  throw std::invalid_argument("expected positions of 4 or 8 bytes");
}

template <typename Fn>
void WithPut(const Updates& u, const Fn& fn) {
  if (u.bytes == 1) return fn(Put<uint8_t>{});
  if (u.bytes == 2) return fn(Put<uint16_t>{});
  if (u.bytes == 4) return fn(Put<uint32_t>{});
  return fn(Put<uint64_t>{});
}

template <template <typename, typename> class C, typename Fn>
void WithSum(const Updates& u, const Fn& fn) {
  if (u.number == Number::kBrainFloat) return fn(C<BrainFloat, float>{});
  if (u.number == Number::kFloat && u.bytes == 2) return fn(C<HalfFloat, float>{});
  if (u.number == Number::kFloat && u.bytes == 4) return fn(C<float, float>{});
  if (u.number == Number::kFloat) return fn(C<double, double>{});
  if (u.bytes == 1) return fn(C<uint8_t, uint8_t>{});
  if (u.bytes == 2) return fn(C<uint16_t, uint16_t>{});
  if (u.bytes == 4) return fn(C<uint32_t, uint32_t>{});
  return fn(C<uint64_t, uint64_t>{});
}

template <bool kGreatest, typename Fn>
void WithExtremum(const Updates& u, const Fn& fn) {
  if (u.number == Number::kBrainFloat) return fn(Extremum<BrainFloat, kGreatest>{});
  if (u.number == Number::kFloat) {
    if (u.bytes == 2) return fn(Extremum<HalfFloat, kGreatest>{});
    if (u.bytes == 4) return fn(Extremum<float, kGreatest>{});
    return fn(Extremum<double, kGreatest>{});
  }
  const bool is_signed = u.number == Number::kSigned;
  if (u.bytes == 1 && is_signed) return fn(Extremum<int8_t, kGreatest>{});
  if (u.bytes == 2 && is_signed) return fn(Extremum<int16_t, kGreatest>{});
  if (u.bytes == 4 && is_signed) return fn(Extremum<int32_t, kGreatest>{});
  if (is_signed) return fn(Extremum<int64_t, kGreatest>{});
  if (u.bytes == 1) return fn(Extremum<uint8_t, kGreatest>{});
  if (u.bytes == 2) return fn(Extremum<uint16_t, kGreatest>{});
  if (u.bytes == 4) return fn(Extremum<uint32_t, kGreatest>{});
  return fn(Extremum<uint64_t, kGreatest>{});
}

// Calls fn with the reduction of the updates' type.
template <typename Fn>
void WithReduction(const Updates& u, const Fn& fn) {
  if (u.positions) return WithPosition(u, fn);
  if (u.reduction == Reduction::kAdd) return WithSum<Sum>(u, fn);
  if (u.reduction == Reduction::kMultiply) return WithSum<Product>(u, fn);
  if (u.reduction == Reduction::kMost) return WithExtremum<true>(u, fn);
  if (u.reduction == Reduction::kLeast) return WithExtremum<false>(u, fn);
  return WithPut(u, fn);
}

}  // namespace memc

#endif  // MEMC_COMBINE_H_
