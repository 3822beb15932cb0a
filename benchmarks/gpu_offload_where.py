# SPDX-License-Identifier: Apache-2.0
"""Where the time of steps with copies goes: steps without a graph, and such that copy next to nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpu_artifacts import draw_feeds

PLAIN = "plain"

FEW = 64
"""Bytes of a copy that takes no time."""


def other_step(whole: Path, below: dict[str, Any], cuda_graph: bool) -> Callable[[], object]:
    """A step of a plan in a session of its own, which has run some times."""
    from memc.runtime.execute.executable import Executable
    from memc.runtime.execute.load import load

    step: Any = load(whole, cuda_graph=cuda_graph)
    on_device = step.placed_inputs(draw_feeds(step.inputs, below))
    for _ in range(3):
        Executable.__call__(step, **on_device)
    return lambda: Executable.__call__(step, **on_device)


def other_steps(whole: Path, facts: dict[str, Any]) -> tuple[dict[str, Callable[[], object]], str]:
    """Steps of a plan without a graph, and with small copies, where it has copies; and what went wrong."""
    found = {}
    try:
        found["eager"] = other_step(whole, facts["below"], cuda_graph=False)
        if facts["copies"]:
            with small_copies():
                found["small"] = other_step(whole, facts["below"], cuda_graph=True)
    except Exception as error:  # The other figures are worth more.
        return found, f"{type(error).__name__}: {error}"[:300]
    return found, ""


@contextmanager
def small_copies() -> Iterator[None]:
    """Programs that are loaded meanwhile copy `FEW` bytes of each value."""
    import tvm_ffi

    from memc.runtime.artifact.manifest import SLAB_START

    start = tvm_ffi.get_global_func(SLAB_START)

    def start_few(slab: Any, tensor: Any, *numbers: int) -> None:
        start(slab, tensor._create_view((FEW,), "uint8"), *numbers)

    tvm_ffi.register_global_func(SLAB_START, start_few, override=True)
    try:
        yield
    finally:
        tvm_ffi.register_global_func(SLAB_START, start, override=True)


def where(rows: list[dict[str, Any]]) -> Iterator[str]:
    """The lines of the table of `--where`, in milliseconds."""
    yield f"| step | plan | arena % | copies | graph | with {FEW} bytes a copy | without a graph | predicted |"
    yield "| --- | --- |" + " --: |" * 6
    for row in rows:
        plans = row.get("plans", {}).values()
        for plan in plans:
            plain = next(p for p in plans if p["way"] == PLAIN)
            times = ["" if key not in plan else f"{plan[key]:.2f}" for key in ("ms", "small ms", "eager ms")]
            predicted = plain["ms"] * (1 + plan["added"] / 100)
            cells = [row["case"], plan["way"], f"{100 * plan['arena'] / plain['arena']:.1f}", str(plan["copies"])]
            yield "| " + " | ".join([*cells, *times, f"{predicted:.2f}"]) + " |"


@contextmanager
def environment(name: str, value: str) -> Iterator[None]:
    """A variable of the process's environment, as the native library sees it."""
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]
