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
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn

from memc.ir.core import Function, Op, Role, Value
from memc.ir.errors import CheckError
from memc.ir.module import Module
from memc.ir.op_queries import in_place_operands, slice_offsets, view_offset
from memc.ir.ops.shared.op_def import chosen_kernel, lookup
from memc.ir.verify.byte_contents import Memory, Piece

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


@dataclass
class _Range:
    """Bytes that an op reads or writes."""

    value: Value
    space: object
    start: int
    end: int

    def overlaps(self, other: _Range) -> bool:
        return self.space == other.space and max(self.start, other.start) < min(self.end, other.end)


class _Check:
    def __init__(
        self, function: Function, alignment: int, arena_bytes: int | None, partial: bool, spaces: list[str]
    ) -> None:
        self.function = function
        self.spaces = spaces
        self.alignment = alignment
        self.arena_bytes = arena_bytes
        self.partial = partial
        self.memory: dict[object, Memory] = {}
        self.pieces: dict[Value, list[Piece]] = {}
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
        self.pieces[value] = [(value, 0, value.type.nbytes)]
        if value.alias is not None or (value.placement is not None and value not in self.placed):
            self._fail(None, value, "expected a parameter or constant to have its own bytes, got an alias or placement")
        if value not in self.placed:
            self._space(value).write(0, self.pieces[value])
            return
        at = self._range(0, None, value)
        if not self.partial and at.space != self.placed[value]:
            self._fail(None, value, f"expected a place in @{self.placed[value]}, got one in @{at.space}")
        held = self._space(at.space).held(at.start, at.end)
        if held is not None:
            self._fail(None, value, f"expected bytes apart from those of %{held.name}")
        self._space(at.space).write(at.start, self.pieces[value])

    def _space(self, space: object) -> Memory:
        return self.memory.setdefault(space, Memory())

    def _step(self, index: int, op: Op) -> None:
        reads = [self._range(index, op, value) for value in op.operands]
        for at in reads:
            self._expect(index, op, at)
        result = op.results[0] if op.results else None
        viewed = result is not None and self._is_view(op, reads[0] if reads else None, result)
        kept = self._slices(op, reads) if not viewed else {}
        writes: list[_Range] = []
        for number, value in enumerate(op.results):
            at = self._range(index, op, value)
            if number == 0 and viewed:
                self.pieces[value] = self._part(op.operands[0], view_offset(op) or 0, value.type.nbytes)
                self._expect(index, op, at)
                continue
            self.pieces[value] = [(value, 0, value.type.nbytes)]
            if number == 0 and kept:
                self.pieces[value] = self._joined(value, op, kept)
            self._writable(index, op, at)
            self._apart(index, op, at, reads, kept if number == 0 else {}, number == 0)
            writes.append(at)
        if not self.partial:
            self._enough_workspace(index, op)
        if op.workspace is not None:
            at = self._range(index, op, op.workspace)
            if at.space != ARENA and not self.partial:
                self._fail(op, op.workspace, "expected the workspace in the arena", index)
            self._apart(index, op, at, reads, {}, False)
            self.pieces[op.workspace] = [(op.workspace, 0, op.workspace.type.nbytes)]
            writes.append(at)
        for number, at in enumerate(writes):
            for other in writes[:number]:
                if at.overlaps(other):
                    self._fail(op, at.value, f"expected bytes apart from those of %{other.value.name}", index)
            self._space(at.space).write(at.start, self.pieces[at.value])

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

    def _range(self, index: int, op: Op | None, value: Value) -> _Range:
        """The address of the value, after checks of the alignment and of the arena's size."""
        size = value.type.nbytes
        root, offset = (value.alias.root, value.alias.offset) if value.alias else (value, 0)
        if offset < 0 or offset + size > root.type.nbytes:
            self._fail(op, value, f"expected bytes inside %{root.name}, got offset {offset}", index)
        if size and offset % self.alignment:
            self._fail(op, value, f"expected an offset in its root that is a multiple of {self.alignment}", index)
        apart = root.op is None or root.op.name == "constant" or root in self.returned_roots
        if apart and root not in self.placed:
            return _Range(value, root, offset, offset + size)
        if root.placement is None and self.partial:
            return _Range(value, root, offset, offset + size)
        if root.placement is None:
            self._fail(op, value, f"expected %{root.name} to be placed, got no placement", index)
        space, start = root.placement.space, root.placement.offset + offset
        if space not in self.spaces and not self.partial:
            self._fail(op, value, f"expected a space of the target ({', '.join(self.spaces)}), got @{space}", index)
        if value.placement is not None and (value.placement.space, value.placement.offset) != (space, start):
            self._fail(op, value, f"expected @{space}[{start}] as its root's placement says", index)
        if start < 0 or size and start % self.alignment:
            self._fail(op, value, f"expected an address that is a multiple of {self.alignment}, got {start}", index)
        if space == ARENA and self.arena_bytes is not None and start + size > self.arena_bytes:
            self._fail(op, value, f"expected to end within {self.arena_bytes} bytes, got {start + size}", index)
        return _Range(value, space, start, start + size)

    def _expect(self, index: int, op: Op | None, at: _Range) -> None:
        """The value's own content must be in its bytes."""
        lost = self._space(at.space).lost(at.start, self.pieces[at.value])
        if lost is not None:
            address, held = lost
            content = "nothing" if held is None else f"%{held.name}"
            self._fail(op, at.value, f"expected its data at byte {address} of its space, got {content}", index)

    def _is_view(self, op: Op, source: _Range | None, result: Value) -> bool:
        """Whether the result is left where it already lies inside operand 0."""
        within = view_offset(op) if op.plan.in_place is None else None
        if within is None or source is None or result.alias is None:
            return False
        root, offset = result.alias.root, result.alias.offset
        operand = source.value
        other, start = (operand.alias.root, operand.alias.offset) if operand.alias else (operand, 0)
        return root is other and offset == start + within

    def _slices(self, op: Op, reads: list[_Range]) -> dict[int, int]:
        """Operands that already lie in their slice of the result, with the byte offset of the slice."""
        if not op.results:
            return {}
        result = op.results[0]
        root, offset = (result.alias.root, result.alias.offset) if result.alias else (result, 0)
        found: dict[int, int] = {}
        for number, within in enumerate(slice_offsets(op)):
            operand = reads[number].value
            other, start = (operand.alias.root, operand.alias.offset) if operand.alias else (operand, 0)
            if within is not None and other is root and start == offset + within:
                found[number] = within
        return found

    def _joined(self, result: Value, op: Op, kept: dict[int, int]) -> list[Piece]:
        """A concat's content: its operands' where they stay in place, bytes of its own elsewhere."""
        pieces: list[Piece] = []
        at = 0
        for number, offset in sorted(kept.items(), key=lambda item: item[1]):
            if offset > at:
                pieces.append((result, at, offset - at))
            pieces.extend(self.pieces[op.operands[number]])
            at = offset + op.operands[number].type.nbytes
        if result.type.nbytes > at:
            pieces.append((result, at, result.type.nbytes - at))
        return pieces

    def _part(self, value: Value, start: int, length: int) -> list[Piece]:
        """Bytes [start, start + length) of a value's content."""
        found: list[Piece] = []
        at, end = 0, start + length
        for origin, offset, size in self.pieces[value]:
            low, high = max(start, at), min(end, at + size)
            if low < high:
                found.append((origin, offset + low - at, high - low))
            at += size
        return found

    def _writable(self, index: int, op: Op, at: _Range) -> None:
        space = at.space
        if isinstance(space, Value) and at.start < at.end:
            if space.role in (Role.INPUT, Role.WEIGHT) or (space.op is not None and space.op.name == "constant"):
                self._fail(op, at.value, f"expected no write to %{space.name}, which must not change", index)

    def _apart(self, index: int, op: Op, at: _Range, reads: list[_Range], kept: dict[int, int], first: bool) -> None:
        """The bytes written must not be read by the same op, other than as its rules allow."""
        over = op.plan.in_place if first else None
        allowed = in_place_operands(op) if over is not None else ()
        if over is not None and over not in allowed and _registered(op):
            self._fail(op, at.value, f"expected in_place to be one of {list(allowed)}, got {over}", index)
        written = _without(at, [reads[number] for number in kept])
        for number, read in enumerate(reads):
            place = bisect_right(written, read.start, key=lambda part: part.end)  # They are in order and apart.
            if place == len(written) or not written[place].overlaps(read):
                continue
            same = (read.start, read.end) == (at.start, at.end)
            if same and not _registered(op) and at.value.root is read.value.root:
                continue  # A foreign op's next version of the operand's storage.
            if not (same and (number == over or (number in allowed and over is not None))):
                self._fail(op, at.value, f"expected bytes apart from operand {number} (%{read.value.name})", index)

    def _returns(self) -> None:
        """Returned values are whole at the end, each in a buffer that is exactly its own."""
        end = len(self.function.ops)
        seen: set[Value] = set()
        for value in self.function.returns:
            if self.partial:
                self._expect(end, None, self._range(end, None, value))
                continue
            root = value.alias.root if value.alias else value
            constant = root.op is not None and root.op.name == "constant"
            if root in seen or constant or root.type.nbytes != value.type.nbytes:
                self._fail(None, value, "expected a returned value with a buffer of its own (run materialize-returns)")
            if root.role in (Role.INPUT, Role.WEIGHT) or value.role is not None:
                self._fail(None, value, "expected a returned value to be no parameter (run materialize-returns)")
            seen.add(root)
            self._expect(end, None, self._range(end, None, value))
        for param in self.function.params:  # The next run reads them.
            if param in self.placed and all(value.root is not param for value in self.function.returns):
                self._expect(end, None, self._range(end, None, param))

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


def _without(at: _Range, kept: Iterable[_Range]) -> list[_Range]:
    """The parts of `at` outside `kept`: what an op changes that leaves operands where they lie in its result."""
    parts: list[_Range] = []
    start = at.start
    for other in sorted(kept, key=lambda item: item.start):
        if other.start > start:
            parts.append(_Range(at.value, at.space, start, other.start))
        start = max(start, other.end)
    if start < at.end:
        parts.append(_Range(at.value, at.space, start, at.end))
    return parts


def _registered(op: Op) -> bool:
    return op.region is not None or lookup(op.name) is not None
