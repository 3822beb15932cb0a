# SPDX-License-Identifier: Apache-2.0
"""Reading an artifact's plan.json. Needs nothing but Python."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memc.ir.errors import InvalidError

if TYPE_CHECKING:
    from memc.ir.types import TensorType

FORMAT = "memc-artifact"
VERSION = 2
LIBRARY = "model.so"
IMAGE = "kernels.cubin"
WEIGHTS = "weights.safetensors"
PLAN = "plan.json"
TEXT = "model.memir"
SOURCE = "source.onnx"
"""Of a training step: the model it was made of, without the weights that it trains."""

ITEMSIZE = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2, "i64": 8, "i32": 4, "i16": 2, "i8": 1}
ITEMSIZE |= {"u64": 8, "u32": 4, "u16": 2, "u8": 1, "bool": 1}


@dataclass(frozen=True)
class Spec:
    """An input or output."""

    name: str
    dtype: str
    """In the IR's notation, for example f32."""
    shape: tuple[int, ...]

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
        return f"{self.name}: {self.dtype}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Slot:
    """A weight or constant."""

    spec: Spec
    offset: int
    """Bytes from the start of the weight slab."""


@dataclass(frozen=True)
class Manifest:
    """What plan.json says about running the model."""

    path: Path
    machine: str
    kind: str
    arch: str
    cpu: str
    alignment: int
    inputs: tuple[Spec, ...]
    outputs: tuple[Spec, ...]
    arena_bytes: int
    weights_bytes: int
    library_bytes: int
    """Size of model.so: loading a cut one would end the process."""
    weights: tuple[Slot, ...]
    states: frozenset[str]
    """Names of those that runs update."""
    library_functions: tuple[str, ...]
    calls: tuple[tuple[int, str], ...]
    """The kernel calls of a run, in order: index of the op among those of model.memir, and name."""
    precision: str
    """`f32`, or what the factors of products and convolutions are rounded to."""
    report: dict[str, Any]

    @property
    def io_bytes(self) -> int:
        """Bytes of all inputs and outputs."""
        return sum(spec.nbytes for spec in (*self.inputs, *self.outputs))


def read(path: str | Path) -> Manifest:
    """The manifest of the artifact in folder `path`. Raises InvalidError if it is missing, damaged or too new."""
    path = Path(path)
    if not path.is_dir():
        raise InvalidError(f"{path}: expected an artifact folder that `memc compile` wrote, found {what_is(path)}")
    for name in (PLAN, LIBRARY, WEIGHTS):
        if not (path / name).is_file():
            raise InvalidError(f"{path}: artifact has no {name}; compile the model again")
    try:
        data = json.loads((path / PLAN).read_text(encoding="utf-8"))
        if data["format"] != FORMAT:
            raise InvalidError(f"{path / PLAN}: expected format {FORMAT}, got {data['format']!r}")
        if data["version"] != VERSION:
            raise InvalidError(f"{path / PLAN}: expected version {VERSION}, got {data['version']!r}; compile again")
        manifest = Manifest(
            path=path,
            machine=data["machine"],
            kind=data["target"]["kind"],
            arch=data["target"]["arch"],
            cpu=data["target"]["cpu"],
            alignment=int(data["alignment"]),
            inputs=tuple(spec(item) for item in data["inputs"]),
            outputs=tuple(spec(item) for item in data["outputs"]),
            arena_bytes=int(data["arena_bytes"]),
            weights_bytes=int(data["weights_bytes"]),
            library_bytes=int(data["library_bytes"]),
            weights=tuple(Slot(spec(item), int(item["offset"])) for item in data["weights"]),
            states=frozenset(data.get("states", ())),
            library_functions=tuple(data["library_functions"]),
            calls=tuple((int(op), str(name)) for op, name in data.get("calls", ())),
            precision=str(data.get("precision", "f32")),
            report=data["report"],
        )
        size = (path / LIBRARY).stat().st_size
    except OSError as error:
        raise InvalidError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidError(f"{path / PLAN}: damaged plan ({type(error).__name__}: {error}); compile again") from None
    if size != manifest.library_bytes:
        raise InvalidError(f"{path / LIBRARY}: expected {manifest.library_bytes} bytes, found {size}; compile again")
    return manifest


def spec(item: dict[str, Any]) -> Spec:
    if item["dtype"] not in ITEMSIZE:
        raise ValueError(f"unknown element type {item['dtype']!r}")
    return Spec(item["name"], item["dtype"], tuple(int(d) for d in item["shape"]))


def what_is(path: Path) -> str:
    return "a file" if path.exists() else "nothing"
