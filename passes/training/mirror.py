# SPDX-License-Identifier: Apache-2.0
"""mirror: which results of the forward pass are dropped and recomputed for the gradients (Chen et al. 2016).

Sets `plan {mirror = k}` on ops; `build-gradient` honours it (their Algorithm 2). Three policies:

    cheap       section 4.2: results that cost little to recompute are dropped
    min-cut     the cheapest of all choices of what to keep, of results that cost little to recompute: `min_cut.py`
    sublinear   Algorithm 3: the function is cut into stages, and only what crosses a cut is kept. The approximate
                budget B of a stage is searched as in their appendix, by the exact memory of each plan

Algorithm 3 cuts after a single op of a given candidate set. Here a cut is a place between two ops, candidates are the
places that fewest bytes cross, and all values that cross one are kept: so residual and recurrent networks need no hints.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar, Literal

from memc.ir.build import IRBuilder
from memc.ir.checked_options import Range
from memc.ir.core import Function, Op, Role, Value
from memc.ir.cost_model import DEVICES
from memc.ir.errors import UsageError
from memc.ir.liveness import ALIGNMENT
from memc.ir.module import Module
from memc.ir.op_queries import flops, has, view_offset
from memc.ir.ops.shared.op_def import Trait
from memc.ir.sizes import align
from memc.ir.snapshot import Snapshot, is_raw
from memc.passes.base import Pass
from memc.passes.placement.alias_plan import planned_peak
from memc.passes.rewrite.canonicalize import remove_dead
from memc.passes.training.backward_pass import append_gradients, set_mirrors
from memc.passes.training.min_cut import CHEAP, min_cut_counts, read_by

Policy = Literal["none", "cheap", "min-cut", "sublinear"]

POLICIES: tuple[Policy, ...] = ("none", "cheap", "min-cut", "sublinear")

Depth = Annotated[int, Range(least=1, most=64)]

GRID = 6
"""Budgets tried around the first guess, in [B / sqrt 2, sqrt 2 B]."""


def cheap_counts(function: Function) -> dict[Op, int]:
    """1 for every op that costs little more than reading its operands, 0 for the others. Views are as what they look into: one of
    what was dropped would keep it."""
    counts: dict[Op, int] = {}
    for op in function.ops:
        if view_offset(op) is not None:
            maker = op.operands[0].op
            counts[op] = 0 if maker is None else counts[maker]
            continue
        light = op.name in CHEAP or has(op, Trait.CHEAP) or has(op, Trait.ELEMENTWISE)
        counts[op] = int(light and op.name not in ("constant", "assign"))
    return counts


@dataclass(frozen=True)
class Stages:
    """A plan of Algorithm 3."""

    kept: int
    """x: bytes of what crosses the cuts."""
    largest: int
    """y: bytes of the results of the largest stage."""
    cuts: tuple[int, ...]
    """Positions (numbers of ops) before which a stage begins, without 0."""


@dataclass(frozen=True)
class _Forward:
    """The forward pass as Algorithm 3 sees it."""

    ops: Sequence[Op]
    sizes: Sequence[int]
    """Bytes of each op's results, views counting nothing."""
    crossing: Sequence[int]
    """Bytes of the values that ops before position i make and ops from there on read."""
    candidates: frozenset[int]
    last: Mapping[Value, int]
    """Index of the op that reads a value last."""

    @staticmethod
    def of(function: Function, window: int, alignment: int) -> _Forward:
        ops = function.ops
        last: dict[Value, int] = {}
        for index, op in enumerate(ops):
            last.update((v, index) for v in op.operands)
        change = [0] * (len(ops) + 2)
        sizes = []
        for index, op in enumerate(ops):
            size = 0 if op.name == "constant" else sum(align(v.type.nbytes, alignment) for v in op.results)
            sizes.append(0 if view_offset(op) is not None else size)
            for value in op.results:
                if value in last and op.name != "constant":
                    change[index + 1] += align(value.type.nbytes, alignment)
                    change[last[value] + 1] -= align(value.type.nbytes, alignment)
        crossing, total = [], 0
        for delta in change[: len(ops) + 1]:
            total += delta
            crossing.append(total)
        lows = frozenset(
            i for i in range(1, len(ops)) if crossing[i] <= min(crossing[max(1, i - window) : i + window + 1])
        )
        return _Forward(ops, sizes, crossing, lows, last)

    def stages(self, budget: float, start: int = 0, stop: int | None = None) -> Stages:
        """Algorithm 3 on ops start..stop: a cut at the first candidate after more than `budget` bytes of results."""
        stop = len(self.ops) if stop is None else stop
        kept = largest = size = 0
        cuts = []
        for index in range(start, stop):
            if index > start and index in self.candidates and size > budget:
                kept += self.crossing[index]
                largest = max(largest, size)
                cuts.append(index)
                size = 0
            size += self.sizes[index]
        return Stages(kept, max(largest, size), tuple(cuts))

    def guess(self, start: int = 0, stop: int | None = None) -> float:
        """The budget that the search begins with: sqrt(x y) of the plan with as many cuts as there can be."""
        finest = self.stages(0, start, stop)
        return math.sqrt(finest.kept * finest.largest)

    def counts(self, cuts: Sequence[int], depth: int, start: int = 0, stop: int | None = None) -> dict[Op, int]:
        """Mirror counts that keep what crosses `cuts`, and with `depth` > 1 cut each stage again (section 4.4)."""
        stop = len(self.ops) if stop is None else stop
        bounds = [start, *cuts, stop]
        counts: dict[Op, int] = {}
        for begin, end in zip(bounds, bounds[1:]):
            inner: Mapping[Op, int] = {}
            if depth > 1 and end - begin > 2:
                inner_cuts = self.stages(self.guess(begin, end), begin, end).cuts
                inner = self.counts(inner_cuts, depth - 1, begin, end) if inner_cuts else {}
            for op in self.ops[begin:end]:
                crosses = any(self.last.get(v, -1) >= end for v in op.results)
                counts[op] = 0 if crosses or op.name == "constant" else 1 + inner.get(op, 0)
        return counts


def sublinear_counts(
    function: Function, memory: Callable[[Mapping[Op, int]], int], depth: int = 1, alignment: int = ALIGNMENT
) -> dict[Op, int]:
    """The mirror counts of the best plan met in the search over B; `memory` gives the exact bytes of a plan. Sizes are
    rounded up to `alignment` bytes."""
    if not function.ops:
        return {}
    forward = _Forward.of(function, max(2, math.isqrt(len(function.ops)) // 4), alignment)
    guess = forward.guess()
    spread = [2 ** (i / (GRID - 1) - 0.5) for i in range(GRID)]
    plans = {forward.stages(guess * factor).cuts for factor in (1.0, *spread)}
    candidates = [forward.counts(cuts, depth) for cuts in sorted(plans)]
    return min([dict.fromkeys(function.ops, 0), *candidates], key=memory)


def training_peak(module: Module, function: Function, counts: Mapping[Op, int]) -> int:
    """Largest live set, in bytes, of the forward and backward pass with these mirror counts.

    By the planner itself, for all float weights and the first result as loss, or its mean square if it has several
    elements. Leaves the function as it was.
    """
    with _tried(module, function, counts):
        return planned_peak(function, module.target.alignment)


@contextmanager
def _tried(module: Module, function: Function, counts: Mapping[Op, int]) -> Iterator[None]:
    """The forward and backward pass, as `training_peak` sees them, in the place of the function."""
    before = Snapshot.of(module, function)
    try:
        set_mirrors(counts)
        b = IRBuilder(module, function, function.ops)
        result = function.returns[0]
        loss = result
        if result.type.elements != 1:
            every = tuple(range(result.type.rank))
            loss = b.op("reduce_mean", [b.op("mul", [result, result])], axes=every, keepdims=False)
        weights = [p for p in function.params if p.role is not Role.INPUT and p.type.dtype.is_float]
        gradients = append_gradients(module, function, loss, weights, list(function.ops), b.names)
        function.returns = [loss, *gradients.values()]
        remove_dead(module, function)
        yield
    finally:
        before.restore()


def cheapest_counts(module: Module, function: Function) -> dict[Op, int]:
    """The mirror counts of `min-cut`, beside those that ops have already; only the latter if the others do not lower the peak."""
    forward = set(function.ops)
    present = {op: op.plan.mirror for op in function.ops}
    with _tried(module, function, present):
        needed = read_by(function.ops, forward)
        peak = planned_peak(function, module.target.alignment)
    found = min_cut_counts(function, needed, DEVICES[module.target.kind])
    counts = {op: max(count, present[op]) for op, count in found.items()}
    return counts if training_peak(module, function, counts) < peak else present


def added_flops(counts: Mapping[Op, int]) -> int:
    """Floating-point operations that recomputation adds, if every copy is needed."""
    return sum(count * flops(op) for op, count in counts.items())


@dataclass(frozen=True)
class Mirror(Pass):
    """Choose which forward results to drop and recompute; before build-gradient."""

    name: ClassVar[str] = "mirror"
    policy: Policy = "sublinear"
    depth: Depth = 1
    """The depth of the recursion, for `sublinear`: how often stages are cut again, and how often values may be recomputed."""

    def apply(self, module: Module) -> None:
        function = module.main
        if not is_raw(function):
            raise UsageError(
                "mirror: expected a function before any memory decision, got aliases, placements or copies"
            )
        if self.policy == "none":
            counts = dict.fromkeys(function.ops, 0)
        elif self.policy == "cheap":
            counts = cheap_counts(function)
        elif self.policy == "min-cut":
            counts = cheapest_counts(module, function)
        else:
            memory = partial(training_peak, module, function)
            counts = sublinear_counts(function, memory, self.depth, module.target.alignment)
        set_mirrors(counts)
