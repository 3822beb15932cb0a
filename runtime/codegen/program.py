# SPDX-License-Identifier: Apache-2.0
"""A planned function as a program of TVM's virtual machine: tensors at their addresses, then one call per kernel.

The machine's functions (also part of the artifact's documented interface):

    arena() -> Storage                    the arena, to allocate once
    weights() -> Storage                  the weight slab, to allocate once
    bytes_of_weights(Storage) -> Tensor   the slab as u8[n], to fill once
    output.N() -> Tensor                  memory for output N, from the machine's pool
    interface() -> str                    what plan.json says of inputs, outputs, weights and sizes, as JSON
    main(arena, weights, inputs..., outputs...)   one run: reads the input tensors, fills the output tensors
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Any

import tvm
from tvm import relax

from memc.ir.byte_range import ByteRange
from memc.ir.core import Function, Op, Role, Value
from memc.ir.errors import UnsupportedError, UsageError
from memc.ir.liveness import ARENA, arena_bytes, is_fixed, output_roots, updates_state
from memc.ir.ops.rules.base import chosen_kernel, definition, lookup
from memc.ir.types import DType
from memc.runtime.artifact.weight_slab import slab_bytes, slab_slots
from memc.runtime.codegen.expressions import STORED, KernelError
from memc.runtime.codegen.joint import parameters
from memc.runtime.codegen.kernels import KernelTable
from memc.runtime.codegen.lanes import Place, lower_lanes
from memc.runtime.codegen.row_plan import plan_rows
from memc.runtime.target import CodeTarget

DEVICE = 0
"""Index of the device among the virtual machine's."""

SMALLEST = 64
"""Bytes of a storage that holds nothing."""


@dataclass
class Emitter:
    """The state of writing one program."""

    function: Function
    target: CodeTarget
    table: KernelTable
    builder: relax.ExecBuilder = field(default_factory=relax.ExecBuilder)
    registers: dict[Value, int] = field(default_factory=dict)
    """The register of each value's tensor."""
    storages: dict[Value, tuple[int, int]] = field(default_factory=dict)
    """The register of the storage and the offset in it (bytes), for roots in the arena or among the weights."""
    tensors: dict[Value, int] = field(default_factory=dict)
    """The register of the tensor with all bytes, for roots that the caller gives."""
    sizes: dict[int, int] = field(default_factory=dict)
    """Bytes of the arena and of the weights, by the register of the storage."""
    wholes: dict[tuple[Value | int, DType], int] = field(default_factory=dict)
    """The registers of the vectors that `whole` made."""
    next_register: int = 0
    symbols: set[str] = field(default_factory=set)
    """Packed functions called besides the kernels: the library's."""
    calls: list[tuple[int, str]] = field(default_factory=list)
    """The kernel calls of a run, in order: index of the op (the first, of a joint kernel) among the function's, and name."""

    @cached_property
    def readers(self) -> dict[Value, list[Op]]:
        """The ops that read each value."""
        return self.function.uses()

    @cached_property
    def returned(self) -> set[Value]:
        return set(self.function.returns)

    def fresh(self) -> int:
        self.next_register += 1
        return self.next_register - 1

    def call(self, name: str, arguments: Sequence[Any], result: bool = False) -> int | None:
        """Emit a call; ints and floats among the arguments are `Immediate`s."""
        dst = self.fresh() if result else None
        encoded = [self.builder.convert_constant(a.value) if isinstance(a, Immediate) else a for a in arguments]
        self.builder.emit_call(name, encoded, dst=None if dst is None else self.builder.r(dst))
        return dst

    def register_of(self, value: Value) -> int:
        """The register with the tensor of a value, made when it is first asked for."""
        if value not in self.registers:
            offset, root = value.offset_in_root, value.root
            dtype = tvm.DataType(STORED[value.type.dtype])
            if root in self.storages:
                storage, base = self.storages[root]
                arguments = [self.builder.r(storage), Immediate(base + offset), tuple(value.type.shape), dtype]
                made = self.call("vm.builtin.alloc_tensor", arguments, result=True)
            else:
                whole = self.builder.r(self.tensors[root])
                made = self.call(
                    "runtime.TVMTensorCreateView",
                    [whole, tuple(value.type.shape), dtype, Immediate(offset)],
                    result=True,
                )
                base = 0
            if base + offset:
                # Kernels want the address in the pointer, not beside it.
                made = self.call("vm.builtin.ensure_zero_offset", [self.builder.r(made)], result=True)
            assert made is not None
            self.registers[value] = made
        return self.registers[value]

    def place(self, value: Value) -> Place:
        """The place of a value in what `whole` takes."""
        if value.root in self.storages:
            storage, base = self.storages[value.root]
            return Place(storage, base + value.offset_in_root)
        return Place(value.root, value.offset_in_root)

    def bytes_of(self, storage: Value | int) -> int:
        """Bytes of the arena or the weights, by the register of the storage, or of a tensor that the caller gives."""
        return storage.type.nbytes if isinstance(storage, Value) else self.sizes[storage]

    def whole(self, storage: Value | int, dtype: DType) -> int:
        """The register with all of a storage as a vector of `dtype`."""
        if (storage, dtype) not in self.wholes:
            shape, of = (self.bytes_of(storage) // dtype.itemsize,), tvm.DataType(STORED[dtype])
            if isinstance(storage, Value):
                arguments = [self.builder.r(self.tensors[storage]), shape, of, Immediate(0)]
                made = self.call("runtime.TVMTensorCreateView", arguments, result=True)
            else:
                arguments = [self.builder.r(storage), Immediate(0), shape, of]
                made = self.call("vm.builtin.alloc_tensor", arguments, result=True)
            assert made is not None
            self.wholes[storage, dtype] = made
        return self.wholes[storage, dtype]


@dataclass(frozen=True)
class Immediate:
    """A number among a call's arguments."""

    value: int | float


@dataclass(frozen=True)
class Program:
    """A function's program and what it needs."""

    builder: relax.ExecBuilder
    symbols: tuple[str, ...]
    """Library functions it calls, by name."""
    arena_bytes: int
    weights_bytes: int
    calls: tuple[tuple[int, str], ...]
    """The kernel calls of a run, in order: index of the op (the first, of a joint kernel) among the function's, and name."""


def emit(function: Function, target: CodeTarget, table: KernelTable) -> Program:
    """The program of a planned function; its kernels are added to `table`.

    Raises UnsupportedError for foreign ops.
    """
    emitter = Emitter(function, target, table)
    slots = slab_slots(function, target.alignment)
    arena = arena_bytes(function, target.alignment)
    weights = slab_bytes(slots, target.alignment)
    emit_storage(emitter, "arena", arena)
    emit_storage(emitter, "weights", weights)
    emit_slab(emitter, weights)
    emit_outputs(emitter)
    emitter.sizes = {0: arena, 1: weights}
    emit_main(emitter, slots)
    return Program(emitter.builder, tuple(sorted(emitter.symbols)), arena, weights, tuple(emitter.calls))


def storage_arguments(emitter: Emitter, nbytes: int) -> list[Any]:
    b = emitter.builder
    scope = b.convert_constant("global")
    return [b.vm_state(), (max(nbytes, SMALLEST),), Immediate(DEVICE), tvm.DataType("uint8"), scope]


def emit_storage(emitter: Emitter, name: str, nbytes: int) -> None:
    emitter.next_register = 0
    with emitter.builder.function(name, 0, []):
        register = emitter.call("vm.builtin.alloc_storage", storage_arguments(emitter, nbytes), result=True)
        emitter.builder.emit_ret(emitter.builder.r(register))


def emit_slab(emitter: Emitter, nbytes: int) -> None:
    emitter.next_register = 1
    with emitter.builder.function("bytes_of_weights", 1, ["weights"]):
        dtype = tvm.DataType("uint8")
        arguments = [emitter.builder.r(0), Immediate(0), (nbytes,), dtype]
        register = emitter.call("vm.builtin.alloc_tensor", arguments, result=True)
        emitter.builder.emit_ret(emitter.builder.r(register))


def emit_outputs(emitter: Emitter) -> None:
    for n, value in enumerate(given_back(emitter.function)):
        emitter.next_register = 0
        with emitter.builder.function(f"output.{n}", 0, []):
            arguments = storage_arguments(emitter, value.type.nbytes)
            storage = emitter.call("vm.builtin.alloc_storage", arguments, result=True)
            dtype = tvm.DataType(value.type.dtype.numpy.name)
            arguments = [emitter.builder.r(storage), Immediate(0), tuple(value.type.shape), dtype]
            register = emitter.call("vm.builtin.alloc_tensor", arguments, result=True)
            emitter.builder.emit_ret(emitter.builder.r(register))


def emit_interface(builder: relax.ExecBuilder, text: str) -> None:
    """What the code needs of who runs it, by which `memc.load` checks the plan."""
    with builder.function("interface", 0, []):
        builder.emit_call("vm.builtin.copy", [builder.convert_constant(text)], dst=builder.r(0))
        builder.emit_ret(builder.r(0))


def emit_main(emitter: Emitter, slots: Sequence[Any]) -> None:
    function, b = emitter.function, emitter.builder
    inputs = function.params_of(Role.INPUT)
    returned = given_back(function)
    names = ["arena", "weights", *[p.name for p in inputs], *[f"output.{n}" for n in range(len(returned))]]
    emitter.tensors = {p: 2 + n for n, p in enumerate(inputs)}
    emitter.registers.update({v: r for v, r in emitter.tensors.items() if v.type.dtype is not DType.BF16})
    emitter.next_register = len(names)
    outside = output_roots(function)
    for slot in slots:
        emitter.storages[slot.value] = (1, slot.offset)
    for n, value in enumerate(returned):
        if value.root not in outside:
            raise UsageError(f"returned value %{value.name} has no buffer of its own: run the pass materialize-returns")
        emitter.tensors[value.root] = 2 + len(inputs) + n
        if value.type.dtype is not DType.BF16:  # Kernels see bf16 as its bits, by a view.
            emitter.registers[value] = 2 + len(inputs) + n
    for value in function.values():
        root = value.root
        if root not in emitter.storages and root not in emitter.tensors and not is_fixed(root):
            emitter.storages[root] = (0, arena_offset(root))
    with b.function("main", len(names), names):
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


def given_back(function: Function) -> list[Value]:
    """The returned values that callers get: not the new contents of states, which stay where the states are."""
    return [value for value in function.returns if not updates_state(value)]


def arena_offset(root: Value) -> int:
    if root.type.elements == 0:
        return 0
    if root.placement is None or root.placement.space != ARENA:
        raise UsageError(f"%{root.name} has no place in the arena: end the pipeline with assign-addresses")
    return root.placement.offset


def emit_op(emitter: Emitter, op: Op) -> list[str]:
    """Emit the calls of one op, and give what they call; none for constants, views and results without elements."""
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
    for operand, start in pieces:
        for kernel in emitter.table.piece(op, operand, start):
            called.append(kernel.name)
            emitter.call(kernel.name, [emitter.builder.r(emitter.register_of(v)) for v in (operand, op.result)])
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


def missing_pieces(op: Op) -> list[tuple[Value, tuple[int, ...]]] | None:
    """The operands that must be copied into the result of a concat some of whose operands already lie in it.

    Each with the index in the result where it begins. None for any other op.
    """
    rule = definition(op).slices if lookup(op.name) else None
    if rule is None or op.name != "concat":
        return None
    offsets = rule(op)
    axis = op.attrs["axis"]
    assert isinstance(axis, int)
    rest: list[tuple[Value, tuple[int, ...]]] = []
    placed, begin = 0, 0
    for operand, offset in zip(op.operands, offsets):
        there = operand.root is op.result.root and offset is not None
        if there and operand.offset_in_root == op.result.offset_in_root + (offset or 0):
            placed += 1
        elif operand.type.elements:
            rest.append((operand, tuple(begin if d == axis else 0 for d in range(operand.type.rank))))
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
    spans = [ByteRange(place.storage, place.offset, place.offset + nbytes) for place, nbytes in places]
    return any(a.meets(b) for a, b in combinations(spans, 2))


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
