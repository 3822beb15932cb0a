# SPDX-License-Identifier: Apache-2.0
"""Source of the device functions that generated CUDA kernels call."""

CUDA_PRELUDE = """
#define MEMC_EXTREMUM(NAME, TYPE, BEFORE) \\
  static __device__ __forceinline__ TYPE NAME(TYPE a, TYPE b) { return a BEFORE b || a != a ? a : b; }
MEMC_EXTREMUM(memc_minimum_float32, float, <)
MEMC_EXTREMUM(memc_minimum_float64, double, <)
MEMC_EXTREMUM(memc_maximum_float32, float, >)
MEMC_EXTREMUM(memc_maximum_float64, double, >)
template <typename T> static __device__ __forceinline__ T memc_same(T a) { return a; }
#define MEMC_INTEGERS(NAME, TYPE, BITS) \\
  static __device__ __forceinline__ TYPE memc_same_##NAME(TYPE a) { return a; } \\
  static __device__ __forceinline__ TYPE memc_add_##NAME(TYPE a, TYPE b) { return (TYPE)((BITS)a + (BITS)b); } \\
  static __device__ __forceinline__ TYPE memc_sub_##NAME(TYPE a, TYPE b) { return (TYPE)((BITS)a - (BITS)b); } \\
  static __device__ __forceinline__ TYPE memc_mul_##NAME(TYPE a, TYPE b) { return (TYPE)((BITS)a * (BITS)b); }
#ifdef __INT64_TYPE__
typedef __INT64_TYPE__ memc_int64;  // As int64_t, which is no long long on Linux: max takes two of one type.
typedef __UINT64_TYPE__ memc_uint64;
#else
typedef long long memc_int64;
typedef unsigned long long memc_uint64;
#endif
MEMC_INTEGERS(int8, signed char, unsigned)
MEMC_INTEGERS(int16, short, unsigned)
MEMC_INTEGERS(int32, int, unsigned)
MEMC_INTEGERS(int64, memc_int64, memc_uint64)
MEMC_INTEGERS(uint8, unsigned char, unsigned)
MEMC_INTEGERS(uint16, unsigned short, unsigned)
MEMC_INTEGERS(uint32, unsigned, unsigned)
MEMC_INTEGERS(uint64, memc_uint64, memc_uint64)
static __device__ __forceinline__ int memc_lane() {
  int lane;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}
static __device__ __forceinline__ int memc_lane_of(int block, const int* starts, int lanes) {
  int lane = -1;
  for (int first = 0; first < lanes; first += 32) {
    const int mine = first + memc_lane();
    lane += __popc(__ballot_sync(0xffffffffu, mine < lanes && starts[mine] <= block));
  }
  return lane;
}
#define MEMC_LANE(BLOCK, ...) \\
  [](int block) { \\
    static const int starts[] = {__VA_ARGS__}; \\
    return memc_lane_of(block, starts, sizeof(starts) / sizeof(int)); \\
  }(BLOCK)
#define MEMC_ENTRY(TYPE, LANE, ...) \\
  [](int lane) { \\
    static const TYPE table[] = {__VA_ARGS__}; \\
    return table[lane]; \\
  }(LANE)
#define MEMC_ENTRY_INT32(LANE, ...) MEMC_ENTRY(int, LANE, __VA_ARGS__)
#define MEMC_ENTRY_INT64(LANE, ...) MEMC_ENTRY(long long, LANE, __VA_ARGS__)
template <typename I, typename T>
static __device__ __forceinline__ T memc_sum_of_hits(
    const I* indices, long long places, long long extent, long long row, const T* values, long long between) {
  const unsigned team = __match_any_sync(__activemask(), row);
  const int members = __popc(team), lane = memc_lane();
  const int mine = __popc(team & ((1u << lane) - 1));
  const bool at_end = row == 0 || row == extent - 1;
  T sum = 0;
  for (long long begin = 0; begin < places; begin += 4 * members) {
    bool hit[4], any = false;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const long long place = begin + i * members + mine;
      const long long index = place < places ? indices[place] : extent;
      const bool beyond = at_end && (row == 0 ? index < -extent : index >= extent);
      hit[i] = place < places && (index == row || index == row - extent || beyond);
      any = any || hit[i];
    }
    if (!__any_sync(team, any)) continue;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      for (unsigned hits = __ballot_sync(team, hit[i]); hits != 0;) {
        T found[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int first = __popc(team & ((hits & -hits) - 1));
          found[j] = hits != 0 ? values[(begin + i * members + first) * between] : T(0);
          hits &= hits - 1;
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) sum += found[j];
      }
    }
  }
  return sum;
}
"""
"""Functions that CUDA kernels call. Extrema: b is NaN or not before a where neither condition holds. `memc_same`: what TVM does
not look into; `memc_same_int64` and the like: see `integers.sealed`. `memc_add_int64` and the like wrap. `memc_sum_of_hits`: see `Builder.sum_of_hits`; threads of a warp that want the same row, whichever run
together, look at as many indices at once and tell each other where it is. `MEMC_LANE`, `MEMC_ENTRY`: see `lanes.lane_of` and `lanes.entry`."""
