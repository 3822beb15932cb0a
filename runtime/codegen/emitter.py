# SPDX-License-Identifier: Apache-2.0
"""Writing one program: registers, and where values lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import tvm
from tvm import relax

from memc.ir.core import Function, Op, Value
from memc.ir.types import DType
from memc.runtime.code_target import CodeTarget
from memc.runtime.codegen.copy_slots import CopySlots
from memc.runtime.codegen.expressions import STORED
from memc.runtime.codegen.kernel_table import KernelTable
from memc.runtime.codegen.multi_tensor import Place


@dataclass(frozen=True)
class Immediate:
    """A number among a call's arguments."""

    value: int | float


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
    """The register of the storage and the offset in it (bytes), for roots in a space."""
    tensors: dict[Value, int] = field(default_factory=dict)
    """The register of the tensor with all bytes, for roots that the caller gives."""
    sizes: dict[int, int] = field(default_factory=dict)
    """Bytes of each space, by the register of its storage."""
    wholes: dict[tuple[Value | int, DType], int] = field(default_factory=dict)
    """The registers of the vectors that `whole` made."""
    tickets: dict[Value, int] = field(default_factory=dict)
    """The registers of what waits for copies, by their pending values."""
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
    def copies(self) -> CopySlots:
        """The lanes and slots of copies between spaces."""
        return CopySlots.of(self.function)

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
        """Bytes of a space, by the register of its storage, or of a tensor that the caller gives."""
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
