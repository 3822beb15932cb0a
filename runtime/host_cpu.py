# SPDX-License-Identifier: Apache-2.0
"""The CPU of this machine: what it has, and what code needs of it."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable

X86_LEVELS: dict[str, frozenset[str]] = {
    "x86-64-v2": frozenset("cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3".split()),
    "x86-64-v3": frozenset("avx avx2 bmi1 bmi2 f16c fma abm movbe xsave".split()),
    "x86-64-v4": frozenset("avx512f avx512bw avx512cd avx512dq avx512vl".split()),
}
"""Flags of /proc/cpuinfo that each level of the x86-64 psABI adds to the one before."""

CODE_FLAGS: dict[str, str] = {
    **{name: name for name in "avx avx2 f16c fma fma4 xop tbm movbe popcnt ssse3 sse4a adx gfni".split()},
    **{f"avx512{part}": f"avx512{part}" for part in "f bw cd dq vl ifma vbmi".split()},
    **{f"avx512{part}": f"avx512_{part}" for part in "bf16 bitalg fp16 vbmi2 vnni vpopcntdq".split()},
    **{"sse3": "pni", "sse4.1": "sse4_1", "sse4.2": "sse4_2", "bmi": "bmi1", "bmi2": "bmi2", "lzcnt": "abm"},
    **{"avxvnni": "avx_vnni", "avxifma": "avx_ifma", "avxvnniint8": "avx_vnni_int8"},
}
"""Flags of /proc/cpuinfo by LLVM's names of the features, for those whose instructions LLVM chooses by itself."""


def cpu_flags() -> frozenset[str]:
    """The flags of this machine's CPU as Linux lists them; empty where that is unknown."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("flags"):
                    return frozenset(line.split(":", 1)[1].split())
    except OSError:
        pass
    return frozenset()


def native_cpu() -> str:
    """The highest level of the x86-64 psABI this machine has; `generic` on other machines."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return "generic"
    flags, best = cpu_flags(), "x86-64"
    for level, needed in X86_LEVELS.items():
        if not needed <= flags:
            break
        best = level
    return best


def missing_flags(cpu: str, used: Iterable[str] = ()) -> list[str]:
    """CPU flags that code for `cpu`, or code that may use `used`, needs and this machine lacks. Empty too if the machine's are
    unknown."""
    flags = cpu_flags()
    if not flags:
        return []
    needed = set(used)
    for level, added in X86_LEVELS.items() if cpu in X86_LEVELS else ():
        needed |= added
        if level == cpu:
            break
    return sorted(needed - flags)


def platform_name() -> str:
    """Operating system and CPU family, for example `linux-x86_64`: artifacts run only on the same."""
    return f"{os.uname().sysname.lower()}-{platform.machine()}"
