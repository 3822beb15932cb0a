# SPDX-License-Identifier: Apache-2.0
"""Whether a planned function computes what its ops say: checked by following the bytes, not by lifetimes.

Shares no code with liveness, the solvers or the in-place planner. Every byte is traced: which value's which byte it
holds at the moment. Each op must find its operands whole where it reads them, may write only where nothing that it
reads lies (but for what its in-place, view and slice rules allow), and returned values must be whole at the end.

Contents are *pieces* (origin, offset in the origin, length), all in bytes. A view consists of its operand's pieces,
and a concat whose operands already lie in their slices consists of those operands' pieces.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import NoReturn

from memc.ir.core import Function, Op, Role, Value
from memc.ir.errors import CheckError
from memc.ir.module import Module
from memc.ir.op_queries import in_place_operands
from memc.ir.ops.shared.op_def import chosen_kernel, lookup
from memc.ir.verify.byte_contents import Contents, Place, joined
from memc.ir.verify.shared_bytes import kept_slices, may_share_bytes, offset_in_operand

ARENA, HOST = "arena", "host"


def check_plan(module: Module, alignment: int = 1, arena_bytes: int | None = None, *, partial: bool = False) -> None:
    """Raise CheckError, naming function, op and value, unless every function's plan is right.

    Addresses are in spaces of the target that hold values. They, and offsets of aliases, must be multiples of `alignment`
    bytes. `arena_bytes` is the arena's size where it is known. A `partial` plan need not place everything, nor be ready for
    code: a storage without a placement has bytes of its own, any space may be named, a returned value may be part of
    anything, and workspaces may be too small.
    """
    for function in module.functions:
        spaces = [space.name for space in module.target.spaces if space.holds == "values"]
        _Check(function, alignment, arena_bytes, partial, spaces).run()


def has_placements(module: Module) -> bool:
    """Whether any value of the module has a place."""
    return any(value.placement is not None for function in module.functions for value in function.values())


class _Check:
    def __init__(
        self, function: Function, alignment: int, arena_bytes: int | None, partial: bool, spaces: list[str]
    ) -> None:
        self.function = function
        self.spaces = spaces
        self.alignment = alignment
        self.arena_bytes = arena_bytes
        self.partial = partial
        self.memory: dict[object, Contents] = {}
        self.places: dict[Value, Place] = {}
        """Of the values that ops have read or made, checked as these did so first."""
        self.placed = _placed_params(function)
        self.returned_roots = {value.root for value in function.returns if not partial or _is_apart(value)}

    def run(self) -> None:
        for param in self.function.params:
            self._fill(param)
        for index, op in enumerate(self.function.ops):
            if op.name == "constant":
                self._fill(op.result)
            else:
                self._step(index, op)
        self._returns()

    def _fill(self, value: Value) -> None:
        if value.alias is not None or (value.placement is not None and value not in self.placed):
            self._fail(None, value, "expected a parameter or constant to have its own bytes, got an alias or placement")
        if value not in self.placed:
            at = self.places[value] = Place(value, self._contents(value), 0, value.type.nbytes)
        else:
            at = self._place(0, None, value)
            if not self.partial and at.contents.space != self.placed[value]:
                message = f"expected a place in @{self.placed[value]}, got one in @{at.contents.space}"
                self._fail(None, value, message)
            first, last = at.contents.meeting(at.begin, at.end)
            for held in at.contents.segments[first:last]:
                if held.origin is not None and at.begin < at.end:
                    self._fail(None, value, f"expected bytes apart from those of %{held.origin.name}")
        at.fill()

    def _contents(self, space: object) -> Contents:
        found = self.memory.get(space)
        if found is None:
            found = self.memory[space] = Contents(space)
        return found

    def _step(self, index: int, op: Op) -> None:
        places = self.places
        reads = [places.get(value) or self._place(index, op, value) for value in op.operands]
        for at in reads:
            segment = at.segment
            if segment is None or segment.origin is not at.origin:
                self._expect(index, op, at)
        over = op.plan.in_place
        kept: Mapping[int, int] = {}
        written: list[Place] = []
        for number, value in enumerate(op.results):
            if number:
                over, kept = None, {}
            elif may_share_bytes(op):
                within = None if value.alias is None else offset_in_operand(op)
                if within is not None:
                    self._look(index, op, reads[0], within)
                    continue
                kept = kept_slices(op)
            at = places.get(value) or self._place(index, op, value)
            if isinstance(at.contents.space, Value):
                self._writable(index, op, at, at.contents.space)
            self._apart(index, op, at, reads, kept, over)
            self._write(index, op, at, written)
            if kept:
                self._join(at, reads, kept)
            else:
                at.fill()
        if op.plan.library_kernel is not None and not self.partial:
            self._enough_workspace(index, op)
        if op.workspace is not None:
            self._workspace(index, op, op.workspace, reads, written)

    def _look(self, index: int, op: Op, source: Place, within: int) -> None:
        """Result 0 is a view of operand 0, from byte `within` of it on."""
        at = self._place(index, op, op.results[0])
        at.look(source, within)
        self._expect(index, op, at)

    def _write(self, index: int, op: Op, at: Place, written: list[Place]) -> None:
        """An op writes one thing apart from the others."""
        for other in written:
            if at.overlaps(other):
                self._fail(op, at.value, f"expected bytes apart from those of %{other.value.name}", index)
        written.append(at)

    def _join(self, at: Place, reads: Sequence[Place], kept: Mapping[int, int]) -> None:
        """A concat's content: its operands' where they stay in place, bytes of its own elsewhere."""
        pieces = joined(at.value, [(offset, reads[number].pieces or ()) for number, offset in kept.items()])
        begin = at.begin
        for origin, offset, length in pieces:
            if origin is at.value and length:
                at.contents.fill(begin, begin + length, origin, offset - begin)
            begin += length
        at.pieces = pieces

    def _workspace(self, index: int, op: Op, value: Value, reads: Sequence[Place], written: list[Place]) -> None:
        at = self._place(index, op, value)
        if at.contents.space != ARENA and not self.partial:
            self._fail(op, value, "expected the workspace in the arena", index)
        self._apart(index, op, at, reads, {}, None)
        self._write(index, op, at, written)
        at.fill()

    def _enough_workspace(self, index: int, op: Op) -> None:
        """A library kernel has at least the workspace that it asks for."""
        kernel = chosen_kernel(op)
        if kernel is None or kernel.workspace is None:
            return
        least, _ = kernel.workspace(op)
        planned = 0 if op.workspace is None else op.workspace.type.nbytes
        if planned < least:
            message = f"expected a workspace of at least {least} bytes for {kernel.symbol}, got {planned}"
            self._fail(op, op.results[0], f"{message} (run select-kernels)", index)

    def _place(self, index: int, op: Op | None, value: Value) -> Place:
        """Where a value lies, after checks of the alignment and of the arena's size."""
        size, alias, root, offset = value.type.nbytes, value.alias, value, 0
        if alias is not None:
            root, offset = alias.root, alias.offset
            if offset < 0 or offset + size > root.type.nbytes:
                self._fail(op, value, f"expected bytes inside %{root.name}, got offset {offset}", index)
            if size and offset % self.alignment:
                self._fail(op, value, f"expected an offset in its root that is a multiple of {self.alignment}", index)
        space: object = root
        fixed = root.op is None or root.op.name == "constant" or root in self.returned_roots
        apart = (fixed and root not in self.placed) or (root.placement is None and self.partial)
        if not apart:
            space, offset = self._address(index, op, value, root, offset)
        at = self.places[value] = Place(value, self._contents(space), offset, offset + size)
        return at

    def _address(self, index: int, op: Op | None, value: Value, root: Value, offset: int) -> tuple[str, int]:
        """Space and first byte of a value whose root is to be placed."""
        place, own = root.placement, value.placement
        if place is None:
            self._fail(op, value, f"expected %{root.name} to be placed, got no placement", index)
        size, space, start = value.type.nbytes, place.space, place.offset + offset
        if space not in self.spaces and not self.partial:
            self._fail(op, value, f"expected a space of the target ({', '.join(self.spaces)}), got @{space}", index)
        if own is not place and own is not None and (own.space, own.offset) != (space, start):
            self._fail(op, value, f"expected @{space}[{start}] as its root's placement says", index)
        if start < 0 or size and start % self.alignment:
            self._fail(op, value, f"expected an address that is a multiple of {self.alignment}, got {start}", index)
        if space == ARENA and self.arena_bytes is not None and start + size > self.arena_bytes:
            self._fail(op, value, f"expected to end within {self.arena_bytes} bytes, got {start + size}", index)
        return space, start

    def _expect(self, index: int, op: Op | None, at: Place) -> None:
        """The value's own content must be in its bytes."""
        if at.segment is not None and at.segment.origin is at.origin:
            return
        if at.pieces is None:
            self._fail(op, at.value, "expected a value that is defined before its use", index)
        _, lost = at.find(at.pieces)
        if lost is not None:
            first, last = at.contents.meeting(lost, lost + 1)
            held = at.contents.segments[first].origin if first < last else None
            content = "nothing" if held is None else f"%{held.name}"
            self._fail(op, at.value, f"expected its data at byte {lost} of its space, got {content}", index)

    def _writable(self, index: int, op: Op, at: Place, space: Value) -> None:
        constant = space.op is not None and space.op.name == "constant"
        if at.begin < at.end and (space.role in (Role.INPUT, Role.WEIGHT) or constant):
            self._fail(op, at.value, f"expected no write to %{space.name}, which must not change", index)

    def _apart(
        self, index: int, op: Op, at: Place, reads: Sequence[Place], kept: Mapping[int, int], over: int | None
    ) -> None:
        """The bytes written must not be read by the same op, other than as its rules allow."""
        if over is None and not kept:
            begin, end, contents = at.begin, at.end, at.contents
            for read in reads:
                if read.contents is contents and read.begin < end and begin < read.end:
                    break
            else:
                return
        allowed = in_place_operands(op) if over is not None else ()
        if over is not None and over not in allowed and _registered(op):
            self._fail(op, at.value, f"expected in_place to be one of {list(allowed)}, got {over}", index)
        written = _without(at, [reads[number] for number in kept]) if kept else [(at.begin, at.end)]
        for number, read in enumerate(reads):
            if read.contents is not at.contents or read.begin >= at.end or at.begin >= read.end:
                continue
            place = bisect_right(written, read.begin, key=lambda part: part[1])  # They are in order and apart.
            if place == len(written) or max(written[place][0], read.begin) >= min(written[place][1], read.end):
                continue
            same = (read.begin, read.end) == (at.begin, at.end)
            if same and not _registered(op) and at.value.root is read.value.root:
                continue  # A foreign op's next version of the operand's storage.
            if not (same and (number == over or (number in allowed and over is not None))):
                self._fail(op, at.value, f"expected bytes apart from operand {number} (%{read.value.name})", index)

    def _returns(self) -> None:
        """Returned values are whole at the end, each in a buffer that is exactly its own."""
        seen: set[Value] = set()
        for value in self.function.returns:
            root = value.alias.root if value.alias else value
            if not self.partial:
                constant = root.op is not None and root.op.name == "constant"
                if root in seen or constant or root.type.nbytes != value.type.nbytes:
                    message = "expected a returned value with a buffer of its own (run materialize-returns)"
                    self._fail(None, value, message)
                if root.role in (Role.INPUT, Role.WEIGHT) or value.role is not None:
                    self._fail(None, value, "expected a returned value to be no parameter (run materialize-returns)")
            seen.add(root)
            self._whole(value)
        for param in self.function.params:  # The next run reads them.
            if param in self.placed and param not in seen:
                self._whole(param)

    def _whole(self, value: Value) -> None:
        """A value must be in its bytes at the end."""
        end = len(self.function.ops)
        self._expect(end, None, self.places.get(value) or self._place(end, None, value))

    def _fail(self, op: Op | None, value: Value, message: str, index: int | None = None) -> NoReturn:
        place = f"op {index} {op.name}" + (f" ({op.location})" if op.location else "") if op else "return"
        raise CheckError(f"bad plan: @{self.function.name}, {place}, %{value.name}: {message}")


def _placed_params(function: Function) -> dict[Value, str]:
    """Parameters with places, and the spaces of these: what prefetches read comes from `host`, what offloads read leaves the arena."""
    found: dict[Value, str] = {}
    for op in function.ops:
        if op.name == "prefetch_start" and op.operands[0].role in (Role.WEIGHT, Role.STATE):
            found[op.operands[0]] = HOST
        elif op.name == "offload_start" and op.operands[0].role is Role.STATE:
            found[op.operands[0]] = ARENA
    return found


def _is_apart(value: Value) -> bool:
    """Whether a returned value of a partial plan is to get a buffer of its own: it is a whole storage, placed nowhere."""
    return value.root.placement is None and value.type.nbytes == value.root.type.nbytes


def _without(at: Place, kept: Sequence[Place]) -> list[tuple[int, int]]:
    """The bytes of `at` outside `kept`, in order: what an op changes that leaves operands where they lie in its result."""
    parts: list[tuple[int, int]] = []
    start = at.begin
    for other in sorted(kept, key=lambda place: place.begin):
        if other.begin > start:
            parts.append((start, other.begin))
        start = max(start, other.end)
    if start < at.end:
        parts.append((start, at.end))
    return parts


def _registered(op: Op) -> bool:
    return op.region is not None or lookup(op.name) is not None
