# SPDX-License-Identifier: Apache-2.0
"""Whether copies between spaces race with anything: a detector of conflicting accesses that nothing orders.

Shares no code with liveness, the solvers or the passes that insert copies. Each lane is a thread of its own, and so is the list of
ops, which runs beside them. Every thread has a clock, which counts for each lane the copies that are known to be over:

- a start hands the list's clock to its lane, which also knows its own earlier copies to be over;
- a done joins the copy's clock into the list's, so with a copy all earlier ones of its lane are over;
- so whatever the list did before a start is before the copy, and needs no clock of its own.

For the bytes of each space it is known what they hold, which copy wrote them last and which have read them since. Each access
must come after the copies that conflict with it, and find the bytes of the value that it reads.

The next run begins with the bytes of the last one in every space, so that copies and states of both must not meet either. One walk
shows it for all runs. At its end every copy is over, so none races with what a later run does. And where the bytes of each
parameter that is read then hold what the next run is to read of it (a state's new content, a weight's own), that run finds the
same bytes as this one wherever it reads, by their names: what else lies in a space was read by nothing, and is not now.
"""

from __future__ import annotations

from typing import NoReturn

from ..copies import DONES, STARTS, has_copies, is_start
from ..core import Function, Op, Role, Value
from ..errors import CheckError
from ..module import Module
from .byte_contents import Clock, Contents, Copy, Piece, Place, joined
from .shared_bytes import kept_slices, may_share_bytes, offset_in_operand

COPIES = frozenset({*STARTS, *DONES})


def check_copy_races(module: Module) -> None:
    """Raise CheckError, naming function, op, value and copy, unless every copy may run at any time from its start to its done.

    Values without a placement have bytes of their own. Functions without copies are left alone.
    """
    for function in module.functions:
        if has_copies(function):
            _Race(function).run()


class _Race:
    def __init__(self, function: Function) -> None:
        self.function = function
        names = dict.fromkeys(str(op.attrs.get("lane")) for op in function.ops if op.name in STARTS)
        self.lanes = {name: number for number, name in enumerate(names)}
        self.now: Clock = [0] * len(names)
        """What the list of ops knows to be over."""
        self.last: list[Copy | None] = [None] * len(names)
        """The latest copy of each lane."""
        self.running: dict[Value, Copy] = {}
        """Copies by their pending value."""
        self.memory: dict[object, Contents] = {}
        self.places: dict[Value, Place] = {}
        outside = {value.root for value in function.returns if _is_given_back(value)}
        self.each_run = outside | {p for p in function.params if p.role is Role.INPUT}
        """Roots with bytes that the caller gives anew for each run."""
        left = {op.operands[0] for op in function.ops if op.name == "offload_start"}
        self.unplaced = {value for value in left if value.role is Role.STATE and value.placement is None}
        """States that leave the arena and whose new content has no place yet."""

    def run(self) -> None:
        """Walk the list. Raises CheckError."""
        for param in self.function.params:
            self._write(0, None, self._place(param), None)
        for index, op in enumerate(self.function.ops):
            if op.name in COPIES:
                self._copy(index, op)
            else:
                self._step(index, op)
        self._end()

    def _place(self, value: Value) -> Place:
        at = self.places.get(value)
        if at is None:
            at = self.places[value] = self._new_place(value)
        return at

    def _new_place(self, value: Value) -> Place:
        if value.alias is None and value.op is not None and value.op.name in DONES:
            pending = self._place(value.op.operands[0])
            return Place(value, pending.contents, pending.begin, pending.end)
        alias = value.alias
        root, begin = (value, 0) if alias is None else (alias.root, alias.offset)
        space: object = root
        if root.placement is not None and root not in self.each_run:
            space = root.placement.space
            begin += root.placement.offset
        contents = self.memory.get(space)
        if contents is None:
            contents = self.memory[space] = Contents(space)
        return Place(value, contents, begin, begin + value.type.nbytes)

    def _step(self, index: int, op: Op) -> None:
        places, now = self.places, self.now
        for value in op.operands:
            at = places.get(value) or self._place(value)
            segment = at.segment
            if segment is None or segment.origin is not at.origin:
                self._read(index, op, at, None)
            elif segment.writer is not None and now[segment.writer.lane] < segment.writer.time:
                self._race(index, op, at, segment.writer, "writes")
        results = op.results
        if may_share_bytes(op):
            results = results[1:]
            self._first_result(index, op)
        for value in results:
            self._write(index, op, places.get(value) or self._place(value), None)
        if op.workspace is not None:
            self._write(index, op, self._place(op.workspace), None)

    def _copy(self, index: int, op: Op) -> None:
        if is_start(op):
            copy = self._begin(index, op)
            self._read(index, op, self._place(op.operands[0]), copy)
            self._write(index, op, self._place(op.results[0]), copy)
            return
        over = self.running.pop(op.operands[0], None)
        if over is not None:
            self.now = [max(pair) for pair in zip(self.now, over.clock)]
        self._made(index, op, self._place(op.operands[0]))
        self._made(index, op, self._place(op.results[0]))

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

    def _first_result(self, index: int, op: Op) -> None:
        """A view, which writes nothing, or a concat some of whose operands may be in their places already."""
        at = self._place(op.results[0])
        within = offset_in_operand(op)
        if within is not None:
            at.look(self._place(op.operands[0]), within)
            return
        inner = [(offset, self._made(index, op, self._place(op.operands[n]))) for n, offset in kept_slices(op).items()]
        if not inner:
            self._write(index, op, at, None)
            return
        at.pieces, begin = joined(at.value, inner), at.begin
        for origin, offset, length in at.pieces:
            if origin is at.value and length:
                self._meet(index, op, at, begin, begin + length, None)
                at.contents.fill(begin, begin + length, origin, offset - begin)
            begin += length

    def _made(self, index: int, op: Op | None, at: Place) -> list[Piece]:
        """What a value consists of; what waits for a copy, of what the copy writes."""
        maker = at.value.op
        if at.pieces is None and maker is not None and maker.name in DONES:
            pending = self._place(maker.operands[0])
            if pending.pieces is not None:
                at.look(pending, 0)
        if at.pieces is None:
            self._fail(index, op, at.value, "expected a value that is defined before its use")
        return at.pieces

    def _read(self, index: int, op: Op | None, at: Place, copy: Copy | None, pieces: list[Piece] | None = None) -> None:
        """An op, or the copy that it begins, reads a value, or in its place what `pieces` say."""
        clock = self.now if copy is None else copy.clock
        found, lost = at.find(self._made(index, op, at) if pieces is None else pieces)
        for segment in found:
            writer = segment.writer
            if writer is not None and clock[writer.lane] < writer.time:
                self._race(index, op, at, writer, "writes")
        if lost is not None:
            message = f"expected its data at byte {lost} of {_name(at.contents.space)}, got other bytes"
            self._fail(index, op, at.value, message + (" for the next run" if pieces is not None else ""))
        if copy is not None and at.begin < at.end:
            at.contents.note(at.begin, at.end, copy)

    def _write(self, index: int, op: Op | None, at: Place, copy: Copy | None) -> None:
        """An op, or the copy that it begins, writes a value."""
        if at.begin < at.end:
            segment = at.contents.whole(at.begin, at.end)
            if segment is not None and segment.writer is None and not segment.readers:
                at.take(segment, copy)
                return
            self._meet(index, op, at, at.begin, at.end, copy)
        at.fill(copy)

    def _meet(self, index: int, op: Op | None, at: Place, begin: int, end: int, copy: Copy | None) -> None:
        """What copies do with bytes that are about to be written must be over."""
        clock = self.now if copy is None else copy.clock
        first, last = at.contents.meeting(begin, end)
        for segment in at.contents.segments[first:last]:
            writer = segment.writer
            if writer is not None and clock[writer.lane] < writer.time:
                self._race(index, op, at, writer, "writes")
            for reader in segment.readers:
                if clock[reader.lane] < reader.time or reader is copy:
                    self._race(index, op, at, reader, "reads")

    def _end(self) -> None:
        """When the function returns every copy is over, and what it returns is there, as is what the next run reads."""
        end = len(self.function.ops)
        for copy in self.last:
            if copy is not None and self.now[copy.lane] < copy.time:
                message = "expected a wait for the copy before the function returns"
                self._fail(copy.index, copy.op, copy.op.results[0], message)
        states: dict[Value, list[Piece]] = {}
        for value in self.function.returns:
            at = self._place(value)
            self._read(end, None, at, None)
            if value.root.role is Role.STATE:
                states[value.root] = self._made(end, None, at)
        read = {value for op in self.function.ops for value in op.operands if value.op is None}
        for param in self.function.params:
            if param in read and param not in self.each_run and param not in self.unplaced:
                at = self._place(param)
                self._read(end, None, at, None, states[param] if param in states else self._made(end, None, at))

    def _race(self, index: int, op: Op | None, at: Place, copy: Copy, what: str) -> NoReturn:
        of = copy.op.operands[0].name
        message = (
            f"expected a wait for the copy of %{of} that op {copy.index} {copy.op.name} began on lane {copy.op.attrs['lane']}, "
            f"which {what} the same bytes of {_name(at.contents.space)}, got none before"
        )
        self._fail(index, op, at.value, message)

    def _fail(self, index: int, op: Op | None, value: Value, message: str) -> NoReturn:
        place = f"op {index} {op.name}" + (f" ({op.location})" if op.location else "") if op is not None else "return"
        raise CheckError(f"bad plan: @{self.function.name}, {place}, %{value.name}: {message}")


def _is_given_back(value: Value) -> bool:
    """Whether a returned value has bytes that the caller gives: those of its own root, which no parameter or constant is."""
    root = value.alias.root if value.alias else value
    return root.op is not None and root.op.name != "constant" and root.placement is None


def _name(space: object) -> str:
    return f"%{space.name}" if isinstance(space, Value) else f"@{space}"
