# SPDX-License-Identifier: Apache-2.0
"""Which stretches run in slices, and in how many.

What a plan holds at its peak says where to look. The memory of a stretch in slices is planned on the stretch alone, which is
quick, and added to what the plan holds around it; the fewest slices that come close to the lowest peak are then tried in the whole
function, fused as it will be, and kept only if its peak is lower.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from memc.ir.core import Function, Op, Value
from memc.ir.cost_model import CostModel, moved_bytes
from memc.ir.module import Module
from memc.ir.op_queries import flops, slice_offsets
from memc.ir.ops.shared.casts import HALF
from memc.ir.ops.shared.op_def import main_op
from memc.ir.snapshot import Snapshot
from memc.passes.chunk.classes import Head, head_of, run_in_classes, slices_for
from memc.passes.chunk.slices import Bounds, bounds_of, moves_assignments, run_in_slices
from memc.passes.chunk.stretch import Graph, Stretch, find_stretch
from memc.passes.chunk.trial import Limits, Trial, alone

MOST_SLICES = 64
MOST_STRETCHES = 16
"""Of one function."""
MOST_SEEDS = 6
"""Values, largest first, that are looked at around one peak."""
WORTH = 0.01
"""The part of the peak that slices must save, and that more slices may leave."""

SLICE_BYTES = 32 * 2**20
"""Of a slice of classes, at most: it is read again while a GPU's cache may hold it."""
CACHE = 48 * 2**20
CACHED = 3.0
"""How much faster than memory the cache of a GPU is, for ops all of whose bytes it holds."""
TENSOR_CORES = 11
"""How much faster products of halves are than of f32 in the cost model of CUDA: about 500 TFLOP/s."""
HEAD_BYTES = 16 * 2**20
"""Of the value that a head is sliced for, at least."""
HEAD_OPS = 64
"""Of a head, at most."""
NOTED = 0.1
"""The part of the peak from which on it is said of a value why it stays whole."""


@dataclass(frozen=True)
class Chunked:
    """A stretch that runs in slices."""

    value: str
    """The name of a value of which there is one slice at a time."""
    nbytes: int
    """Of that value, as a whole."""
    ops: int
    slices: int
    positions: int
    """Of which each slice has a part."""
    of: Literal["rows", "classes"]
    """What these are."""
    peak: int
    """The lower bound of the function, in bytes, before and ..."""
    lowered: int
    """... with the slices."""
    added: float
    """Time in the cost model that the slices add to the stretch, as a share of it."""
    splits_sums: bool
    """Whether sums over the rows or classes are added up slice by slice, which rounds them otherwise; everything else has the same
    bits."""


@dataclass(frozen=True)
class Way:
    """How a stretch may run in slices."""

    of: Literal["rows", "classes"]
    positions: int
    """Rows or classes."""
    bounds: Sequence[Bounds]
    added: float
    run: Callable[[Module, Function], list[Op]]


@dataclass
class Chooser:
    """Puts stretches of one function in slices, as long as that lowers its peak."""

    module: Module
    function: Function
    limits: Limits
    costs: CostModel
    chosen: list[Chunked] = field(default_factory=list)
    written: set[Op] = field(default_factory=set)
    """Ops of slices, which are not sliced again."""
    missed: dict[str, str] = field(default_factory=dict)
    """Large values that stay whole, by name, and why."""

    def run(self) -> None:
        if not self._is_worth_a_look():
            return
        trial: Trial | None = Trial.of(self.module, self.function, self.limits)
        while trial is not None and len(self.chosen) < MOST_STRETCHES:
            trial = self._round(trial)

    def _is_worth_a_look(self) -> bool:
        """Whether a value is large enough to matter that could be sliced at all."""
        sizes = [v.type.nbytes for op in self.function.ops for v in op.results if v.type.rank > 1]
        heads = not self.limits.heads or any(op.name == "reduce_max" for op in self.function.ops)
        least = HEAD_BYTES if self.limits.heads else self.limits.alignment
        return heads and max(sizes, default=0) >= least

    def _round(self, trial: Trial) -> Trial | None:
        """One stretch, the first around the peak that helps. The plan with it; None if none does."""
        graph = Graph.of(self.function)
        seen = set[frozenset[Op]]()
        for seed in self._seeds(trial):
            stretch = find_stretch(graph, seed)
            if isinstance(stretch, str):
                self._miss(seed, stretch, trial)
                continue
            key = frozenset(stretch.forms)
            if key in seen:
                continue
            seen.add(key)
            found = self._tried(stretch, seed, trial)
            if isinstance(found, str):
                self._miss(seed, found, trial)
                continue
            self.missed.pop(seed.name, None)
            chunked, lowered = found
            self.chosen.append(chunked)
            return lowered
        return None

    def _miss(self, seed: Value, why: str, trial: Trial) -> None:
        """Note why a value stays whole that would be worth slices."""
        if seed.type.nbytes >= NOTED * trial.peak:
            self.missed.setdefault(seed.name, why)

    def _seeds(self, trial: Trial) -> list[Value]:
        """The largest results of ops that are live at the peak."""
        least = max(WORTH * trial.peak, HEAD_BYTES if self.limits.heads else 0)
        ops = [op for op in self.function.ops if op not in self.written and op.name != "constant"]
        own = [v for op in ops for v in op.results]
        live = trial.live_names()
        found = [v for v in own if v.name in live and v.type.nbytes >= least and v.type.rank > 1]
        return sorted(found, key=lambda v: -v.type.nbytes)[:MOST_SEEDS]

    def _tried(self, stretch: Stretch, seed: Value, trial: Trial) -> tuple[Chunked, Trial] | str:
        """The stretch in slices, in the function; why it stays as it is, if it does."""
        if self.limits.heads and not is_head(stretch):
            return "it is no head of a classifier in training"
        if moves_assignments(stretch):
            return "what it reads are states' new contents"
        ways = [] if self.limits.by == "classes" else [self._rows(stretch, trial)]
        head = "its rows are asked for" if self.limits.by == "rows" else head_of(stretch)
        if isinstance(head, Head):
            ways.append(self._classes(head))
        elif not ways:
            return head
        found: list[tuple[Chunked, Trial, Snapshot, list[Op]]] = []
        before = Snapshot.of(self.module, self.function)
        for way in ways:
            if isinstance(way, str):
                continue
            before.restore()
            written = way.run(self.module, self.function)
            after = Trial.of(self.module, self.function, self.limits)
            found.append(
                (
                    self._chunked(stretch, seed, way, trial, after),
                    after,
                    Snapshot.of(self.module, self.function),
                    written,
                )
            )
        before.restore()
        best = min(found, key=lambda each: each[1].peak, default=None)
        if best is None or best[1].peak > trial.peak * (1 - WORTH):
            why = next((way for way in ways if isinstance(way, str)), "")
            return why or f"in slices the peak would be {best[1].peak if best else 0} bytes instead of {trial.peak}"
        best[2].restore()
        self.written.update(best[3])
        return best[0], best[1]

    def _chunked(self, stretch: Stretch, seed: Value, way: Way, trial: Trial, after: Trial) -> Chunked:
        whole = seed if seed in stretch.inside else max(stretch.inside, key=lambda v: v.type.nbytes)
        counts = len(stretch.forms), len(way.bounds), way.positions
        splits = stretch.splits_sums or way.of == "classes"
        return Chunked(whole.name, whole.type.nbytes, *counts, way.of, trial.peak, after.peak, way.added, splits)

    def _rows(self, stretch: Stretch, trial: Trial) -> Way | str:
        """Slices of rows; why none."""
        slices = self._slices(stretch, trial)
        if isinstance(slices, str):
            return slices
        bounds = bounds_of(stretch.rows, slices, self._grain())
        run = partial(run_in_slices, stretch=stretch, bounds=bounds)
        return Way("rows", stretch.rows, bounds, self._added(stretch, slices), run)

    def _classes(self, head: Head) -> Way | str:
        """Slices of classes, as many as let a cache hold one; why none."""
        slices = self.limits.slices or slices_for(head, SLICE_BYTES)
        bounds = bounds_of(head.classes, slices, self._grain())
        run = partial(run_in_classes, head=head, bounds=bounds)
        whole, sliced = (self.seconds(alone(self.module, head.stretch, self.limits, b)) for b in ((), bounds))
        added = sliced / whole - 1
        if added > self.limits.slowdown and self.limits.by == "auto":
            return f"slices of classes would take {added:.0%} longer"
        return Way("classes", head.classes, bounds, max(0.0, added), run)

    def _grain(self) -> int:
        """Rows of the narrowest elements that matter, such as labels', which begin where the alignment allows."""
        return max(1, self.limits.alignment // 4)

    def _slices(self, stretch: Stretch, trial: Trial) -> int | str:
        """How many slices; why none."""
        if self.limits.slices is not None:
            return self.limits.slices
        whole = self._alone(stretch, 1)
        around, elsewhere = trial.around(stretch)
        found: list[tuple[int, int]] = []
        slices = 2
        while slices <= min(MOST_SLICES, stretch.rows):
            alone = self._alone(stretch, slices)
            if self.seconds(alone) > self.seconds(whole) * (1 + self.limits.slowdown):
                break
            found.append((slices, max(elsewhere, around - whole.peak + alone.peak)))
            if found[-1][1] <= elsewhere:
                break
            slices *= 2
        if not found:
            return f"slices would take more than {self.limits.slowdown:.0%} longer"
        least = min(peak for _, peak in found)
        if least > trial.peak * (1 - WORTH):
            return "its slices lower no peak"
        return next(n for n, peak in found if peak <= least * (1 + WORTH))

    def _alone(self, stretch: Stretch, slices: int) -> Trial:
        return alone(self.module, stretch, self.limits, bounds_of(stretch.rows, slices, self._grain()))

    def _added(self, stretch: Stretch, slices: int) -> float:
        """What slices add to the time of the stretch in the cost model, as a share."""
        whole = self.seconds(self._alone(stretch, 1))
        return max(0.0, self.seconds(self._alone(stretch, slices)) / whole - 1) if whole else 0.0

    def seconds(self, trial: Trial) -> float:
        """What the ops of a plan take in the cost model, where products of halves have a rate of their own. A weight, and a sum that
        a product adds to, take their bytes in each slice."""
        total = 0.0
        for op in trial.ops:
            parts = slice_offsets(op)  # Of a concat, whose operands are made in their places.
            if self.costs.cost(op) == 0 or (parts and None not in parts):
                continue
            device, main = self.costs.device, main_op(op)
            halves = main.name == "matmul" and main.operands[0].type.dtype in HALF
            rate = device.flops * (TENSOR_CORES if halves and self.module.target.kind == "cuda" else 1)
            moved = moved_bytes(op)
            cached = CACHED if self.module.target.kind == "cuda" and moved <= CACHE else 1.0
            total += max(flops(op) / rate, moved / (device.bandwidth * cached)) + device.start
        return total


def is_head(stretch: Stretch) -> bool:
    """Whether a stretch makes scores by a product, a loss of them by softmax, and a weight's gradient, and little more."""
    names = {op.name for op, form in stretch.forms.items() if form.result is not None}
    return {"matmul", "reduce_max", "exp"} <= names and stretch.splits_sums and len(stretch.forms) <= HEAD_OPS
