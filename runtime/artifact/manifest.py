# SPDX-License-Identifier: Apache-2.0
"""Reading an artifact's plan.json. Needs nothing but Python and numpy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memc.ir.errors import InvalidError, UsageError
from memc.ir.messages import shown
from memc.ir.target import is_arch
from memc.runtime.artifact.plan_text import INTERFACE, MOST, checksum, parsed, require_seal

if TYPE_CHECKING:
    from memc.ir.types import TensorType

FORMAT = "memc-artifact"
VERSION = 3
LIBRARY = "model.so"
IMAGE = "kernels.cubin"
WEIGHTS = "weights.safetensors"
PLAN = "plan.json"
TEXT = "model.memir"
SOURCE = "source.onnx"
"""The file of the model that a training step was made of, without the weights that it trains."""

ITEMSIZE = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2, "i64": 8, "i32": 4, "i16": 2, "i8": 1}
ITEMSIZE |= {"u64": 8, "u32": 4, "u16": 2, "u8": 1, "bool": 1}


COUNTER = "random.counter"
"""The state that counts runs, by which random ops draw."""


@dataclass(frozen=True)
class Spec:
    """An input or output."""

    name: str
    dtype: str
    """The element type in the IR's notation, for example f32."""
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

    layout: str
    """How the elements are ordered: `row-major`, or as a library's kernel reads them."""

    @property
    def stored(self) -> tuple[int, ...]:
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
    """CRC-32 of files, by name: a damaged one with code would end the process, or compute something else. plan.json and the
    weights have theirs in themselves."""
    weights: tuple[Slot, ...]
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

    @property
    def trains(self) -> bool:
        """Whether a run is a training step: it updates more than the counter of runs."""
        return bool(self.states - {COUNTER})

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
        raw = (path / PLAN).read_bytes()
        data = parsed(raw)
        if data["format"] != FORMAT:
            raise InvalidError(f"{path / PLAN}: expected format {FORMAT}, got {shown(data['format'])}")
        if type(data["version"]) is not int or data["version"] != VERSION:
            raise InvalidError(
                f"{path / PLAN}: expected version {VERSION}, got {shown(data['version'])}; compile again"
            )
        manifest = described(path, data, checksum(raw))
        require_sense(manifest)
        require_seal(raw)
        size = (path / LIBRARY).stat().st_size
    except OSError as error:
        raise InvalidError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        what = " ".join(str(error).split())[:300]
        raise InvalidError(f"{path / PLAN}: damaged plan ({type(error).__name__}: {what}); compile again") from None
    require_files(path, [name for name in (LIBRARY, IMAGE) if name in manifest.checksums])
    if size != manifest.library_bytes:
        raise InvalidError(f"{path / LIBRARY}: expected {manifest.library_bytes} bytes, found {size}; compile again")
    return manifest


def described(path: Path, data: Mapping[str, Any], plan_checksum: str) -> Manifest:
    """What a plan says. Raises ValueError, KeyError or TypeError for one that no compilation writes."""
    target = data["target"]
    return Manifest(
        path=path,
        machine=text(data["machine"]),
        kind=text(target["kind"]),
        arch=text(target["arch"]),
        cpu=text(target["cpu"]),
        cpu_flags=tuple(text(flag) for flag in items(target["cpu_flags"])),
        alignment=whole(data["alignment"]),
        inputs=tuple(spec(item) for item in items(data["inputs"])),
        outputs=tuple(spec(item) for item in items(data["outputs"])),
        arena_bytes=whole(data["arena_bytes"]),
        weights_bytes=whole(data["weights_bytes"]),
        library_bytes=whole(data["library_bytes"]),
        checksums={text(name): text(value) for name, value in data["checksums"].items()},
        weights=tuple(Slot(spec(item), whole(item["offset"]), text(item["layout"])) for item in items(data["weights"])),
        states=frozenset(text(name) for name in items(data["states"])),
        library_functions=tuple(text(name) for name in items(data["library_functions"])),
        calls=tuple((whole(op), text(name)) for op, name in map(items, items(data["calls"]))),
        precision=text(data["precision"]),
        labels=tuple(label_input(item) for item in items(data["report"].get("labels", []))),
        report=dict(data["report"]),
        interface={key: data[key] for key in INTERFACE},
        plan_checksum=plan_checksum,
    )


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
    for kind, specs in (("input", manifest.inputs), ("output", manifest.outputs)):
        names = [spec.name for spec in specs]
        if len(set(names)) != len(names):
            raise ValueError(f"{kind}s: expected names that differ, got {', '.join(names)}")
    if LIBRARY not in manifest.checksums:
        raise ValueError(f"checksums: expected that of {LIBRARY}")
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
    if said is None:
        raise InvalidError(f"{manifest.path / PLAN}: has no checksum of {name}; compile again")
    if said != checksum(data):
        raise InvalidError(f"{path}: damaged: expected the checksum {said}, got {checksum(data)}; compile again")
    return data


def text(item: object) -> str:
    """A string of the plan. Raises TypeError for anything else."""
    if not isinstance(item, str):
        raise TypeError(f"expected a string, got {shown(item)}")
    return item


def whole(item: object) -> int:
    """A number of the plan, none of which is negative or broken. Raises TypeError or ValueError for anything else."""
    if type(item) is not int:
        raise TypeError(f"expected a whole number, got {shown(item)}")
    if item < 0:
        raise ValueError(f"expected a number from 0 on, got {item}")
    return item


def items(item: object) -> list[Any]:
    """A list of the plan. Raises TypeError for anything else."""
    if not isinstance(item, list):
        raise TypeError(f"expected a list, got {shown(item)}")
    return item


def spec(item: dict[str, Any]) -> Spec:
    """A tensor of the plan. Raises ValueError, KeyError or TypeError if it is none."""
    if text(item["dtype"]) not in ITEMSIZE:
        raise ValueError(f"unknown element type {shown(item['dtype'])}")
    sizes = items(item["shape"])
    if any(type(d) is not int or d < 0 for d in sizes):
        raise ValueError(f"{text(item['name'])}: expected sizes from 0 on, got {shown(sizes)}")
    found = Spec(text(item["name"]), item["dtype"], tuple(sizes))
    if found.nbytes > MOST:
        raise ValueError(f"{found.name}: expected at most {MOST} bytes, got {shown(sizes)}")
    return found


def label_input(item: dict[str, Any]) -> LabelInput:
    """A check of the plan. Raises KeyError, ValueError or TypeError if it is none."""
    numbers = [None if item[key] is None else int(item[key]) for key in ("classes", "ignore_index")]
    return LabelInput(text(item["input"]), *numbers)


def what_is(path: Path) -> str:
    return "a file" if path.exists() else "nothing"
