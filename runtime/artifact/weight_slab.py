# SPDX-License-Identifier: Apache-2.0
"""The layout of the weight slab, the one buffer that holds all weights and constants but for those in the space `host` or the arena."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from memc.ir.copies import arena_states, host_params
from memc.ir.core import Array, Function, Role, Value
from memc.ir.module import Module
from memc.ir.ops.shared.op_def import chosen_kernel
from memc.ir.ops.shared.packing import Packing
from memc.ir.sizes import align
from memc.ir.spaces import WEIGHTS


@dataclass(frozen=True)
class SlabEntry:
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


def slab_entries(function: Function, alignment: int) -> list[SlabEntry]:
    """Weight and state parameters in their order, then constants in theirs, each at the next multiple of `alignment` bytes; but
    those that lie in the space `host` or the arena where they are placed."""
    entries: list[SlabEntry] = []
    packings = packed_weights(function)
    taken = {"__metadata__", *(p.name for p in function.params)}
    offset = 0
    placed = {*host_params(function), *arena_states(function)}
    for value in fixed_values(function):
        name = value.name if value.op is None else f"constant.{value.name}"
        while name in taken and (value.op is not None or name == "__metadata__"):
            name += "_"
        taken.add(name)
        if value in placed:
            assert value.placement is not None
            place = value.placement
            entries.append(SlabEntry(value, name, place.offset, packings.get(value), place.space))
            continue
        entries.append(SlabEntry(value, name, offset, packings.get(value)))
        offset = align(offset + value.type.nbytes, alignment)
    return entries


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
            found[_weight_of(op.operands[1])] = kernel.packing(op)
    return found


def _weight_of(value: Value) -> Value:
    """The weight in the space `host` that a value is the copy of; itself if of none."""
    return value.op.operands[1] if value.op is not None and value.op.name == "prefetch_done" else value


def entry_data(module: Module, entry: SlabEntry) -> Array:
    """The data of an entry as it lies in the slab: row-major, or one axis of packed elements."""
    data = module.weights[entry.value.name] if entry.value.op is None else entry.value.op.attrs["value"]
    assert isinstance(data, np.ndarray)
    data = np.ascontiguousarray(data, data.dtype.newbyteorder("=")).reshape(entry.value.type.shape)
    return data if entry.packing is None else np.ascontiguousarray(entry.packing.pack(data))
