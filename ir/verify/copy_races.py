# SPDX-License-Identifier: Apache-2.0
"""Whether copies between spaces race with anything: a detector of conflicting accesses that nothing orders.

Shares no code with liveness, the solvers or the passes that insert copies. Each lane is a thread of its own, and so is the list of
ops, which runs beside them. Every thread has a clock, which counts for each lane the copies that are known to be over:

- a start hands the list's clock to its lane, which also knows its own earlier copies to be over;
- a done joins the copy's clock into the list's, so with a copy all earlier ones of its lane are over;
- so whatever the list did before a start is before the copy, and needs no clock of its own.

For the bytes of each space it is known what they hold, which copy wrote them last and which have read them since. Each access
must come after the copies that conflict with it, and find the bytes of the value that it reads. The list is walked twice, as
the next run begins with the bytes of the last one in every space: copies and states of both runs must not meet either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NoReturn

from ..copies import DONES, STARTS, has_copies, is_done, is_start
from ..core import Function, Op, Role, Value
from ..errors import CheckError
from ..module import Module
from ..op_queries import slice_offsets, view_offset
from ..ops.shared.op_def import lookup
from .copy_accesses import Clock, Contents, Copy

Piece = tuple[int, int, int]
"""`length` bytes of a content from `offset` on, as (content, offset, length); contents are numbered as they are written."""

COPIES = frozenset({*STARTS, *DONES})


def check_copy_races(module: Module) -> None:
    """Raise CheckError, naming function, op, value and copy, unless every copy may run at any time from its start to its done.

    Values without a placement have bytes of their own. Functions without copies are left alone.
    """
    for function in module.functions:
        if has_copies(function):
            _Race(function).run()


@dataclass(frozen=True)
class Place:
    """Where a value lies."""

    value: Value
    space: object
    contents: Contents
    begin: int
    end: int


@dataclass(frozen=True)
class Step:
    """An op with what it touches."""

    op: Op
    reads: list[Place]
    writes: list[Place]
    """Results and workspace."""
    kept: list[int] | None
    """Operands of a concat that lie in their places in the result already; [-1] for a view; None for other ops."""


class _Race:
    def __init__(self, function: Function) -> None:
        self.function = function
        names = dict.fromkeys(str(op.attrs.get("lane")) for op in function.ops if is_start(op))
        self.lanes = {name: number for number, name in enumerate(names)}
        self.now: Clock = [0] * len(names)
        """What the list of ops knows to be over."""
        self.last: list[Copy | None] = [None] * len(names)
        """The latest copy of each lane."""
        self.running: dict[Value, Copy] = {}
        """Copies by their pending value."""
        self.memory: dict[object, Contents] = {}
        self.pieces: dict[Value, list[Piece]] = {}
        self.contents = 0
        outside = {value.root for value in function.returns if _is_given_back(value)}
        self.each_run = outside | {p for p in function.params if p.role is Role.INPUT}
        """Roots with bytes that the caller gives anew for each run."""
        self.unwritten = self._leaving()
        """States that leave the arena and whose new content has no place yet."""
        self.places = {value: self._place(value) for value in function.values()}
        self.steps = [self._planned(op) for op in function.ops]

    def run(self) -> None:
        """Walk two runs. Raises CheckError."""
        states: dict[Value, list[Piece]] = {}
        for number in range(2):
            for root in self.each_run:
                self.places[root].contents.clear()
            for param in self.function.params:
                if param in states:
                    self.pieces[param] = states[param]
                elif number == 0 or param in self.each_run or param in self.unwritten:
                    self._write(0, None, self.places[param], self._new(param), None)
            for step in self.steps:
                if is_done(step.op):
                    self.pieces.pop(step.op.results[0], None)
            for index, step in enumerate(self.steps):
                if step.op.name in COPIES:
                    self._copy(index, step)
                else:
                    self._step(index, step)
            self._end()
            states = {v.root: self.pieces[v] for v in self.function.returns if v.root.role is Role.STATE}

    def _leaving(self) -> set[Value]:
        left = {op.operands[0] for op in self.function.ops if op.name == "offload_start"}
        return {value for value in left if value.role is Role.STATE and value.placement is None}

    def _place(self, value: Value) -> Place:
        if value.op is not None and is_done(value.op) and value.alias is None:
            return replace(self._place(value.op.operands[0]), value=value)
        root = value.alias.root if value.alias else value
        begin = value.alias.offset if value.alias else 0
        space: object = root
        if root.placement is not None and root not in self.each_run:
            space = root.placement.space
            begin += root.placement.offset
        contents = self.memory.get(space)
        if contents is None:
            contents = self.memory[space] = Contents()
        return Place(value, space, contents, begin, begin + value.type.nbytes)

    def _planned(self, op: Op) -> Step:
        written = op.results if op.workspace is None else [*op.results, op.workspace]
        reads = [self.places[v] for v in op.operands]
        return Step(op, reads, [self.places[v] for v in written], _kept_slices(op))

    def _new(self, value: Value) -> list[Piece]:
        self.contents += 1
        found = self.pieces[value] = [(self.contents, 0, value.type.nbytes)]
        return found

    def _step(self, index: int, step: Step) -> None:
        for place in step.reads:
            self._read(index, step.op, place, None)
        for number, place in enumerate(step.writes):
            if number == 0 and step.kept is not None:
                self._join(index, step, place)
            else:
                self._write(index, step.op, place, self._new(place.value), None)

    def _copy(self, index: int, step: Step) -> None:
        op = step.op
        if is_start(op):
            copy = self._begin(index, op)
            self._read(index, op, step.reads[0], copy)
            self._write(index, op, step.writes[0], self._new(op.results[0]), copy)
            return
        over = self.running.pop(op.operands[0], None)
        if over is not None:
            self.now = [max(pair) for pair in zip(self.now, over.clock)]
        self.pieces[op.results[0]] = self._expected(index, op, op.operands[0])

    def _begin(self, index: int, op: Op) -> Copy:
        lane = self.lanes[str(op.attrs.get("lane"))]
        before = self.last[lane]
        clock = list(self.now) if before is None else [max(pair) for pair in zip(self.now, before.clock)]
        time = 1 if before is None else before.time + 1
        after = list(clock)
        after[lane] = time
        self.last[lane] = copy = Copy(index, op, lane, time, after)
        self.running[op.results[0]] = copy
        return copy

    def _join(self, index: int, step: Step, place: Place) -> None:
        """A view, which writes nothing, or a concat some of whose operands are in their places already."""
        op, kept, result = step.op, step.kept or [], place.value
        if kept[0] == -1:
            pieces = self._expected(index, op, op.operands[0])
            self.pieces[result] = _part(pieces, view_offset(op) or 0, result.type.nbytes)
            return
        pieces = []
        at = 0
        offsets = slice_offsets(op)
        own = self._new(result)[0][0]
        for number in sorted(kept, key=lambda number: offsets[number] or 0):
            begin = offsets[number] or 0
            if begin > at:
                pieces.append((own, at, begin - at))
            pieces += self._expected(index, op, op.operands[number])
            at = begin + op.operands[number].type.nbytes
        if at < result.type.nbytes:
            pieces.append((own, at, result.type.nbytes - at))
        self._write(index, op, place, pieces, None, own)
        self.pieces[result] = pieces

    def _read(self, index: int, op: Op | None, place: Place, copy: Copy | None) -> None:
        """An op, or the copy that it begins, reads a value."""
        at, contents = place.begin, place.contents
        clock = self.now if copy is None else copy.clock
        pieces = self.pieces.get(place.value)
        for content, offset, length in self._expected(index, op, place.value) if pieces is None else pieces:
            end = at + length
            first, last = contents.meeting(at, end) if length else (0, 0)
            reached = at
            for segment in contents.segments[first:last]:
                if segment.begin > reached or segment.content != content or segment.base != offset - at:
                    break
                writer = segment.writer
                if writer is not None and clock[writer.lane] < writer.time:
                    self._race(index, op, place, writer, "writes")
                reached = segment.end
            if reached < end:
                message = f"expected its data at byte {reached} of {_name(place.space)}, got other bytes"
                self._fail(index, op, place.value, message)
            if copy is not None:
                contents.note(at, end, first, last, copy)
            at = end

    def _expected(self, index: int, op: Op | None, value: Value) -> list[Piece]:
        """What a value consists of; what waits for a copy, of what the copy writes."""
        made = value.op
        source = made.operands[0] if made is not None and is_done(made) else value
        pieces = self.pieces.get(source)
        if pieces is None:
            self._fail(index, op, value, "expected a value that is defined before its use")
        return pieces

    def _write(
        self, index: int, op: Op | None, place: Place, pieces: list[Piece], copy: Copy | None, own: int | None = None
    ) -> None:
        """An op, or the copy that it begins, writes a value: of its pieces those of the content `own`, if that is given."""
        at, contents = place.begin, place.contents
        clock = self.now if copy is None else copy.clock
        for content, offset, length in pieces:
            end = at + length
            if length and own in (None, content):
                first, last = contents.meeting(at, end)
                for segment in contents.segments[first:last]:
                    writer = segment.writer
                    if writer is not None and clock[writer.lane] < writer.time:
                        self._race(index, op, place, writer, "writes")
                    for reader in segment.readers:
                        if clock[reader.lane] < reader.time or reader is copy:
                            self._race(index, op, place, reader, "reads")
                contents.fill(at, end, first, last, content, offset - at, copy)
            at = end

    def _end(self) -> None:
        """When the function returns every copy is over, and what it returns is there."""
        end = len(self.function.ops)
        for copy in self.last:
            if copy is not None and self.now[copy.lane] < copy.time:
                self._fail(
                    copy.index, copy.op, copy.op.results[0], "expected a wait for the copy before the function returns"
                )
        for value in self.function.returns:
            self._read(end, None, self.places[value], None)

    def _race(self, index: int, op: Op | None, place: Place, copy: Copy, what: str) -> NoReturn:
        of = copy.op.operands[0].name
        message = (
            f"expected a wait for the copy of %{of} that op {copy.index} {copy.op.name} began on lane {copy.op.attrs['lane']}, "
            f"which {what} the same bytes of {_name(place.space)}, got none before"
        )
        self._fail(index, op, place.value, message)

    def _fail(self, index: int, op: Op | None, value: Value, message: str) -> NoReturn:
        place = f"op {index} {op.name}" + (f" ({op.location})" if op.location else "") if op is not None else "return"
        raise CheckError(f"bad plan: @{self.function.name}, {place}, %{value.name}: {message}")


def _is_given_back(value: Value) -> bool:
    """Whether a returned value has bytes that the caller gives: those of its own root, which no parameter or constant is."""
    root = value.alias.root if value.alias else value
    return root.op is not None and root.op.name != "constant" and root.placement is None


def _kept_slices(op: Op) -> list[int] | None:
    """`Step.kept` of an op."""
    definition = lookup(op.name)
    if definition is None or (definition.view is None and definition.slices is None) or not op.operands:
        return None
    result = op.results[0]
    root, begin = (result.alias.root, result.alias.offset) if result.alias else (result, 0)

    def lies_at(operand: Value, offset: int | None) -> bool:
        other, at = (operand.alias.root, operand.alias.offset) if operand.alias else (operand, 0)
        return offset is not None and other is root and at == begin + offset

    within = view_offset(op) if op.plan.in_place is None else None
    if within is not None and lies_at(op.operands[0], -within):
        return [-1]
    found = [n for n, offset in enumerate(slice_offsets(op)) if lies_at(op.operands[n], offset)]
    return found or None


def _part(pieces: Iterable[Piece], begin: int, length: int) -> list[Piece]:
    """Bytes [begin, begin + length) of pieces one after another."""

    def parts() -> Iterator[Piece]:
        at, end = 0, begin + length
        for content, offset, size in pieces:
            low, high = max(begin, at), min(end, at + size)
            if low < high:
                yield content, offset + low - at, high - low
            at += size

    return list(parts())


def _name(space: object) -> str:
    return f"%{space.name}" if isinstance(space, Value) else f"@{space}"
