// SPDX-License-Identifier: Apache-2.0
// What cuda_on_host.h, which includes this, has of halves: two in a word.
#ifndef MEMC_TESTS_HALVES_ON_HOST_H_
#define MEMC_TESTS_HALVES_ON_HOST_H_

namespace {

float PowerOfTwo(float exponent) { return std::exp2(exponent); }

float UnpackF16(unsigned short bits) {
  _Float16 half;
  std::memcpy(&half, &bits, sizeof(half));
  return static_cast<float>(half);
}

float PackF16(float low, float high) {
  const std::array<_Float16, 2> halves{static_cast<_Float16>(low), static_cast<_Float16>(high)};
  unsigned bits;
  std::memcpy(&bits, halves.data(), sizeof(bits));
  return FloatOf(bits);
}
float PackBf16(float low, float high) {
  const auto rounded = [](float value) {
    const unsigned all = BitsOf(value);
    return std::isnan(value) ? 0x7fffU : (all + 0x7fffU + (all >> 16 & 1U)) >> 16;
  };
  return FloatOf(rounded(low) | rounded(high) << 16);
}

// Half `n` of a word of two.
unsigned short HalfOf(float word, int n) {
  return static_cast<unsigned short>(BitsOf(word) >> 16 * n & 0xffffU);
}

void LoadAcross(float (&to)[4], const float* row) {
  host::Warp& warp = host::OwnWarp();
  const int lane = host::cluster.current->thread % 32;
  warp.factors[lane].row = row;
  SyncWarp();
  const int column = lane / 4;
  for (int i = 0; i < 4; ++i) {
    const auto at = [&](int k) {
      return HalfOf(warp.factors[i * 8 + k].row[column / 2], column % 2);
    };
    to[i] = FloatOf(at(lane % 4 * 2) | static_cast<unsigned>(at(lane % 4 * 2 + 1)) << 16);
  }
  SyncWarp();
}

template <typename Unpack>
void MultiplyAddHalves(float (&sums)[4], const float (&a)[4], const float (&b)[2],
                       const Unpack& unpack) {
  host::Warp& warp = host::OwnWarp();
  const int lane = host::cluster.current->thread % 32;
  warp.factors[lane] = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}, nullptr};
  SyncWarp();
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4;
    const int column = lane % 4 * 2 + i % 2;
    for (int k = 0; k < 16; ++k) {
      const float left = warp.factors[row * 4 + k / 2 % 4].a[k / 8 * 2 + i / 2];
      const float right = warp.factors[column * 4 + k / 2 % 4].b[k / 8];
      sums[i] = fmaf(unpack(HalfOf(left, k % 2)), unpack(HalfOf(right, k % 2)), sums[i]);
    }
  }
  SyncWarp();
}
void MultiplyAddF16(float (&sums)[4], const float (&a)[4], const float (&b)[2]) {
  MultiplyAddHalves(sums, a, b, UnpackF16);
}
void MultiplyAddBf16(float (&sums)[4], const float (&a)[4], const float (&b)[2]) {
  MultiplyAddHalves(sums, a, b, [](unsigned short bits) { return FloatOf(unsigned{bits} << 16); });
}

}  // namespace

#endif  // MEMC_TESTS_HALVES_ON_HOST_H_
