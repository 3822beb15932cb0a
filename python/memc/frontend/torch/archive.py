# SPDX-License-Identifier: Apache-2.0
"""`.pt2` files, as `torch.export.save` writes them since PyTorch 2.8: a zip file that holds the program as JSON and its
weights as raw bytes. Read without PyTorch; nothing in it is unpickled or run.

The layout is that of PyTorch's module torch.export.pt2_archive, and the JSON that of torch._export.serde.schema.
"""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from memc.ir.core import Array
from memc.ir.errors import InvalidError, MemcError, UnsupportedError, UsageError
from memc.ir.types import MAX_BYTES

from .archive_args import argument, dimension, dtype_of, kind_of
from .graph import Dim, Graph, Input, Location, Meta, Node, Output, Weight
from .stack_traces import module_of, user_line

MAX_JSON = 2**30
"""Bytes of a program that are read."""


def read_archive(path: str | Path) -> Graph:
    """The program in a `.pt2` file. Raises UsageError or InvalidError for a file that cannot be read, UnsupportedError for
    what memc has no kind of value for, each of one line."""
    where = str(path)
    try:
        with zipfile.ZipFile(path) as archive:
            return _read(_Archive(archive, where, Path(path)))
    except FileNotFoundError:
        raise UsageError(f"{where}: no such file") from None
    except OSError as error:
        raise UsageError(f"{where}: cannot read: {error.strerror or error}") from None
    except zipfile.BadZipFile as error:
        raise InvalidError(f"{where}: expected a .pt2 file of torch.export.save, got no zip file ({error})") from None
    except MemcError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError, NotImplementedError) as error:
        what = (str(error).strip() or "no message").splitlines()[0][:200]
        raise InvalidError(f"{where}: damaged or of an unknown version: {type(error).__name__}: {what}") from None


class _Archive:
    """A zip file whose names begin with one folder."""

    def __init__(self, archive: zipfile.ZipFile, where: str, path: Path) -> None:
        self.archive = archive
        self.where = where
        self.path = path
        self.names = {name.partition("/")[2]: name for name in archive.namelist()}

    def has(self, name: str) -> bool:
        return name in self.names

    def json(self, name: str) -> Any:
        info = self.archive.getinfo(self.names[name])
        if info.file_size > MAX_JSON:
            raise InvalidError(f"{self.where}: {name} has {info.file_size} bytes")
        return json.loads(self.archive.read(info))

    def reader(self, name: str) -> Callable[[], bytes]:
        """A function that reads a file of the archive when it is called."""
        if name not in self.names:
            raise InvalidError(f"{self.where}: expected {name} in the archive, got no such file")
        path, inner = self.path, self.names[name]

        def read() -> bytes:
            with zipfile.ZipFile(path) as again:
                return again.read(inner)

        return read


def _read(archive: _Archive) -> Graph:
    models = sorted(n for n in archive.names if n.startswith("models/") and n.endswith(".json"))
    if not models and archive.has("serialized_exported_program.json"):
        raise UnsupportedError(f"{archive.where}: of a PyTorch before 2.8; save it again with a newer one")
    if not models:
        raise InvalidError(f"{archive.where}: expected a program in models/, got a zip file without one")
    if len(models) > 1:
        said = ", ".join(Path(name).stem for name in models)
        raise UnsupportedError(f"{archive.where}: expected one program, got {said}")
    program = archive.json(models[0])
    name = Path(models[0]).stem
    weights: dict[str, Weight] = {}
    for folder, config in (("weights", f"{name}_weights_config"), ("constants", f"{name}_constants_config")):
        _add_weights(archive, f"data/{folder}", f"{config}.json", weights)
    module = program["graph_module"]
    graph = read_graph(module["graph"])
    signature = module["signature"]
    graph.inputs = [_input(spec) for spec in signature["input_specs"]]
    graph.outputs = [_output(spec) for spec in signature["output_specs"]]
    graph.weights = weights
    graph.ranges = {
        symbol: (bounds.get("min_val"), bounds.get("max_val"))
        for symbol, bounds in program["range_constraints"].items()
    }
    graph.hints = _hints(module["graph"])
    graph.result_names = _result_names(module)
    return graph


def _add_weights(archive: _Archive, folder: str, config: str, weights: dict[str, Weight]) -> None:
    """Add the stored tensors that a configuration lists."""
    if not archive.has(f"{folder}/{config}"):
        return
    for name, payload in archive.json(f"{folder}/{config}")["config"].items():
        meta = payload["tensor_meta"]
        if payload.get("use_pickle") or meta is None:
            weights[name] = Weight(_refusal(archive.where, name), object(), False)
            continue
        read = archive.reader(f"{folder}/{payload['path_name']}")
        trained = bool(payload["is_param"] and meta.get("requires_grad"))
        lies = (json.dumps(meta[part]) for part in ("sizes", "strides", "storage_offset", "dtype"))
        key = (folder, payload["path_name"], *lies)
        weights[name] = Weight(_tensor_reader(read, meta, f"{archive.where}: {name}"), key, trained)


def _refusal(where: str, name: str) -> Callable[[], Array]:
    def read() -> Array:
        raise UnsupportedError(f"unsupported: {where}: `{name}` is stored as a Python object, not as a plain tensor")

    return read


def _tensor_reader(read: Callable[[], bytes], meta: Mapping[str, Any], where: str) -> Callable[[], Array]:
    """A function that gives the tensor, in row-major order."""

    def array() -> Array:
        if meta["layout"] != 7:
            raise UnsupportedError(f"unsupported: {where}: expected a dense tensor, got a sparse one")
        dtype = dtype_of(meta["dtype"])
        if dtype is None:
            raise UnsupportedError(f"unsupported: {where}: element type {kind_of(meta['dtype'])}")
        shape, strides = ([_fixed(dimension(d, where)) for d in meta[key]] for key in ("sizes", "strides"))
        offset = _fixed(dimension(meta["storage_offset"], where))
        if math.prod(max(n, 1) for n in shape) * dtype.itemsize > MAX_BYTES or min([0, *shape, *strides, offset]) < 0:
            raise InvalidError(f"{where}: expected a tensor of sensible sizes, got {shape}")
        stored = np.frombuffer(read(), dtype=dtype.numpy)
        if 0 in shape:
            return np.zeros(shape, dtype.numpy)
        last = offset + sum((n - 1) * s for n, s in zip(shape, strides))
        if last >= stored.size:
            raise InvalidError(f"{where}: expected {last + 1} elements of {dtype.value}, got {stored.size}")
        bytes_apart = [s * dtype.itemsize for s in strides]
        view = np.lib.stride_tricks.as_strided(stored[offset:], shape, bytes_apart, writeable=False)
        return np.array(view, order="C")

    return array


def _fixed(size: Dim) -> int:
    """A size of a stored tensor. Raises ValueError for one that varies."""
    if isinstance(size, int):
        return size
    raise ValueError("a stored tensor of a size that varies")


def read_graph(graph: Mapping[str, Any]) -> Graph:
    """The nodes of a graph; inputs and outputs as those of a body, which has no signature."""
    metas = {name: tensor_meta(meta, name) for name, meta in graph["tensor_values"].items()}
    inputs = [Input(_name_of(item), "input") for item in graph["inputs"]]
    outputs = [Output(argument(item, read_graph)) for item in graph["outputs"]]
    return Graph(inputs, [_node(node) for node in graph["nodes"]], outputs, metas)


def tensor_meta(meta: Mapping[str, Any], name: str) -> Meta:
    """What a `TensorMeta` says."""
    shape, strides = (tuple(dimension(d, name) for d in meta[key]) for key in ("sizes", "strides"))
    return Meta(dtype_of(meta["dtype"]), shape, strides, kind_of(meta["dtype"]))


def _name_of(item: Mapping[str, Any]) -> str:
    ((_, value),) = item.items()
    return str(value["name"] if "name" in value else value.get("as_name", "")) if isinstance(value, dict) else ""


def _node(node: Mapping[str, Any]) -> Node:
    target = str(node["target"]).removeprefix("torch.ops.").removeprefix("_operator.")
    if str(node["target"]).startswith("_operator."):
        target = f"operator.{target}"
    args: dict[str, Any] = {}
    for position, item in enumerate(node["inputs"]):
        args[item["name"] or str(position)] = argument(item["arg"], read_graph)
    results: list[str | None] = []
    for item in node["outputs"]:
        ((_, value),) = item.items()
        if isinstance(value, list):
            results += [(each or {}).get("name") or _name_of(each) for each in value]
        else:
            results.append(_name_of(item) or None)
    metadata = node.get("metadata", {})
    location = Location(module_of(metadata.get("nn_module_stack", "")), user_line(metadata.get("stack_trace") or ""))
    return Node(str(node.get("name") or next((r for r in results if r), target)), target, args, results, location)


def _input(spec: Mapping[str, Any]) -> Input:
    ((kind, value),) = spec.items()
    if kind == "user_input":
        ((what, arg),) = value["arg"].items()
        if what in ("as_tensor", "as_sym_int"):
            return Input(_name_of(value["arg"]), "input")
        return Input("", "value", value=arg)
    if kind == "constant_input":
        ((what, arg),) = value["value"].items()
        return Input(value["name"], "value", value=None if what == "as_none" else arg)
    if kind in ("parameter", "buffer"):
        return Input(value["arg"]["name"], "parameter" if kind == "parameter" else "buffer", value[f"{kind}_name"])
    if kind == "tensor_constant":
        return Input(value["arg"]["name"], "constant", value["tensor_constant_name"])
    raise UnsupportedError(f"unsupported: the program takes a {kind.replace('_', ' ')}")


def _output(spec: Mapping[str, Any]) -> Output:
    ((kind, value),) = spec.items()
    if kind in ("user_output", "loss_output"):
        arg = value["arg"] if kind == "user_output" else {"as_tensor": value["arg"]}
        return Output(argument(arg, read_graph))
    arg = argument({"as_tensor": value["arg"]}, read_graph)
    if kind == "buffer_mutation":
        return Output(arg, "buffer", value["buffer_name"])
    if kind == "parameter_mutation":
        return Output(arg, "parameter", value["parameter_name"])
    if kind == "user_input_mutation":
        return Output(arg, "input", value["user_input_name"])
    raise UnsupportedError(f"unsupported: the program returns a {kind.replace('_', ' ')}")


def _hints(graph: Mapping[str, Any]) -> dict[str, int]:
    """The values that symbols had at the export."""
    found: dict[str, int] = {}
    for meta in graph["tensor_values"].values():
        for dim in meta["sizes"]:
            expression = dim.get("as_expr")
            hint = (expression or {}).get("hint") or {}
            if expression is not None and "as_int" in hint:
                size = dimension(dim, "a size")
                symbol = size.args[0] if not isinstance(size, int) and size.op == "symbol" else None
                if symbol is not None:
                    found.setdefault(str(symbol), int(hint["as_int"]))
    return found


def _result_names(module: Mapping[str, Any]) -> list[str]:
    """What the module's results are called where it returns a dict; else nothing."""
    calls = module.get("module_call_graph") or []
    text = ((calls[0].get("signature") or {}) if calls else {}).get("out_spec")
    if not text:
        return []
    spec = json.loads(text)[1]
    leaves = all(not child["children_spec"] and child["type"] is None for child in spec["children_spec"])
    if spec["type"] != "builtins.dict" or not leaves:
        return []
    names = json.loads(spec["context"])
    return [str(name) for name in names]
