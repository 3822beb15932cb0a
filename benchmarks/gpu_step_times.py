# SPDX-License-Identifier: Apache-2.0
"""Times of steps that are taken in turn, and of the copies in one."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def interleaved(
    steps: dict[str, Callable[[], object]], sync: Callable[[], None], count: int, warm: int = 5
) -> dict[str, list[float]]:
    """Milliseconds of `count` steps of each plan, taken in turn."""
    found: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(warm + count):
        for name, step in steps.items():
            sync()
            start = time.perf_counter()
            step()
            sync()
            if number >= warm:
                found[name].append(1e3 * (time.perf_counter() - start))
    return found


def copied_times(step: Callable[[], object], sync: Callable[[], None], facts: dict[str, Any]) -> dict[str, Any]:
    """Rates of a step's copies in GB/s, and in percent of their time that during which kernels run; nothing without PyTorch."""
    try:
        intervals = traced(step, sync)
    except Exception as error:  # Of a version that has other names.
        return {"trace": f"{type(error).__name__}: {error}"[:200]}
    kernels = merged((a, b) for name, a, b in intervals if not name.startswith(("Mem", "cu")))
    row: dict[str, Any] = {}
    covered = total = 0.0
    for way, kind in (("out", "DtoH"), ("in", "HtoD")):
        large = [(name, a, b) for name, a, b in intervals if kind in name and b - a > 2]
        busy = sum(b - a for _, a, b in large)
        row[f"{way} GB/s"] = facts[way] / busy / 1e3 if busy else None
        row[f"{way} pageable"] = sum("Pageable" in name for name, _, _ in large)
        total += busy
        covered += sum(overlap(a, b, kernels) for _, a, b in large)
    return row | {"beside": 100 * covered / total if total else None}


def traced(step: Callable[[], object], sync: Callable[[], None]) -> list[tuple[str, float, float]]:
    """Kernels and copies of a step, each with its name and when it began and ended, in microseconds. Raises ImportError without
    PyTorch."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.init()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        step()
        sync()
        torch.cuda.synchronize()
    return [(e.name, e.time_range.start, e.time_range.end) for e in seen.events() if e.time_range.end > 0]


def write_traces(folder: Path, model: str, steps: dict[str, Callable[[], object]], sync: Callable[[], None]) -> None:
    """A file of each step's kernels and copies, with when they began and ended, in microseconds."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, step in steps.items():
        found = sorted(traced(step, sync), key=lambda item: item[1])
        (folder / f"{model}.{name.replace(':', '.')}.json").write_text(json.dumps(found))


def merged(intervals: Any) -> list[tuple[float, float]]:
    """Intervals that overlap made one, in their order."""
    found: list[tuple[float, float]] = []
    for a, b in sorted(intervals):
        if found and a <= found[-1][1]:
            found[-1] = (found[-1][0], max(b, found[-1][1]))
        else:
            found.append((a, b))
    return found


def overlap(a: float, b: float, intervals: list[tuple[float, float]]) -> float:
    """How much of an interval others cover."""
    return sum(max(0.0, min(b, d) - max(a, c)) for c, d in intervals if c < b and d > a)
