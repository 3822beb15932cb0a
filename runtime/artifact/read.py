# SPDX-License-Identifier: Apache-2.0
"""Reading an artifact: its plan.json as a `Manifest`, and its files with code. Needs nothing but Python and numpy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from memc.ir.data_dependent_extents import Extent
from memc.ir.errors import InvalidError, UsageError
from memc.ir.messages import shown
from memc.ir.spaces import ARENA, DeviceId, Holds
from memc.ir.target import COMPUTES, is_arch
from memc.runtime.artifact.manifest import (
    FORMAT,
    IMAGE,
    ITEMSIZE,
    LIBRARY,
    PLAN,
    VERSION,
    WEIGHTS,
    LabelInput,
    Manifest,
    Spec,
    StoredWeight,
)
from memc.runtime.artifact.plan_items import items, text, whole
from memc.runtime.artifact.plan_text import INTERFACE, MOST, checksum, parsed, require_seal
from memc.runtime.artifact.storages import Storage, devices_of, storage


def read_manifest(path: str | Path) -> Manifest:
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
        platform=text(data["platform"]),
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
        weights=tuple(
            StoredWeight(spec(item), whole(item["offset"]), text(item["layout"])) for item in items(data["weights"])
        ),
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
    for weight in sorted(manifest.weights, key=lambda weight: (weight.offset, weight.spec.nbytes)):
        space = require_holds(manifest, weight.spec, "weights", "values")
        end = ends.get(space.name, 0)
        if weight.offset < end or weight.offset % space.alignment:
            raise ValueError(f"weight {weight.spec.name}: expected an offset from {end} on, got {weight.offset}")
        ends[space.name] = weight.offset + weight.spec.nbytes
        if ends[space.name] > space.bytes:
            raise ValueError(f"weights: expected room for {ends[space.name]} bytes, got {space.bytes}")


def require_holds(manifest: Manifest, spec: Spec, *holds: Holds) -> Storage:
    """The space of a tensor. Raises ValueError if it holds something else."""
    space = manifest.space(spec.space)
    if space.holds not in holds:
        expected = " or ".join(holds)
        raise ValueError(f"{spec.name}: expected a space that holds {expected}, got {space.name}, of {space.holds}")
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
