# SPDX-License-Identifier: Apache-2.0
"""Where weights and constants lie in the weight slab, the one buffer that holds them all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from memc.ir.core import Array, Function, Module, Role, Value
from memc.ir.liveness import align


@dataclass(frozen=True)
class Slot:
    """One weight or constant in the slab."""

    value: Value
    name: str
    """In the safetensors file."""
    offset: int
    """Bytes from the start of the slab, a multiple of the alignment."""


def slab_slots(function: Function, alignment: int) -> list[Slot]:
    """Weight and state parameters in their order, then constants in theirs, each at the next multiple of `alignment` bytes."""
    slots: list[Slot] = []
    taken = {"__metadata__", *(p.name for p in function.params)}
    offset = 0
    for value in fixed_values(function):
        name = value.name if value.op is None else f"constant.{value.name}"
        while name in taken and (value.op is not None or name == "__metadata__"):
            name += "_"
        taken.add(name)
        slots.append(Slot(value, name, offset))
        offset = align(offset + value.type.nbytes, alignment)
    return slots


def slab_bytes(slots: list[Slot], alignment: int) -> int:
    """Size of the slab, a multiple of `alignment`."""
    return max((align(s.offset + s.value.type.nbytes, alignment) for s in slots), default=0)


def fixed_values(function: Function) -> Iterator[Value]:
    yield from function.params_of(Role.WEIGHT, Role.STATE)
    for op in function.ops:
        if op.name == "constant":
            yield op.result


def slot_data(module: Module, slot: Slot) -> Array:
    """The data of a slot, row-major."""
    if slot.value.op is None:
        return np.ascontiguousarray(module.weights[slot.value.name]).reshape(slot.value.type.shape)
    data = slot.value.op.attrs["value"]
    assert isinstance(data, np.ndarray)
    return np.ascontiguousarray(data).reshape(slot.value.type.shape)
