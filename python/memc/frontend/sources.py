# SPDX-License-Identifier: Apache-2.0
"""What memc reads, by the endings of files' names: a new frontend is one entry of `FORMATS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Union

import onnx

from memc.frontend.memir import read_module, require_main, verified
from memc.frontend.torch.exported import is_exported
from memc.frontend.torch.graph import Graph
from memc.ir.arrays import native
from memc.ir.errors import UnsupportedError, UsageError
from memc.ir.module import Module

if TYPE_CHECKING:
    from typing import TypeGuard

Source = Union[str, Path, bytes, onnx.ModelProto, Module, Graph]
"""A path to .onnx, .pt2, .memir, .json or .json.gz, the bytes of an ONNX file, a loaded model, a program of PyTorch's (an
`ExportedProgram` too), or a module."""


@dataclass(frozen=True)
class Reading:
    """How to read a model. Formats whose shapes are fixed have no use for it."""

    dims: Mapping[str, int] = field(default_factory=dict)
    """Sizes of open dimensions by name."""
    input_shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Whole shapes by input name."""
    bind: Mapping[str, Any] = field(default_factory=dict)
    """Data of inputs that become constants, by name."""
    max_size: int | None = None
    """The most elements that a size that depends on data will have; None: as many as there can be."""
    trainable: bool = False
    """Whether a training step is made of the model: weights keep the names and parts that training sees."""


@dataclass(frozen=True)
class Format:
    """A kind of file."""

    suffixes: tuple[str, ...]
    what: str
    """What such a file holds, for messages."""
    holds: Literal["model", "ir", "graph"]
    """A model, whose ops are still to be optimized; IR, which is taken as it is; or a dataflow graph of ops that memc need
    not know, which can only be planned."""
    read: Callable[[str | Path, Reading], Module]


def _onnx(source: str | Path | bytes | onnx.ModelProto, how: Reading) -> Module:
    from memc.frontend.onnx import import_onnx

    return import_onnx(
        source,
        dims=how.dims,
        input_shapes=how.input_shapes,
        bind=how.bind,
        trainable=how.trainable,
        max_size=how.max_size,
    )


def _torch(source: Any, how: Reading) -> Module:
    from memc.frontend.torch.importer import import_torch

    if how.max_size is not None:
        raise UsageError("max_size: programs of PyTorch have no sizes that depend on data")
    return import_torch(source, dims=how.dims, input_shapes=how.input_shapes, bind=how.bind, trainable=how.trainable)


def _memir(path: str | Path, how: Reading) -> Module:
    return read_module(path)


def _graph(path: str | Path, how: Reading) -> Module:
    from memc.frontend.graph import import_graph, read_graph

    return import_graph(read_graph(path))


ONNX = Format((".onnx",), "an ONNX model", "model", _onnx)
TORCH = Format((".pt2",), "an exported program of PyTorch", "model", _torch)
MEMIR = Format((".memir",), "IR text", "ir", _memir)
GRAPH = Format((".json", ".json.gz"), "a dataflow graph", "graph", _graph)

FORMATS = (ONNX, TORCH, MEMIR, GRAPH)


def format_of(path: object) -> Format | None:
    """The format of a file, by its name; None for other names, and for what is no path."""
    if not isinstance(path, (str, Path)):
        return None
    return next((found for found in FORMATS if str(path).endswith(found.suffixes)), None)


def is_onnx(source: Source) -> TypeGuard[str | Path | bytes | onnx.ModelProto]:
    """Whether a source is an ONNX model: by its name, or by its kind."""
    if isinstance(source, (str, Path)):
        return format_of(source) is ONNX
    return isinstance(source, (bytes, onnx.ModelProto))


def load(source: Source, how: Reading) -> Module:
    """The module that `source` holds; text and modules are verified. Raises UnsupportedError for a file of an unknown kind,
    and what the reader of its kind raises."""
    if isinstance(source, Module):
        require_main(source, "module")
        source.weights = {name: native(array, f"weight `{name}`") for name, array in source.weights.items()}
        return verified(source, "module")
    if isinstance(source, Graph) or is_exported(source):
        return _torch(source, how)
    if not isinstance(source, (str, Path)):
        return _onnx(source, how)
    found = format_of(source)
    if found is None and Path(source).is_file():
        known = ", ".join(f"{' or '.join(each.suffixes)} ({each.what})" for each in FORMATS)
        raise UnsupportedError(f"{source}: expected a file whose name ends in {known}")
    return (found or ONNX).read(source, how)  # Which says that it is a folder, or not there.
