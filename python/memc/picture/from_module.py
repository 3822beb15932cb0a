# SPDX-License-Identifier: Apache-2.0
"""The picture of a planned module: its storages, what was decided of each and why, its ops and copies in time."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from memc.ir.copies import is_copy
from memc.ir.core import Function, Op, Value
from memc.ir.errors import InvalidError, MemcError
from memc.ir.footprint import Footprint
from memc.ir.function_footprint import footprint_of
from memc.ir.liveness import Lifetime, lifetimes
from memc.ir.module import Module
from memc.ir.sizes import format_size
from memc.ir.spaces import ARENA
from memc.report.roles import storage_roles
from memc.report.timeline import Timeline
from memc.report.trace import timeline_of

from .picture import CopySpan, Interval, PictureSpace, PictureStep, PlacedTensor, PlanPicture

NAMED = 2
"""How many ops of a fused group are named."""


@dataclass(frozen=True)
class Told:
    """What is known of a plan beside its IR."""

    title: str
    pipeline: str = ""
    """The passes that planned it."""
    budget: int | None = None
    """Bytes of the peak that were allowed."""
    reasons: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Of values by name: what became of them, and why."""
    places: Mapping[str, str] = field(default_factory=dict)
    """Lines of source by the locations of ops."""
    facts: tuple[tuple[str, str], ...] = ()
    op_times: str | None = None
    """A file of measured times of ops; None for those that the plan was made with."""


def is_planned(module: Module) -> bool:
    """Whether every storage of the arena has an address."""
    lives = lifetimes(module.main)
    return bool(lives) and all(life.root.placement is not None for life in lives)


def picture_of_module(module: Module, told: Told) -> PlanPicture:
    """The picture of a module's main function. Raises InvalidError for a function whose values have no addresses, and UsageError for a file
    of times that is none."""
    function = module.main
    time = _timeline(module, told)
    footprint = footprint_of(function, module.target)
    names = [space.name for space in module.target.spaces if space.holds == "values"]
    names.sort(key=lambda name: name != ARENA)
    reader = _Storages(function, told)
    tensors: list[PlacedTensor] = []
    spaces: list[PictureSpace] = []
    for name in names:
        lives = lifetimes(function, name)
        if not lives and name != ARENA:
            continue
        tensors += reader.of(lives, len(spaces))
        spaces.append(_space(footprint, name, module.target.alignment, told.budget))
    ops = tuple(_step(op, told) for op in function.ops)
    return PlanPicture(
        told.title,
        "op",
        len(ops),
        tuple(spaces),
        tensors,
        ops,
        tuple(start / 1e12 for start in (*time.starts, time.makespan)),
        "measured times" if told.op_times or "profile=" in told.pipeline else "the cost model",
        tuple(_copies(time)),
        (*_facts(footprint, told.budget), *told.facts),
    )


def _timeline(module: Module, told: Told) -> Timeline:
    """In the cost model of the plan; in the target's where the files that it was made with are gone."""
    if told.op_times is not None:
        return timeline_of(module, told.pipeline, told.op_times)
    try:
        return timeline_of(module, told.pipeline)
    except MemcError:
        return timeline_of(module, "")


def _space(footprint: Footprint, name: str, alignment: int, budget: int | None) -> PictureSpace:
    """A space; of a budget for all that lies on the device, what is left for the arena."""
    found = next(space for space in footprint.spaces if space.name == name)
    left = None
    if name == ARENA and budget is not None:
        left = max(0, budget - (footprint.peak - found.bytes))
    return PictureSpace(name, found.bytes, found.lower_bound, left, alignment)


def _facts(footprint: Footprint, budget: int | None) -> Iterator[tuple[str, str]]:
    yield "peak", format_size(footprint.peak)
    for space in footprint.spaces:
        if space.bytes:
            yield space.name, format_size(space.bytes)
    arena = footprint.arena
    if arena.lower_bound:
        yield "lower bound", format_size(arena.lower_bound)
        yield "gap", f"{100 * (arena.bytes - arena.lower_bound) / arena.lower_bound:.2f} %"
    if budget is not None:
        yield "budget", format_size(budget)


def op_name(op: Op) -> str:
    """What an op is called: of a fused group, its first ops."""
    if op.region is None:
        return op.name
    inner = [each.name for each in op.region.ops]
    text = "+".join(inner[:NAMED])
    return text if len(inner) <= NAMED else f"{text}+{len(inner) - NAMED} more"


def _step(op: Op, told: Told) -> PictureStep:
    return PictureStep(op_name(op), f"%{op.results[0].name}" if op.results else "", _place(op, told))


def _place(op: Op | None, told: Told) -> str:
    """The location of an op, with its line of source where that is known."""
    if op is None or not op.location:
        return ""
    line = told.places.get(op.location)
    return f"{op.location} at {line}" if line else op.location


class _Storages:
    """Reads what is drawn of a function's storages."""

    def __init__(self, function: Function, told: Told) -> None:
        self.told = told
        self.roles = storage_roles(function)
        self.uses: dict[Value, list[int]] = defaultdict(list)
        self.others: dict[Value, list[Value]] = defaultdict(list)
        self.offloaded: set[Value] = set()
        for index, op in enumerate(function.ops):
            scratch = () if op.workspace is None else (op.workspace,)
            for root in {value.root: None for value in (*op.operands, *op.results, *scratch)}:
                self.uses[root].append(index)
            if op.name == "offload_start":
                self.offloaded.add(op.operands[0].root)
            for result in op.results:
                if result.alias is not None:
                    self.others[result.root].append(result)

    def of(self, lives: Sequence[Lifetime], space: int) -> Iterator[PlacedTensor]:
        """The tensors of a space, in the order in which they become live."""
        intervals: dict[Value, list[Interval]] = defaultdict(list)
        for life in lives:
            intervals[life.root].append((life.lower, life.upper))
        for root, live in intervals.items():
            if root.placement is None:
                raise InvalidError(
                    f"{self.told.title}: %{root.name}: expected an address, got none; plan the module first"
                )
            decision, reason = self._decision(root)
            yield PlacedTensor(
                root.name,
                tuple(sorted(live)),
                root.placement.offset,
                root.type.nbytes,
                space,
                self.roles.get(root, "tensors"),
                str(root.type),
                decision,
                reason,
                _place(root.op, self.told),
                tuple(value.name for value in self.others[root]),
                tuple(self.uses[root]),
            )

    def _decision(self, root: Value) -> tuple[str, str]:
        """What was decided of a storage: the decision on its value under a budget, or how its bytes are used."""
        op = root.op
        if op is not None and op.workspace is root:
            return "workspace", "scratch bytes of one library kernel"
        said = self.told.reasons.get(root.name)
        if said is not None and said[0] != "none":
            return said
        why = "" if said is None else said[1]
        if op is not None and op.plan.recompute:
            return "recomputed", why or f"{op_name(op)} runs again instead of keeping its result"
        if root in self.offloaded:
            return "offloaded", why or "copied to the host and back"
        if op is not None and is_copy(op):
            return "copied", why or "bytes of a copy between the device and the host"
        shared = self.others[root]
        written = sum(value.op is not None and value.op.plan.in_place is not None for value in shared)
        if written:
            return "in place", why or f"{_count(written, 'op')} write{'s' if written == 1 else ''} over it in place"
        if shared:
            return (
                "alias",
                why or f"{_count(len(shared), 'other value')} lie{'s' if len(shared) == 1 else ''} in its bytes",
            )
        return "kept", why


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _copies(time: Timeline) -> Iterator[CopySpan]:
    """The copies, their times as fractions of steps."""
    ends = [*time.starts, time.makespan]

    def step(now: int) -> float:
        at = max(0, min(bisect_right(ends, now) - 1, len(ends) - 2))
        length = ends[at + 1] - ends[at]
        return at + (min(1.0, (now - ends[at]) / length) if length else 0.0)

    for copy in time.copies:
        yield CopySpan(copy.value.name, copy.way, step(copy.begin), step(copy.end), copy.bytes, copy.waited / 1e12)
