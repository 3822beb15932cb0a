// SPDX-License-Identifier: Apache-2.0
// The few entry points of cuDNN, cuBLASLt, the CUDA driver and its runtime that memc calls, on host
// memory and by the plainest loops, so that tests can check descriptors, layouts and errors without
// a GPU. FAKE_CUDA_FAILS names an entry point that returns an error, or NAME:N one that does so at
// its Nth call since fake_count_anew(). Calls that compute are counted in `calls`, objects that are
// not destroyed in `fake_objects`.
#ifndef MEMC_FAKE_CUDA_H_
#define MEMC_FAKE_CUDA_H_

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace fake {

constexpr int kFails = 4000;

inline bool capturing = false;

inline int made_calls = 0;  // Of the entry point that FAKE_CUDA_FAILS names with a number.

inline bool Fails(const char* name) {
  const char* chosen = std::getenv("FAKE_CUDA_FAILS");
  if (chosen == nullptr) return false;
  const char* number = std::strchr(chosen, ':');
  if (number == nullptr) return std::strcmp(chosen, name) == 0;
  const auto length = static_cast<size_t>(number - chosen);
  if (std::strlen(name) != length || std::strncmp(chosen, name, length) != 0) return false;
  return ++made_calls == std::atoi(number + 1);
}

inline int objects = 0;

// What an entry point that makes an object does, and one that destroys it.
template <typename T, typename... Values>
int Make(const char* name, void** to, Values&&... values) {
  if (Fails(name)) return kFails;
  *to = new T{std::forward<Values>(values)...};
  ++objects;
  return 0;
}

template <typename T>
int End(void* object) {
  delete static_cast<T*>(object);
  --objects;
  return 0;
}

template <typename T>
T& As(void* handle) {
  return *static_cast<T*>(handle);
}

constexpr int kBf16 = 1000;  // A code of our own for the two libraries' ones.

// Element i of f32, f16 (2 in both libraries) or bf16.
inline float Get(const void* data, int type, size_t i) {
  if (type == 0) return static_cast<const float*>(data)[i];
  if (type == 2) return static_cast<float>(static_cast<const _Float16*>(data)[i]);
  const uint32_t bits = static_cast<uint32_t>(static_cast<const uint16_t*>(data)[i]) << 16;
  float value = 0;
  std::memcpy(&value, &bits, 4);
  return value;
}

inline void Set(void* data, int type, size_t i, float value) {
  if (type == 0) {
    static_cast<float*>(data)[i] = value;
  } else if (type == 2) {
    static_cast<_Float16*>(data)[i] = static_cast<_Float16>(value);
  } else {
    uint32_t bits = 0;
    std::memcpy(&bits, &value, 4);
    static_cast<uint16_t*>(data)[i] =
        static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
  }
}

}  // namespace fake

extern "C" {

extern int calls;
extern int used_math;     // Bits of those of gradients of weights.
extern int used_compute;  // Of the last product.

}  // extern "C"

#endif  // MEMC_FAKE_CUDA_H_
