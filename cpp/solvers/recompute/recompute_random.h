// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_RECOMPUTE_RANDOM_H_
#define MEMC_RECOMPUTE_RANDOM_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>

namespace memc {

// The numbers that the search for recomputation draws.
class RecomputeRandom {
 public:
  explicit RecomputeRandom(uint64_t seed) : random_(seed) {}

  // A number from 0 to below 1.
  double Uniform() { return static_cast<double>(random_() >> 11) * 0x1.0p-53; }
  // A number from 1/e to e, most often about 1.
  double Factor() { return std::exp(Uniform() + Uniform() - 1.0); }
  // A number from 0 to below n.
  size_t Below(size_t n) { return random_() % n; }

 private:
  std::mt19937_64 random_;
};

}  // namespace memc

#endif  // MEMC_RECOMPUTE_RANDOM_H_
