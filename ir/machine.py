# SPDX-License-Identifier: Apache-2.0
"""What this machine has: the names of its processor and GPUs, and its memory, as the system tells without any library."""

from __future__ import annotations

from pathlib import Path

from .target import Kind

PROC = Path("/proc")


def device_names(kind: Kind) -> tuple[str, ...]:
    """The names of this machine's devices that run the kernels of a kind of target; empty where the system does not say."""
    if kind == "llvm":
        return _facts("model name", PROC / "cpuinfo")[:1]
    found = sorted((PROC / "driver/nvidia/gpus").glob("*/information"))
    return tuple(dict.fromkeys(name for path in found for name in _facts("Model", path)))


def memory_bytes() -> int | None:
    """Bytes of this machine's memory; None where the system does not say."""
    found = _facts("MemTotal", PROC / "meminfo")
    return int(found[0].split()[0]) * 1024 if found else None


def _facts(key: str, path: Path) -> tuple[str, ...]:
    """What the lines `key: fact` of a file say."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ()
    parts = (line.partition(":") for line in lines)
    return tuple(" ".join(fact.split()) for name, _, fact in parts if name.strip() == key and fact.strip())
