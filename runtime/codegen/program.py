# SPDX-License-Identifier: Apache-2.0
"""A planned function as a program of TVM's virtual machine: tensors at their addresses, then one call per kernel.

The machine's functions (also part of the artifact's documented interface):

    space.NAME() -> Storage               a memory space, such as the arena, to allocate once
    bytes.NAME(Storage) -> Tensor         a space of weights as u8[n], to fill once
    output.N() -> Tensor                  memory for output N, from the machine's pool
    interface() -> str                    what plan.json says of spaces, inputs, outputs and weights, as JSON
    main(spaces..., inputs..., outputs...)   one run: reads the input tensors, fills the output tensors
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import tvm
from tvm import relax

from memc.ir.byte_range import ByteRange
from memc.ir.copies import HOSTS, is_copy
from memc.ir.core import Function, Op, Role, Value
from memc.ir.errors import UnsupportedError, UsageError
from memc.ir.liveness import is_fixed, output_roots
from memc.ir.ops.shared.op_def import chosen_kernel, definition, lookup
from memc.ir.spaces import HOST, DeviceId, is_shared_buffer
from memc.ir.target import Target
from memc.ir.types import DType
from memc.runtime.artifact.storages import Storage
from memc.runtime.artifact.weight_slab import slab_entries
from memc.runtime.code_target import CodeTarget
from memc.runtime.codegen.allocation import emit_allocation, given_back, storages_of
from memc.runtime.codegen.copies import emit_copy
from memc.runtime.codegen.emitter import Emitter, Immediate
from memc.runtime.codegen.expressions import KernelError
from memc.runtime.codegen.horizontal_fusion import parameters
from memc.runtime.codegen.kernel_table import KernelTable
from memc.runtime.codegen.multi_tensor import lower_lanes
from memc.runtime.codegen.row_plan import plan_rows


@dataclass(frozen=True)
class Program:
    """A function's program and what it needs."""

    builder: relax.ExecBuilder
    symbols: tuple[str, ...]
    """Library functions it calls, by name."""
    storages: tuple[Storage, ...]
    """Its memory spaces; it is given those that are allocated, in this order."""
    calls: tuple[tuple[int, str], ...]
    """The kernel calls of a run, in order: index of the op (the first, of a joint kernel) among the function's, and name."""


def emit(function: Function, target: CodeTarget, table: KernelTable) -> Program:
    """The program of a planned function; its kernels are added to `table`.

    Raises UnsupportedError for foreign ops.
    """
    emitter = Emitter(function, target, table)
    storages = storages_of(function, target)
    require_reach(storages, target)
    emit_allocation(emitter, storages)
    emit_main(emitter, [storage for storage in storages if storage.is_allocated])
    return Program(emitter.builder, tuple(sorted(emitter.symbols)), storages, tuple(emitter.calls))


def require_reach(storages: Sequence[Storage], target: CodeTarget) -> None:
    """Raise UnsupportedError for a space on a device whose memory kernels do not read and write, and a space `host` on one that
    copies do not reach."""
    device = target.target.device
    for storage in storages:
        wanted, why = device, "which runs the kernels"
        if storage.name == HOST and HOSTS[target.target.kind].kind != device.kind:
            wanted, why = DeviceId(HOSTS[target.target.kind].kind, device.index), "which copies reach"
        if storage.device != wanted:
            raise UnsupportedError(
                f"space {storage.name}: expected it on {wanted}, {why}, got {storage.device}: it can be planned but not compiled"
            )


def emit_interface(builder: relax.ExecBuilder, text: str) -> None:
    """What the code needs of who runs it, by which `memc.load` checks the plan."""
    with builder.function("interface", 0, []):
        builder.emit_call("vm.builtin.copy", [builder.convert_constant(text)], dst=builder.r(0))
        builder.emit_ret(builder.r(0))


def emit_main(emitter: Emitter, storages: Sequence[Storage]) -> None:
    """The function of a run, which is given the storages of spaces."""
    function, b = emitter.function, emitter.builder
    names = place_values(emitter, storages)
    with b.function("main", len(names), names):
        for register, value in enumerate([*function.params_of(Role.INPUT), *given_back(function)], len(storages)):
            if value.type.elements:
                emitter.call(emitter.table.check(value.type), [b.r(register)])
        joint = joint_ops(function)
        for index, op in enumerate(function.ops):
            number = op.plan.joint
            if number is None:
                emitter.calls += [(index, name) for name in emit_op(emitter, op)]
            elif joint[number][0] is op:  # Between it and the others are none with code.
                emitter.calls += [(index, name) for name in emit_joint(emitter, joint[number])]
        b.emit_ret(b.void_arg())


def joint_ops(function: Function) -> dict[int, list[Op]]:
    """The ops of each joint kernel, by its number."""
    found: dict[int, list[Op]] = {}
    for op in function.ops:
        if op.plan.joint is not None:
            found.setdefault(op.plan.joint, []).append(op)
    return found


def place_values(emitter: Emitter, storages: Sequence[Storage]) -> list[str]:
    """Tell the emitter where every value of the function lies. Returns the names of the parameters of a run."""
    function = emitter.function
    inputs = function.params_of(Role.INPUT)
    returned = given_back(function)
    first = len(storages)
    names = [s.name for s in storages]
    names += [*[p.name for p in inputs], *[f"output.{n}" for n in range(len(returned))]]
    emitter.next_register = len(names)
    emitter.sizes = {register: storage.bytes for register, storage in enumerate(storages)}
    numbers = {storage.name: register for register, storage in enumerate(storages)}
    emitter.tensors = {p: first + n for n, p in enumerate(inputs)}
    emitter.registers.update({v: r for v, r in emitter.tensors.items() if v.type.dtype is not DType.BF16})
    outside = output_roots(function)
    for entry in slab_entries(function, emitter.target.alignment):
        emitter.storages[entry.value] = (numbers[entry.space], entry.offset)
    for n, value in enumerate(returned):
        if value.root not in outside:
            raise UsageError(f"returned value %{value.name} has no buffer of its own: run the pass materialize-returns")
        emitter.tensors[value.root] = first + len(inputs) + n
        if value.type.dtype is not DType.BF16:  # Kernels see bf16 as its bits, by a view.
            emitter.registers[value] = first + len(inputs) + n
    for value in function.values():
        root = value.root
        if root not in emitter.storages and root not in emitter.tensors and not is_fixed(root):
            emitter.storages[root] = planned_place(root, numbers, emitter.target.target)
    return names


def planned_place(root: Value, numbers: Mapping[str, int], target: Target) -> tuple[int, int]:
    """The register of the storage, of those by the name of the space, and the offset in it of a storage of results."""
    if root.type.elements == 0:
        return 0, 0
    place = root.placement
    if place is None or is_shared_buffer(place.space):
        raise UsageError(f"%{root.name} has no place in the arena: end the pipeline with assign-addresses")
    if all(space.name != place.space or space.holds != "values" for space in target.spaces):
        own = ", ".join(space.name for space in target.spaces if space.holds == "values")
        raise UsageError(f"%{root.name}: expected a place in a space of the target ({own}), got @{place.space}")
    return numbers[place.space], place.offset


def emit_op(emitter: Emitter, op: Op) -> list[str]:
    """Emit the calls of one op, and give what they call; none for constants, views and results without elements."""
    if is_copy(op):
        return emit_copy(emitter, op)
    if op.name == "constant" or all(r.type.elements == 0 for r in op.results) or needs_no_code(op):
        return []
    symbol = op.plan.library_kernel
    if symbol is not None:
        emit_library(emitter, op, symbol)
        return [symbol]
    if lookup(op.name) is None and op.region is None:
        where = f" ({op.location})" if op.location else ""
        raise UnsupportedError(f"op {op.name}{where} is not registered: it can be planned but not compiled")
    pieces = missing_pieces(op)
    if pieces is None:
        return emit_generated(emitter, op)
    called = []
    axis = op.attrs["axis"]
    assert isinstance(axis, int)
    for operand, start in pieces:
        for kernel in emitter.table.piece(op, operand, axis):
            called.append(kernel.name)
            tensors = [emitter.builder.r(emitter.register_of(v)) for v in (operand, op.result)]
            emitter.call(kernel.name, [*tensors, Immediate(start)])
    return called


def needs_no_code(op: Op) -> bool:
    """Whether the result's bytes are already there: a view of operand 0, or a copy onto itself."""
    if len(op.results) != 1 or not op.operands:
        return False
    operand, result = op.operands[0], op.results[0]
    rule = definition(op).view if lookup(op.name) else None
    offset = rule(op) if rule is not None else None
    if op.name == "copy" and operand.type == result.type:
        offset = 0
    if offset is None or result.root is not operand.root:
        return False
    return result.offset_in_root == operand.offset_in_root + offset


def missing_pieces(op: Op) -> list[tuple[Value, int]] | None:
    """The operands that must be copied into the result of a concat some of whose operands already lie in it.

    Each with the index on the axis of the result where it begins. None for any other op.
    """
    rule = definition(op).slices if lookup(op.name) else None
    if rule is None or op.name != "concat":
        return None
    offsets = rule(op)
    axis = op.attrs["axis"]
    assert isinstance(axis, int)
    rest: list[tuple[Value, int]] = []
    placed, begin = 0, 0
    for operand, offset in zip(op.operands, offsets):
        there = operand.root is op.result.root and offset is not None
        if there and operand.offset_in_root == op.result.offset_in_root + (offset or 0):
            placed += 1
        elif operand.type.elements:
            rest.append((operand, begin))
        begin += operand.type.shape[axis]
    return rest if placed else None


def emit_library(emitter: Emitter, op: Op, symbol: str) -> None:
    kernel = chosen_kernel(op)
    if kernel is None or kernel.target != emitter.target.kind:
        raise KernelError(f"{op.name} has no library kernel {symbol} for {emitter.target.kind}")
    values = [*op.operands, *op.results, *([op.workspace] if op.workspace is not None else [])]
    arguments: list[Any] = [emitter.builder.r(emitter.register_of(v)) for v in values]
    arguments += [Immediate(s) for s in kernel.scalars(op)]
    emitter.symbols.add(symbol)
    emitter.call(symbol, arguments)


def emit_joint(emitter: Emitter, ops: Sequence[Op]) -> list[str]:
    if ops[0].plan.lane is not None:
        name = emit_lanes(emitter, ops)
    elif ops[0].plan.rows is not None:
        name = emit_rows(emitter, ops)
    else:
        name = emitter.table.joint(ops)
        if name is not None:
            emitter.call(name, [emitter.builder.r(emitter.register_of(v)) for v in parameters(ops)])
    return [name] if name is not None else [name for op in ops for name in emit_op(emitter, op)]


def emit_rows(emitter: Emitter, ops: Sequence[Op]) -> str | None:
    """One kernel on the rows of tensors, which does not write what only its own ops read; None if there is none."""
    readers = emitter.readers

    def is_read(value: Value) -> bool:
        return value in emitter.returned or any(op not in ops for op in readers.get(value, ()))

    plan = plan_rows(ops, is_read, emitter.target.kind)
    if emitter.target.kind == "llvm" and any_overlap(emitter, plan.parameters):
        # LLVM is told that what is written through one argument is not read through another.
        return None
    name = emitter.table.rows(ops, plan)
    if name is not None:
        emitter.call(name, [emitter.builder.r(emitter.register_of(v)) for v in plan.parameters])
    return name


def any_overlap(emitter: Emitter, values: Sequence[Value]) -> bool:
    """Whether some of the values have bytes in common."""
    places = [(emitter.place(v), v.type.nbytes) for v in values]
    ranges = [ByteRange(place.storage, place.offset, place.offset + nbytes) for place, nbytes in places]
    return any(a.meets(b) for a, b in combinations(ranges, 2))


def emit_lanes(emitter: Emitter, ops: Sequence[Op]) -> str | None:
    """One kernel on tensors of several sizes, which is given whole storages; None if there is none."""
    lanes: dict[int | None, list[Op]] = {}
    for op in ops:
        lanes.setdefault(op.plan.lane, []).append(op)
    storages: list[tuple[Value | int, DType]] = []

    def lowered() -> tvm.tirx.PrimFunc:
        kernel = lower_lanes(list(lanes.values()), emitter.place, emitter.bytes_of, emitter.target.kind)
        storages.extend(kernel.storages)
        return kernel.func

    name = emitter.table.joined(("lanes", ops[0].result.name), ops, "lanes", lowered)
    if name is not None:
        emitter.call(name, [emitter.builder.r(emitter.whole(*storage)) for storage in storages])
    return name


def emit_generated(emitter: Emitter, op: Op) -> list[str]:
    kernels = emitter.table.kernels(op, op.plan.in_place)
    for kernel in kernels:
        values = [*[op.operands[n] for n in kernel.operands], op.results[kernel.result]]
        emitter.call(kernel.name, [emitter.builder.r(emitter.register_of(v)) for v in values])
    return [kernel.name for kernel in kernels]
