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
from memc.ir.extents import Extent
from memc.ir.footprint import FIXED, INPUTS, OUTPUTS, STATES, Footprint, SpaceFootprint
from memc.ir.messages import shown
from memc.ir.sizes import align
from memc.ir.spaces import ARENA, IO, DeviceId, Holds
from memc.ir.target import COMPUTES, is_arch
from memc.runtime.artifact.plan_items import items, text, whole
from memc.runtime.artifact.plan_text import INTERFACE, MOST, checksum, parsed, require_seal
from memc.runtime.artifact.storages import Storage, devices_of, storage

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
class Slot:
    """A weight or constant."""

    spec: Spec
    offset: int
    """Bytes from the start of its space."""
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
        devices=tuple(DeviceId.parse(text(name)) for name in items(data["devices"])),
        spaces=tuple(storage(item) for item in items(data["spaces"])),
        inputs=tuple(spec(item) for item in items(data["inputs"])),
        outputs=tuple(spec(item) for item in items(data["outputs"])),
        extents=tuple(extent(item) for item in items(data["extents"])),
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
    for kind, specs in (("input", manifest.inputs), ("output", manifest.outputs)):
        names = [spec.name for spec in specs]
        if len(set(names)) != len(names):
            raise ValueError(f"{kind}s: expected names that differ, got {', '.join(names)}")
    require_extents(manifest)
    if LIBRARY not in manifest.checksums:
        raise ValueError(f"checksums: expected that of {LIBRARY}")
    require_spaces(manifest)


def require_extents(manifest: Manifest) -> None:
    """Raise ValueError for counts that are none, or that count more than there is."""
    outputs = manifest.outputs
    for extent in manifest.extents:
        if extent.count >= len(outputs) or outputs[extent.count].type_text != "i64[]":
            raise ValueError(f"extents: expected outputs of i64[] as counts, got output {extent.count}")
        for result, axis in extent.cuts:
            shape = outputs[result].shape if result < len(outputs) else ()
            if axis >= len(shape) or shape[axis] < extent.most:
                raise ValueError(f"extents: expected room for {extent.most} in axis {axis} of output {result}")


def require_spaces(manifest: Manifest) -> None:
    """Raise ValueError for spaces that do not go together, or that do not hold what lies in them."""
    names = [space.name for space in manifest.spaces]
    if len(set(names)) != len(names) or ARENA not in names:
        raise ValueError(f"spaces: expected {ARENA} and others, each once, got {', '.join(names)}")
    if manifest.devices != devices_of(manifest.spaces):
        raise ValueError(f"devices: expected those of the spaces, got {', '.join(map(str, manifest.devices))}")
    first = manifest.devices[0]
    if first != manifest.space(ARENA).device or first.kind != COMPUTES[manifest.kind]:  # type: ignore[index]
        raise ValueError(f"devices: expected one that runs kernels for {manifest.kind} first, got {first}")
    for spec in (*manifest.inputs, *manifest.outputs):
        require_holds(manifest, spec, "io")
    for space in manifest.spaces:
        given = sum(spec.nbytes for spec in (*manifest.inputs, *manifest.outputs) if spec.space == space.name)
        if space.holds == "io" and space.bytes != given:
            raise ValueError(f"space {space.name}: expected {given} bytes, got {space.bytes}")
    ends: dict[str, int] = {}
    for slot in sorted(manifest.weights, key=lambda slot: (slot.offset, slot.spec.nbytes)):
        space = require_holds(manifest, slot.spec, "weights")
        end = ends.get(space.name, 0)
        if slot.offset < end or slot.offset % space.alignment:
            raise ValueError(f"weight {slot.spec.name}: expected an offset from {end} on, got {slot.offset}")
        ends[space.name] = slot.offset + slot.spec.nbytes
        if ends[space.name] > space.bytes:
            raise ValueError(f"weights: expected room for {ends[space.name]} bytes, got {space.bytes}")


def require_holds(manifest: Manifest, spec: Spec, holds: Holds) -> Storage:
    """The space of a tensor. Raises ValueError if it holds something else."""
    space = manifest.space(spec.space)
    if space.holds != holds:
        raise ValueError(f"{spec.name}: expected a space that holds {holds}, got {space.name}, of {space.holds}")
    return space


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


def spec(item: dict[str, Any]) -> Spec:
    """A tensor of the plan. Raises ValueError, KeyError or TypeError if it is none."""
    if text(item["dtype"]) not in ITEMSIZE:
        raise ValueError(f"unknown element type {shown(item['dtype'])}")
    sizes = items(item["shape"])
    if any(type(d) is not int or d < 0 for d in sizes):
        raise ValueError(f"{text(item['name'])}: expected sizes from 0 on, got {shown(sizes)}")
    found = Spec(text(item["name"]), item["dtype"], tuple(sizes), text(item["space"]))
    if found.nbytes > MOST:
        raise ValueError(f"{found.name}: expected at most {MOST} bytes, got {shown(sizes)}")
    return found


def extent(item: dict[str, Any]) -> Extent:
    """A count of the plan. Raises KeyError, TypeError or ValueError if it is none."""
    cuts = tuple((whole(result), whole(axis)) for result, axis in map(items, items(item["cuts"])))
    return Extent(whole(item["count"]), whole(item["most"]), cuts)


def label_input(item: dict[str, Any]) -> LabelInput:
    """A check of the plan. Raises KeyError, ValueError or TypeError if it is none."""
    numbers = [None if item[key] is None else int(item[key]) for key in ("classes", "ignore_index")]
    return LabelInput(text(item["input"]), *numbers)


def what_is(path: Path) -> str:
    return "a file" if path.exists() else "nothing"
