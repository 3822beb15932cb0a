// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_RECOMPUTE_RANDOM_H_
#define MEMC_RECOMPUTE_RANDOM_H_

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>

namespace memc {

// The numbers that the searches for recomputation, and for copies beside it, draw.
class RecomputeRandom {
 public:
  // `quick`: they come from a generator of which a search takes millions without notice.
  explicit RecomputeRandom(uint64_t seed, bool quick = false)
      : random_(seed), quick_(quick), state_(seed) {}

  // A number from 0 to below 1.
  double Uniform() { return static_cast<double>(Draw() >> 11) * 0x1.0p-53; }
  // A number from 1/e to e, most often about 1.
  double Factor() {
    if (!quick_) return std::exp(Uniform() + Uniform() - 1.0);
    const uint64_t drawn = Draw();
    return Exponential(drawn >> 32) * Exponential(drawn & 0xffffffff);
  }
  // A number from 0 to below n.
  size_t Below(size_t n) { return Draw() % n; }

 private:
  // e to the power of a number from -1/2 to 1/2, in steps of 1/256, by 32 bits.
  static double Exponential(uint64_t bits) {
    static const std::array<double, 257> table = [] {
      std::array<double, 257> powers{};
      for (int i = 0; i <= 256; ++i) powers[i] = std::exp(i / 256.0 - 0.5);
      return powers;
    }();
    return table[bits * 257 >> 32];
  }

  // Vigna's SplitMix64, where it is to be quick.
  uint64_t Draw() {
    if (!quick_) return random_();
    uint64_t mixed = state_ += 0x9e3779b97f4a7c15;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
    return mixed ^ (mixed >> 31);
  }

  std::mt19937_64 random_;
  bool quick_;
  uint64_t state_;
};

}  // namespace memc

#endif  // MEMC_RECOMPUTE_RANDOM_H_
