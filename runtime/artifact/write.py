# SPDX-License-Identifier: Apache-2.0
"""The artifact: a folder with everything that running a compiled model needs (see docs/artifact.md).

model.so             kernels and program, for TVM's runtime
kernels.cubin        for CUDA: memc's own kernels, which attention needs and calls of the libraries may take
weights.safetensors  weights and constants
plan.json            inputs, outputs, weight offsets, the memory plan, the compiler's report
model.memir          the planned module as text, for reading
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memc.ir.core import Function
from memc.ir.errors import UsageError
from memc.ir.liveness import lifetimes
from memc.ir.module import Module
from memc.ir.ops.shared.casts import PRODUCTS
from memc.ir.ops.shared.op_def import inner_ops
from memc.ir.target import Target
from memc.ir.types import DType
from memc.runtime.artifact import safetensors
from memc.runtime.artifact.interface import tensor
from memc.runtime.artifact.manifest import FORMAT, IMAGE, LIBRARY, PLAN, SOURCE, TEXT, VERSION, WEIGHTS
from memc.runtime.artifact.plan_text import checksum, sealed
from memc.runtime.artifact.weight_slab import SlabEntry, entry_data, slab_entries
from memc.runtime.host_cpu import platform_name

if TYPE_CHECKING:
    from memc.runtime.codegen import CompiledModule


def write(
    path: str | Path,
    module: Module,
    compiled: CompiledModule,
    plan: Mapping[str, Any],
    source: bytes | None = None,
) -> Path:
    """Write the artifact folder `path` and return it. `plan` is the compiler's report, kept in plan.json; `source`, of a
    training step, the ONNX model without its trained weights.

    The folder appears complete or not at all; an artifact that was there is replaced. Raises UsageError if `path`
    is something other than an artifact or cannot be written.
    """
    path = Path(path)
    if path.exists() and not (path.is_dir() and ((path / PLAN).is_file() or not any(path.iterdir()))):
        raise UsageError(f"{path}: exists and is not an artifact; choose another output or remove it")
    place = path.resolve()  # Behind a link, which stays.
    if place == Path.cwd():
        raise UsageError(f"{path}: is the current folder, which cannot be replaced; choose another output")
    partial = place.parent / f".{place.name}.{uuid.uuid4().hex}"
    try:
        partial.mkdir(parents=True)
        fill(partial, module, compiled, plan, source)
        if place.exists():
            replaced = partial.with_name(partial.name + ".old")
            os.rename(place, replaced)
            try:
                os.rename(partial, place)
            except OSError:
                os.rename(replaced, place)
                raise
            shutil.rmtree(replaced, ignore_errors=True)
        else:
            os.rename(partial, place)
    except OSError as error:
        raise UsageError(f"{path}: cannot write the artifact: {error.strerror or error}") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return path


def fill(folder: Path, module: Module, compiled: CompiledModule, plan: Mapping[str, Any], source: bytes | None) -> None:
    """Write all files of an artifact."""
    entries = slab_entries(module.main, compiled.target.alignment)
    files = {LIBRARY: compiled.library, IMAGE: compiled.image, TEXT: str(module).encode(), SOURCE: source}
    present = {name: data for name, data in files.items() if data}
    for name, data in present.items():
        (folder / name).write_bytes(data)
    safetensors.write(folder / WEIGHTS, [stored_entry(module, entry) for entry in entries])
    (folder / PLAN).write_bytes(sealed(describe(module.main, compiled, plan, present)))


def stored_entry(module: Module, entry: SlabEntry) -> safetensors.Entry:
    type = entry.value.type
    shape = type.shape if entry.packing is None else (type.elements,)
    return (entry.name, type.dtype.value, shape, type.nbytes, lambda: entry_data(module, entry))


def describe(
    function: Function, compiled: CompiledModule, report: Mapping[str, Any], files: Mapping[str, bytes]
) -> dict[str, Any]:
    """The contents of plan.json. `files`: those that it has checksums of, by name."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "platform": platform_name(),
        **compiled.interface,
        "library_bytes": len(compiled.library),
        "checksums": {name: checksum(data) for name, data in files.items()},
        "kernels": compiled.kernels,
        "precision": precision_of(function),
        "calls": [[op, name] for op, name in compiled.calls],
        "values": planned_values(function, compiled.target.target),
        "report": dict(report),
    }


def planned_values(function: Function, target: Target) -> list[dict[str, Any]]:
    """The memory plan: where the storages of results and workspaces lie, space by space, and when they live."""
    spaces = [space.name for space in target.spaces if space.holds == "values"]
    return [
        {
            **tensor(life.root.name, life.root, name),
            "offset": life.root.placement.offset,
            "bytes": life.nbytes,
            "lower": life.lower,
            "upper": life.upper,
        }
        for name in spaces
        for life in lifetimes(function, name)
        if life.root.op is not None and life.root.placement is not None and life.root.placement.space == name
    ]


def precision_of(function: Function) -> str:
    """What factors of products are rounded to: the type of half operands, what `set-precision` gave calls of libraries, or
    f32."""
    found: set[str] = {op.plan.precision for op in function.ops if op.plan.precision is not None}
    products = (inner for op in function.ops for inner in inner_ops(op))
    factors = {op.operands[0].type.dtype for op in products if op.name in PRODUCTS}
    found |= {dtype.value for dtype in factors & {DType.F16, DType.BF16}}
    return ", ".join(sorted(found)) or "f32"
