# SPDX-License-Identifier: Apache-2.0
"""What an artifact's plan.json says, as `read.py` gives it, and the names of the artifact's files. Needs nothing but Python."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memc.ir.data_dependent_extents import Extent
from memc.ir.footprint import FIXED, INPUTS, OUTPUTS, STATES, Footprint, SpaceFootprint
from memc.ir.messages import shown
from memc.ir.sizes import align
from memc.ir.spaces import IO, DeviceId
from memc.runtime.artifact.storages import Storage

if TYPE_CHECKING:
    from memc.ir.types import TensorType

FORMAT = "memc-artifact"
VERSION = 4
LIBRARY = "model.so"
IMAGE = "kernels.cubin"
WEIGHTS = "weights.safetensors"
PLAN = "plan.json"
TEXT = "model.memir"
SOURCE = "source.onnx"
"""The file of the model that a training step was made of, without the weights that it trains."""

ITEMSIZE = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2, "i64": 8, "i32": 4, "i16": 2, "i8": 1}
ITEMSIZE |= {"u64": 8, "u32": 4, "u16": 2, "u8": 1, "bool": 1}


COPY_START, COPY_DONE = "memc.copy.start", "memc.copy.done"
"""The functions of the native library by which programs begin copies between spaces and wait for them."""

SLAB_OPEN, SLAB_BYTES = "memc.copy.cuda.open", "memc.copy.cuda.bytes"
SLAB_START, SLAB_DONE = "memc.copy.cuda.start", "memc.copy.cuda.done"
"""The same between a CUDA device and the slab of pinned memory that its space `host` is, which `open` makes."""

COUNTER = "random.counter"
"""The state that counts runs, by which random ops draw."""


@dataclass(frozen=True)
class Spec:
    """An input or output."""

    name: str
    dtype: str
    """The element type in the IR's notation, for example f32."""
    shape: tuple[int, ...]
    space: str = IO
    """The memory space that it lies in."""

    @property
    def nbytes(self) -> int:
        """Bytes of the data."""
        return math.prod(self.shape) * ITEMSIZE[self.dtype]

    @property
    def type(self) -> TensorType:
        """As the compiler's tensor type."""
        from memc.ir.types import DType, TensorType

        return TensorType(DType(self.dtype), self.shape)

    def __str__(self) -> str:
        return f"{self.name}: {self.type_text}"

    @property
    def type_text(self) -> str:
        """The type in the IR's notation."""
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class StoredWeight:
    """A weight or constant."""

    spec: Spec
    offset: int
    """Bytes from the start of its space."""
    layout: str
    """How the elements are ordered: `row-major`, or as a library's kernel reads them."""

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """The shape in the weights' file."""
        return self.spec.shape if self.layout == "row-major" else (math.prod(self.spec.shape),)


@dataclass(frozen=True)
class LabelInput:
    """What an input that holds labels is checked for."""

    input: str
    classes: int | None
    """Labels are from 0 to below it; None for labels that are numbers to be met."""
    ignore_index: int | None
    """The label that does not count; None if every label does."""


@dataclass(frozen=True)
class Manifest:
    """What plan.json says about running the model."""

    path: Path
    platform: str
    """Operating system and CPU family that it runs on, for example `linux-x86_64`."""
    kind: str
    arch: str
    cpu: str
    cpu_flags: tuple[str, ...]
    """What the CPU must have, by the names in /proc/cpuinfo."""
    devices: tuple[DeviceId, ...]
    """In the order of the virtual machine; the first runs the kernels."""
    spaces: tuple[Storage, ...]
    """Runs are given those that are allocated, in this order."""
    inputs: tuple[Spec, ...]
    outputs: tuple[Spec, ...]
    extents: tuple[Extent, ...]
    """Which outputs are counts, and of what."""
    library_bytes: int
    """Size of model.so."""
    checksums: dict[str, str]
    """CRC-32 of files, by name: a damaged one with code would end the process, or compute something else. plan.json and the
    weights have theirs in themselves."""
    weights: tuple[StoredWeight, ...]
    states: frozenset[str]
    """Names of those that runs update."""
    library_functions: tuple[str, ...]
    calls: tuple[tuple[int, str], ...]
    """The kernel calls of a run, in order: index of the op among those of model.memir, and name."""
    precision: str
    """`f32`, or what the factors of products and convolutions are rounded to."""
    labels: tuple[LabelInput, ...]
    report: dict[str, Any]
    interface: Mapping[str, Any]
    """What the plan says of the code, as it is written there (`plan_text.INTERFACE`)."""
    plan_checksum: str
    """CRC-32 of plan.json."""

    def space(self, name: str) -> Storage:
        """The memory space of that name. Raises ValueError if there is none."""
        for space in self.spaces:
            if space.name == name:
                return space
        raise ValueError(f"expected a space among {', '.join(s.name for s in self.spaces)}, got {shown(name)}")

    @property
    def trains(self) -> bool:
        """Whether a run is a training step: it updates more than the counter of runs."""
        return bool(self.states - {COUNTER})

    @property
    def footprint(self) -> Footprint:
        """Bytes by space and kind."""
        spaces = (SpaceFootprint(s.name, s.device, s.bytes, self._kinds(s)) for s in self.spaces)
        return Footprint(tuple(spaces), self.devices[0])

    def _kinds(self, space: Storage) -> dict[str, int]:
        def total(specs: Iterable[Spec], alignment: int = 1) -> int:
            return sum(align(spec.nbytes, alignment) for spec in specs if spec.space == space.name)

        if space.holds == "io":
            return {INPUTS: total(self.inputs), OUTPUTS: total(self.outputs)}
        if space.holds == "weights":
            states = total((w.spec for w in self.weights if w.spec.name in self.states), space.alignment)
            return {FIXED: space.bytes - states, STATES: states}
        return {}
