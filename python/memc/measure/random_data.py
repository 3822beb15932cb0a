# SPDX-License-Identifier: Apache-2.0
"""Seeded random data for inputs."""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np

from memc.ir.core import Array
from memc.ir.errors import DeviceMemoryError
from memc.ir.sizes import format_size
from memc.ir.types import DType, TensorType


def random_inputs(types: Mapping[str, TensorType], given: Mapping[str, Array], seed: int) -> dict[str, Array]:
    """`given`, and seeded random data for the other inputs, in the order of `types`. Raises DeviceMemoryError if this
    machine's memory cannot hold them."""
    require_memory("inputs", sum(type.nbytes for type in types.values()))
    generator = np.random.default_rng(seed)
    return {name: given[name] if name in given else random_array(type, generator) for name, type in types.items()}


def require_memory(what: str, needed: int) -> None:
    """Raise DeviceMemoryError if this machine's memory cannot hold so many bytes."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory:
        raise DeviceMemoryError(
            f"{what}: expected at most the {format_size(memory)} of this machine's memory, got {format_size(needed)}"
        )


def random_array(type: TensorType, generator: np.random.Generator) -> Array:
    """Standard normal floats; integers and booleans of 0 and 1, which are valid as ids, masks and bytes alike."""
    if type.dtype.is_float:
        return generator.standard_normal(type.shape).astype(type.dtype.numpy)
    if type.dtype is DType.BOOL:
        return generator.integers(0, 2, type.shape).astype(np.bool_)
    return generator.integers(0, 2, type.shape).astype(type.dtype.numpy)
