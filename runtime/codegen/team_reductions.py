# SPDX-License-Identifier: Apache-2.0
"""CUDA functions with which a team of threads reduces: what each thread has, to what all of them know.

Every thread of the team must call them; a team is a warp, or else the whole block. All threads combine the same two values in
the same order at each step, so that they get the same bits, in every run.
"""

from __future__ import annotations

TEAM_PRELUDE = """
#define MEMC_TEAM(NAME, TYPE, COMBINED) \\
  static __device__ __forceinline__ TYPE NAME(TYPE mine, int team) { \\
    __shared__ TYPE parts[32]; \\
    const int warps = team / 32, lane = memc_lane(); \\
    const auto combine = [lane](TYPE value, int step) -> TYPE { \\
      const TYPE other = __shfl_xor_sync(0xffffffffu, value, step); \\
      const TYPE a = lane & step ? other : value, b = lane & step ? value : other; \\
      return COMBINED; \\
    }; \\
    _Pragma("unroll") for (int step = 16; step > 0; step /= 2) mine = combine(mine, step); \\
    if (warps == 1) return mine; \\
    if (lane == 0) parts[threadIdx.x / 32] = mine; \\
    __syncthreads(); \\
    mine = parts[lane & (warps - 1)]; \\
    _Pragma("unroll") for (int step = 16; step > 0; step /= 2) { \\
      if (step < warps) mine = combine(mine, step); \\
    } \\
    __syncthreads(); \\
    return mine; \\
  }
MEMC_TEAM(memc_team_sum_float32, float, a + b)
MEMC_TEAM(memc_team_sum_float64, double, a + b)
MEMC_TEAM(memc_team_prod_float32, float, a * b)
MEMC_TEAM(memc_team_prod_float64, double, a * b)
MEMC_TEAM(memc_team_max_float32, float, memc_maximum_float32(a, b))
MEMC_TEAM(memc_team_max_float64, double, memc_maximum_float64(a, b))
MEMC_TEAM(memc_team_min_float32, float, memc_minimum_float32(a, b))
MEMC_TEAM(memc_team_min_float64, double, memc_minimum_float64(a, b))
"""
"""Goes behind `CUDA_PRELUDE`. Teams of more than a warp have a power of two of them, at most 32, and are alone in their block."""
