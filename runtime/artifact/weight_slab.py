# SPDX-License-Identifier: Apache-2.0
"""The layout of the weight slab, the one buffer that holds all weights and constants."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from memc.ir.core import Array, Function, Role, Value
from memc.ir.module import Module
from memc.ir.ops.rules.base import chosen_kernel
from memc.ir.ops.rules.packing import Packing
from memc.ir.sizes import align
from memc.ir.spaces import WEIGHTS


@dataclass(frozen=True)
class Slot:
    """One weight or constant in the slab."""

    value: Value
    name: str
    """The name in the safetensors file."""
    offset: int
    """Bytes from the start of the slab, a multiple of the alignment."""
    packing: Packing | None = None
    """How the elements are ordered, if not plainly."""
    space: str = WEIGHTS
    """The memory space of the slab."""


def slab_slots(function: Function, alignment: int) -> list[Slot]:
    """Weight and state parameters in their order, then constants in theirs, each at the next multiple of `alignment` bytes."""
    slots: list[Slot] = []
    packings = packed_weights(function)
    taken = {"__metadata__", *(p.name for p in function.params)}
    offset = 0
    for value in fixed_values(function):
        name = value.name if value.op is None else f"constant.{value.name}"
        while name in taken and (value.op is not None or name == "__metadata__"):
            name += "_"
        taken.add(name)
        slots.append(Slot(value, name, offset, packings.get(value)))
        offset = align(offset + value.type.nbytes, alignment)
    return slots


def fixed_values(function: Function) -> Iterator[Value]:
    yield from function.params_of(Role.WEIGHT, Role.STATE)
    for op in function.ops:
        if op.name == "constant":
            yield op.result


def packed_weights(function: Function) -> dict[Value, Packing]:
    """The layouts of the weights that library kernels read in panels (`pack-weights` sees to it that nothing else does)."""
    found: dict[Value, Packing] = {}
    for op in function.ops:
        kernel = chosen_kernel(op)
        if kernel is not None and kernel.packing is not None:
            found[op.operands[1]] = kernel.packing(op)
    return found


def slot_data(module: Module, slot: Slot) -> Array:
    """The data of a slot as it lies in the slab: row-major, or one axis of packed elements."""
    data = module.weights[slot.value.name] if slot.value.op is None else slot.value.op.attrs["value"]
    assert isinstance(data, np.ndarray)
    data = np.ascontiguousarray(data, data.dtype.newbyteorder("=")).reshape(slot.value.type.shape)
    return data if slot.packing is None else np.ascontiguousarray(slot.packing.pack(data))
