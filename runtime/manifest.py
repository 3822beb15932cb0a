# SPDX-License-Identifier: Apache-2.0
"""Reading an artifact's plan.json. Needs nothing but Python."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memc.ir.errors import InvalidError, UsageError
from memc.runtime.target import is_arch

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
    cpu_flags: tuple[str, ...]
    """What the CPU must have, by the names in /proc/cpuinfo."""
    alignment: int
    inputs: tuple[Spec, ...]
    outputs: tuple[Spec, ...]
    arena_bytes: int
    weights_bytes: int
    library_bytes: int
    """Size of model.so."""
    checksums: dict[str, str]
    """CRC-32 of files with code, by name: a damaged one would end the process, or compute something else."""
    weights: tuple[Slot, ...]
    states: frozenset[str]
    """Names of those that runs update."""
    library_functions: tuple[str, ...]
    calls: tuple[tuple[int, str], ...]
    """The kernel calls of a run, in order: index of the op among those of model.memir, and name."""
    precision: str
    """`f32`, or what the factors of products and convolutions are rounded to."""
    report: dict[str, Any]
    plan_checksum: str
    """CRC-32 of plan.json."""

    @property
    def io_bytes(self) -> int:
        """Bytes of all inputs and outputs."""
        return sum(spec.nbytes for spec in (*self.inputs, *self.outputs))


def read(path: str | Path) -> Manifest:
    """The manifest of the artifact in folder `path`. Raises InvalidError if it is missing, damaged or too new, and UsageError
    if `path` is none."""
    if not isinstance(path, (str, PathLike)):
        raise UsageError(f"expected the path of an artifact, got {path!r}")
    path = Path(path)
    if not path.is_dir():
        raise InvalidError(f"{path}: expected an artifact folder that `memc compile` wrote, found {what_is(path)}")
    require_files(path, (PLAN, LIBRARY, WEIGHTS))
    try:
        written = (path / PLAN).read_bytes()
        data = json.loads(written.decode("utf-8"))
        if data["format"] != FORMAT:
            raise InvalidError(f"{path / PLAN}: expected format {FORMAT}, got {data['format']!r}")
        if data["version"] != VERSION:
            raise InvalidError(f"{path / PLAN}: expected version {VERSION}, got {data['version']!r}; compile again")
        manifest = Manifest(
            path=path,
            machine=text(data["machine"]),
            kind=text(data["target"]["kind"]),
            arch=text(data["target"]["arch"]),
            cpu=text(data["target"]["cpu"]),
            cpu_flags=tuple(text(flag) for flag in data["target"].get("cpu_flags", ())),
            alignment=int(data["alignment"]),
            inputs=tuple(spec(item) for item in data["inputs"]),
            outputs=tuple(spec(item) for item in data["outputs"]),
            arena_bytes=int(data["arena_bytes"]),
            weights_bytes=int(data["weights_bytes"]),
            library_bytes=int(data["library_bytes"]),
            checksums={text(name): text(value) for name, value in data.get("checksums", {}).items()},
            weights=tuple(Slot(spec(item), int(item["offset"])) for item in data["weights"]),
            states=frozenset(text(name) for name in data.get("states", ())),
            library_functions=tuple(text(name) for name in data["library_functions"]),
            calls=tuple((int(op), text(name)) for op, name in data.get("calls", ())),
            precision=text(data.get("precision", "f32")),
            report=dict(data["report"]),
            plan_checksum=checksum(written),
        )
        require_sense(manifest)
        size = (path / LIBRARY).stat().st_size
    except OSError as error:
        raise InvalidError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidError(f"{path / PLAN}: damaged plan ({type(error).__name__}: {error}); compile again") from None
    require_files(path, manifest.checksums)
    if size != manifest.library_bytes:
        raise InvalidError(f"{path / LIBRARY}: expected {manifest.library_bytes} bytes, found {size}; compile again")
    return manifest


def require_files(path: Path, names: Iterable[str]) -> None:
    """Raise InvalidError for a file that the artifact lacks."""
    for name in names:
        if not (path / name).is_file():
            raise InvalidError(f"{path}: artifact has no {name}; compile the model again")


def require_sense(manifest: Manifest) -> None:
    """Raise ValueError for what no plan says: code or weights would be taken for something else."""
    if manifest.kind not in ("llvm", "cuda"):
        raise ValueError(f"target: expected the kind llvm or cuda, got {manifest.kind!r}")
    if manifest.kind == "cuda" and not is_arch(manifest.arch):
        raise ValueError(f"target: expected an arch such as sm_90, got {manifest.arch!r}")
    if manifest.alignment < 1:
        raise ValueError(f"alignment: expected a number of bytes from 1 on, got {manifest.alignment}")
    end = 0
    for slot in sorted(manifest.weights, key=lambda slot: (slot.offset, slot.spec.nbytes)):
        if slot.offset < end or slot.offset % manifest.alignment:
            raise ValueError(f"weight {slot.spec.name}: expected an offset from {end} on, got {slot.offset}")
        end = slot.offset + slot.spec.nbytes
    if end > manifest.weights_bytes:
        raise ValueError(f"weights: expected room for {end} bytes, got {manifest.weights_bytes}")


def content(manifest: Manifest, name: str) -> bytes:
    """The bytes of a file with code. Raises InvalidError if they are not what was compiled."""
    path = manifest.path / name
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InvalidError(f"{path}: cannot be read: {error.strerror or error}") from None
    said = manifest.checksums.get(name)
    if said is not None and said != checksum(data):
        raise InvalidError(f"{path}: damaged: expected the checksum {said}, got {checksum(data)}; compile again")
    return data


def checksum(data: bytes) -> str:
    """CRC-32 as eight digits: against damage, not against malice."""
    return f"{zlib.crc32(data):08x}"


def text(item: object) -> str:
    """A string of the plan. Raises TypeError for anything else."""
    if not isinstance(item, str):
        raise TypeError(f"expected a string, got {item!r}")
    return item


def spec(item: dict[str, Any]) -> Spec:
    """A tensor of the plan. Raises ValueError, KeyError or TypeError if it is none."""
    if item["dtype"] not in ITEMSIZE:
        raise ValueError(f"unknown element type {item['dtype']!r}")
    shape = tuple(int(d) for d in item["shape"])
    if any(d < 0 for d in shape):
        raise ValueError(f"{item['name']}: expected sizes from 0 on, got {list(shape)}")
    return Spec(text(item["name"]), item["dtype"], shape)


def what_is(path: Path) -> str:
    return "a file" if path.exists() else "nothing"
