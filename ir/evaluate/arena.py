# SPDX-License-Identifier: Apache-2.0
"""What a planned module computes inside byte buffers, at the planned offsets.

Lifetimes are computed here, independently of `liveness`, so that a mistake there shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ..copies import is_copy, is_start
from ..core import Array, Function, Op, Role, Value
from ..data_dependent_extents import cut
from ..errors import CheckError, InvalidError, MemcError
from ..liveness import updates_state
from ..module import Module
from ..text.printer import print_name
from ..verify.aliases import Ties, in_place_rule, ties_of
from .async_copies import Lanes, Times
from .joint_kernels import run_joint
from .plain import at, bind, result_keys, run_op


def evaluate_in_arena(
    module: Module, inputs: Mapping[str, Array], *, poison: int = 0xFF, copies: Times = "start"
) -> dict[str, Array]:
    """Run @main as compiled code does: every value at its planned bytes of a shared, poisoned buffer.

    Each space that placements name is one byte buffer filled with `poison` (0xFF reads as NaN or -1). An op reads its
    operands from their bytes when it runs. Before it reads them, the bytes it writes (its results' and its
    workspace's, but not those an in-place op or a concat slice shares with an operand) are poisoned, as a kernel
    may have written them already; a storage's bytes are poisoned again after its last use. Any overlap of live
    values thus spoils results. Returned values have buffers of their own. `copies` between spaces run at their start, at their
    done, or in pieces between these that a seed decides, in the sequence of their lane; their destinations are poisoned first.

    Results are as of `evaluate`. Raises InvalidError for a function without a complete plan, CheckError where the
    plan makes an op fail, or changes an input, a weight or a constant.
    """
    function = module.main
    bound = bind(module, function, inputs)
    run = ArenaRun(function, bound, poison, copies)
    joint = _joint_kernels(function)
    for index, op in enumerate(function.ops):
        try:
            run.lanes.advance()
            if is_copy(op):
                run.copy_step(index, op)
            elif op not in joint:
                run.step(index, op)
            elif op is joint[op][-1]:
                run.joint_step(index, joint[op])
        except MemcError:
            raise
        except Exception as error:
            raise CheckError(
                f"op {index} {op.name}{at(op)}: expected to run in the arena, got {type(error).__name__}: {error}"
            ) from error
    for value, before in run.constant_data():
        if run.read(value).tobytes() != before.tobytes():
            raise CheckError(f"{print_name(value)}: expected its bytes unchanged by the run, got them overwritten")
    return cut({name: run.read(v).copy() for name, v in zip(result_keys(function), function.returns)}, function.extents)


class ArenaRun:
    """The buffers and their state between ops."""

    def __init__(self, function: Function, bound: dict[Value, Array], poison: int, copies: Times = "start") -> None:
        self.function = function
        self.poison = poison
        self.lanes = Lanes(copies, poison)
        self.buffers: dict[Value, Array] = {}
        """Own bytes of roots outside any space: parameters, constants, returned values."""
        self.spaces: dict[str, Array] = {}
        self.original = {p: a for p, a in bound.items() if p.role is not Role.STATE}
        """Arrays whose bytes must stay as they are."""
        for param, array in bound.items():
            if param.placement is None:
                self.buffers[param] = _bytes(array).copy()
        self._allocate()
        for param, array in bound.items():
            if param.placement is not None:
                self._bytes_of(param)[:] = _bytes(array)
        self.ends = self._last_uses()

    def step(self, index: int, op: Op) -> None:
        """Run op number `index`."""
        ties = ties_of(op)
        if op.name == "constant":
            (data,) = run_op(op, [])
            self.buffers[op.result] = _bytes(data).copy()
            self.original[op.result] = data
            return
        self._check_overlap(op, ties)
        for number, result in enumerate(op.results):
            self._spoil(op, ties if number == 0 else Ties(), result)
        if op.workspace is not None:
            self._bytes_of(op.workspace)[:] = self.poison
        self.lanes.advance()
        # Copies: aligned, which numpy's loops need for the same rounding, and out of the results' way.
        found = run_op(op, [self.read(v).copy() for v in op.operands])
        for number, (result, array) in enumerate(zip(op.results, found)):
            if not (number == 0 and ties.view):
                self._bytes_of(result)[:] = _bytes(array)
        if op.workspace is not None:
            self._bytes_of(op.workspace)[:] = self.poison
        for root in self.ends.get(index, ()):
            self._bytes_of(root)[:] = self.poison

    def copy_step(self, index: int, op: Op) -> None:
        """Begin a copy, or wait for one."""
        if is_start(op):
            source, pending = op.operands[0], op.results[0]
            self.lanes.start(pending, str(op.attrs["lane"]), self._bytes_of(source), self._bytes_of(pending))
        else:
            self.lanes.finish(op.operands[0])
            if not ties_of(op).view:
                raise InvalidError(f"{print_name(op.results[0])}: expected an alias of what the copy writes, got none")
        for root in self.ends.get(index, ()):
            self._bytes_of(root)[:] = self.poison

    def joint_step(self, last: int, ops: Sequence[Op]) -> None:
        """Run the ops of a joint kernel, which ends with op number `last`, in an order that its threads may take."""
        run_joint(ops, self.read, last)
        results = [(op.result, self.read(op.result).copy()) for op in ops]
        ended = {root for i in range(last + 1) if self.function.ops[i] in ops for root in self.ends.get(i, ())}
        for root in ended:
            self._bytes_of(root)[:] = self.poison
        for value, data in results:
            if value.root not in ended:
                self.read(value)[...] = data

    def read(self, value: Value) -> Array:
        """The value's array as its bytes are now (a view of them)."""
        return self._bytes_of(value).view(value.type.dtype.numpy).reshape(value.type.shape)

    def constant_data(self) -> Iterator[tuple[Value, Array]]:
        """Inputs, weights and constants with the data they must still have."""
        yield from self.original.items()

    def _bytes_of(self, value: Value) -> Array:
        root = value.root
        start, size = value.offset_in_root, value.type.nbytes
        if root in self.buffers:
            return self.buffers[root][start : start + size]
        place = root.placement
        if place is None:
            raise InvalidError(f"{print_name(root)}: expected a placement (run assign-addresses), got none")
        return self.spaces[place.space][place.offset + start : place.offset + start + size]

    def _allocate(self) -> None:
        """Buffers for the returned values and one for each space."""
        for value in self.function.returns:
            root = value.root
            if updates_state(value):
                continue
            owned = root.op is not None and root.op.name != "constant" and root not in self.buffers
            if not owned or root.type.nbytes != value.type.nbytes:
                raise InvalidError(
                    f"{print_name(value)}: expected a returned value with bytes of its own (run materialize-returns)"
                )
            self.buffers[root] = np.full(root.type.nbytes, self.poison, np.uint8)
        sizes: dict[str, int] = {}
        for value in self.function.values():
            place = value.placement
            if place is not None and value.alias is None and value not in self.buffers:
                sizes[place.space] = max(sizes.get(place.space, 0), place.offset + value.type.nbytes)
        self.spaces = {name: np.full(size, self.poison, np.uint8) for name, size in sizes.items()}

    def _last_uses(self) -> dict[int, list[Value]]:
        """The roots in spaces that are read or written for the last time by each op."""
        last: dict[Value, int] = {}
        for index, op in enumerate(self.function.ops):
            last.update((value.root, index) for value in (*op.operands, *op.results))
        ends: dict[int, list[Value]] = {}
        for root, index in last.items():
            if root not in self.buffers and root.op is not None and not _is_constant(root):
                ends.setdefault(index, []).append(root)
        for state, index in self._departures().items():
            ends.setdefault(index, []).append(state)
        return ends

    def _departures(self) -> dict[Value, int]:
        """The states whose bytes in a space are read for the last time before an op writes them again, with that last op."""
        found: dict[Value, int] = {}
        back: set[Value] = set()
        for index, op in enumerate(self.function.ops):
            back.update(value.root for value in op.results)
            for root in (value.root for value in op.operands):
                if root.role is Role.STATE and root.placement is not None and is_copy(op) and root not in back:
                    found[root] = index
        return {state: index for state, index in found.items() if state in back}

    def _spoil(self, op: Op, ties: Ties, result: Value) -> None:
        """Poison the bytes that the op writes, as a kernel may write them before it reads its operands."""
        if ties.view or ties.in_place is not None:
            return
        kept = [(v, self._bytes_of(v).copy()) for v in (op.operands[k] for k in ties.slices)]
        self._bytes_of(result)[:] = self.poison
        for value, data in kept:
            self._bytes_of(value)[:] = data

    def _check_overlap(self, op: Op, ties: Ties) -> None:
        """An in-place op's other operands are apart from the result, or exactly it where the op allows that too."""
        if ties.in_place is None:
            return
        allowed = in_place_rule(op)
        target = self._bytes_of(op.results[0])
        for number, operand in enumerate(op.operands):
            source = self._bytes_of(operand)
            if number == ties.in_place or not np.may_share_memory(source, target):
                continue
            same = source.size == target.size and source.ctypes.data == target.ctypes.data
            if not (same and number in allowed):
                raise CheckError(
                    f"{op.name} {print_name(op.results[0])}: expected operand {number} ({print_name(operand)}) apart "
                    "from the bytes written in place, got an overlap"
                )


def _joint_kernels(function: Function) -> dict[Op, list[Op]]:
    """The ops of each joint kernel, by each of its ops."""
    groups: dict[int, list[Op]] = {}
    for op in function.ops:
        if op.plan.joint is not None:
            groups.setdefault(op.plan.joint, []).append(op)
    return {op: ops for ops in groups.values() for op in ops}


def _is_constant(value: Value) -> bool:
    return value.op is not None and value.op.name == "constant"


def _bytes(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
