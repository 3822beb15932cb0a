# SPDX-License-Identifier: Apache-2.0
"""The work of passes and verification grows with the size of a graph, not with its square. Calls are counted, not seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest

from memc.ir.interval_index import IntervalIndex
from memc.ir.module import Module
from memc.ir.text.parser import parse
from memc.ir.verify.kernel_races import check_kernel_races
from memc.ir.verify.memory_plan import check_plan
from memc.passes.manager import PassManager
from memc.passes.pipelines import pipeline

SIZE = 120

MOST = 2.5
"""How often more work may be done for twice the size: a logarithm more than twice."""


def chain(size: int) -> str:
    """Each op takes the place of the one before: all are aliases of one root. Products keep them from being fused."""
    lines = ["  %t0 = exp(%x) : f32[4,4]"]
    lines += [f"  %t{n + 1} = softmax(%t{n}) {{axis = 1}} : f32[4,4]" for n in range(size)]
    return "func @main(%x: f32[4,4] {role = input}) -> f32[4,4] {\n" + "\n".join(lines) + f"\n  return %t{size}\n}}"


def split(size: int) -> str:
    """Parts of one tensor, each changed, joined in the other order."""
    lines = [
        f"func @main(%x: f32[{size},16] {{role = input}}) -> f32[{size},16] {{",
        f"  %y = exp(%x) : f32[{size},16]",
    ]
    for n in range(size):
        at = f"starts = [{n}, 0], stops = [{n + 1}, 16], steps = [1, 1]"
        lines.append(f"  %s{n} = slice(%y) {{{at}}} : f32[1,16]")
        lines.append(f"  %e{n} = softmax(%s{n}) {{axis = 1}} : f32[1,16]")
    parts = ", ".join(f"%e{n}" for n in reversed(range(size)))
    return "\n".join([*lines, f"  %z = concat({parts}) {{axis = 0}} : f32[{size},16]", "  return %z", "}"])


def gaps(size: int) -> str:
    """Rows of half an alignment, every second of them in its place in a concat, the others copied."""
    rows = ", ".join(f"%e{n}" for n in range(size))
    ops, shape = [], f"f32[{size},8]"
    for n in range(size):
        place = f"alias %z[{32 * n}]" if n % 2 == 0 else f"@arena[{64 * n}]"
        ops.append(f"  %e{n} = exp(%x) : f32[1,8] {place}")
    ops += [f"  %z = concat({rows}) {{axis = 0}} : {shape}", "  return %z", "}"]
    return f"func @main(%x: f32[1,8] {{role = input}}) -> {shape} {{\n" + "\n".join(ops)


def lanes(size: int) -> str:
    """A multi-tensor kernel."""
    ops = [f"  %a{n} = exp(%x) plan {{joint = 0, lane = {n}}} : f32[16] @arena[{64 * n}]" for n in range(size)]
    ops += ["  %z = neg(%x) : f32[16]", "  return %z", "}"]
    return "func @main(%x: f32[16] {role = input}) -> f32[16] {\n" + "\n".join(ops)


def calls(text: str) -> int:
    """Calls of functions that the passes of -O2 and the verification between them make."""
    return calls_of(PassManager.parse(pipeline(2)).run, parse(text))


def calls_of(work: Callable[[Module], object], module: Module) -> int:
    """Calls of functions, Python's and C's."""
    count = 0

    def counted(_frame: object, event: str, _what: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counted)
    try:
        work(module)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("graph", [chain, split])
def test_calls_grow_with_the_size(graph: Callable[[int], str]) -> None:
    calls(graph(8))  # What is done once.
    assert calls(graph(2 * SIZE)) < MOST * calls(graph(SIZE))


@pytest.mark.parametrize(("graph", "check"), [(gaps, check_plan), (lanes, check_plan), (lanes, check_kernel_races)])
def test_calls_of_checks_grow_with_the_size(graph: Callable[[int], str], check: Callable[[Module], object]) -> None:
    calls_of(check, parse(graph(8)))
    assert calls_of(check, parse(graph(2 * SIZE))) < MOST * calls_of(check, parse(graph(SIZE)))


@pytest.mark.parametrize("graph", [chain, split])
def test_values_that_are_met_grow_with_the_size(graph: Callable[[int], str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a root that many values share, each write meets few."""
    near = IntervalIndex.near
    met = 0

    def counted(index: IntervalIndex[object], low: int, high: int) -> Iterator[int]:
        nonlocal met
        for number in near(index, low, high):
            met += 1
            yield number

    monkeypatch.setattr(IntervalIndex, "near", counted)
    found = []
    for size in (SIZE, 2 * SIZE):
        met = 0
        PassManager.parse(pipeline(2)).run(parse(graph(size)))
        found.append(met)
    assert 0 < found[1] < MOST * found[0]
