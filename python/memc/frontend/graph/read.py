# SPDX-License-Identifier: Apache-2.0
"""The JSON form of a dataflow graph, read and checked. docs/plan.md describes it."""

from __future__ import annotations

import gzip
import io
import json
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from memc.ir.errors import InvalidError
from memc.ir.files import read_bytes
from memc.ir.sizes import format_size

MAX_SIZE = 2**62
"""Bytes of the largest storage."""

ITEM_BYTES = {
    **dict.fromkeys(("float64", "int64", "uint64", "complex64"), 8),
    **dict.fromkeys(("float32", "int32", "uint32", "complex32"), 4),
    **dict.fromkeys(("float16", "bfloat16", "int16", "uint16"), 2),
    **dict.fromkeys(("int8", "uint8", "bool", "float8_e4m3fn", "float8_e5m2"), 1),
    "complex128": 16,
}
"""Bytes of an element. Tensors of other dtypes may have any size."""

_GRAPH_KEYS = {"tensors", "ops", "inputs", "outputs"}
_TENSOR_KEYS = {"shape", "dtype", "bytes", "storage", "storage_bytes"}
_OP_KEYS = {"name", "target", "inputs", "outputs", "writes", "once"}


@dataclass(frozen=True)
class GraphTensor:
    """A tensor: a name for (part of) a storage's bytes."""

    nbytes: int
    storage: int
    """Index of its storage in `Graph.storage_bytes`."""
    shape: tuple[int, ...] | None = None
    dtype: str | None = None


@dataclass(frozen=True)
class GraphOp:
    """An op, with its tensors by index."""

    name: str
    target: str
    """What it computes, in the framework's words, such as `aten.convolution.default`."""
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    writes: tuple[int, ...]
    """Storages that it writes to, by index in `Graph.storage_bytes`; those that begin with it included."""
    once: bool = False
    """Whether the op must not be recomputed."""


@dataclass(frozen=True)
class Graph:
    """Ops in the given order, on tensors that share storages."""

    tensors: Sequence[GraphTensor]
    ops: Sequence[GraphOp]
    inputs: Sequence[int]
    """Tensors that exist before the first op; their storages persist and are not planned."""
    outputs: Sequence[int]
    """Tensors that must exist after the last op."""
    storage_bytes: Sequence[int]
    """Bytes of each storage."""
    storage_names: Sequence[str]
    """The file's number of each storage."""

    def persistent(self) -> frozenset[int]:
        """Storages of the inputs."""
        return frozenset(self.tensors[tensor].storage for tensor in self.inputs)

    def touched(self, op: GraphOp) -> dict[int, None]:
        """Storages that the op reads, writes or makes views of, without repeats, in order."""
        return dict.fromkeys((*(self.tensors[tensor].storage for tensor in (*op.inputs, *op.outputs)), *op.writes))


def read_graph(path: str | Path) -> Graph:
    """The graph in a .json or .json.gz file.

    Raises InvalidError if the file cannot be read, or if it holds no sound graph: an index out of range, a
    negative size, a tensor that is read before it is there (as in a cycle), or anything else, named with its place.
    """
    return graph_of(_load(Path(path)), str(path))


def graph_of(data: Any, source: str) -> Graph:
    """The graph in parsed JSON. `source` names it in errors. Raises InvalidError."""
    reader = _Reader(source)
    reader.keys(data, "graph", _GRAPH_KEYS, extra=True)
    storages: dict[int, int] = {}
    sizes: list[int] = []
    tensors = [
        reader.tensor(item, f"tensors[{i}]", storages, sizes)
        for i, item in enumerate(reader.items(data["tensors"], "tensors"))
    ]
    inputs = reader.indices(data["inputs"], len(tensors), "inputs")
    outputs = reader.indices(data["outputs"], len(tensors), "outputs")
    ops = reader.ops(data["ops"], tensors, inputs, storages)
    reader.within(tensors, ops, sizes, list(storages))
    made = {*inputs, *(tensor for op in ops for tensor in op.outputs)}
    for i, tensor in enumerate(outputs):
        if tensor not in made:
            reader.fail(f"outputs[{i}]", f"expected a tensor that an op produces, got tensor {tensor}, which none does")
    return Graph(tensors, ops, inputs, outputs, sizes, [str(number) for number in storages])


class _Twice(Exception):
    """A key that an object has twice: readers of JSON disagree on which counts."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        raise _Twice(next(key for key in keys if keys.count(key) > 1))
    return found


MOST_UNPACKED = 2**30
"""Bytes: gzip makes a thousand of one, so that a small file could fill the memory. The graph of a large model has some millions."""


def _unpacked(path: Path, data: bytes) -> bytes:
    """What gzip has packed. Raises InvalidError for other data, and for more than `MOST_UNPACKED` bytes."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
            found = packed.read(MOST_UNPACKED + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidError(f"{path}: expected gzip data, got: {error}") from None
    if len(found) > MOST_UNPACKED:
        most = format_size(MOST_UNPACKED)
        raise InvalidError(
            f"{path}: expected at most {most} of unpacked JSON, got more; unpack it and give the .json file"
        )
    return found


def _load(path: Path) -> Any:
    data = read_bytes(path)
    if path.suffix == ".gz" or data[:2] == b"\x1f\x8b":
        data = _unpacked(path, data)
    if not data.strip():
        raise InvalidError(f"{path}: expected a JSON graph, got an empty file")
    try:
        return json.loads(data, object_pairs_hook=_object)
    except UnicodeDecodeError as error:
        raise InvalidError(f"{path}: expected JSON in UTF-8, got {error.reason} at byte {error.start}") from None
    except _Twice as error:
        raise InvalidError(f"{path}: expected each key of an object once, got {_show(error.key)} again") from None
    except json.JSONDecodeError as error:
        raise InvalidError(f"{path}:{error.lineno}:{error.colno}: expected JSON, got: {error.msg}") from None
    except (RecursionError, ValueError) as error:
        raise InvalidError(f"{path}: expected JSON of a graph, got: {error}") from None


@dataclass(frozen=True)
class _Reader:
    """Checks, with the place of what is wrong."""

    source: str

    def fail(self, place: str, message: str) -> NoReturn:
        raise InvalidError(f"{self.source}: {place}: {message}")

    def keys(
        self, item: Any, place: str, known: set[str], *, optional: frozenset[str] = frozenset(), extra: bool = False
    ) -> None:
        """`item` is an object that has the known keys, and no others but for `extra` ones."""
        if not isinstance(item, dict):
            self.fail(place, f"expected an object, got {_show(item)}")
        for key in sorted(known - optional):
            if key not in item:
                self.fail(place, f"expected the key `{key}`, got {_show(sorted(item))}")
        if not extra and not item.keys() <= known:
            self.fail(place, f"expected keys among {', '.join(sorted(known))}, got `{sorted(item.keys() - known)[0]}`")

    def items(self, value: Any, place: str) -> list[Any]:
        if not isinstance(value, list):
            self.fail(place, f"expected a list, got {_show(value)}")
        return value

    def size(self, value: Any, place: str) -> int:
        if type(value) is not int or not 0 <= value <= MAX_SIZE:
            self.fail(place, f"expected bytes from 0 to 2**62, got {_show(value)}")
        return value

    def indices(self, value: Any, count: int, place: str) -> tuple[int, ...]:
        for i, index in enumerate(self.items(value, place)):
            if type(index) is not int or not 0 <= index < count:
                self.fail(f"{place}[{i}]", f"expected the index of one of {count} tensors, got {_show(index)}")
        return tuple(value)

    def tensor(self, item: Any, place: str, storages: dict[int, int], sizes: list[int]) -> GraphTensor:
        self.keys(item, place, _TENSOR_KEYS, optional=frozenset({"shape", "dtype"}))
        number = item["storage"]
        if type(number) is not int or number < 0:
            self.fail(f"{place}.storage", f"expected a whole number of at least 0, got {_show(number)}")
        nbytes = self.size(item["bytes"], f"{place}.bytes")
        whole = self.size(item["storage_bytes"], f"{place}.storage_bytes")
        storage = storages.setdefault(number, len(sizes))
        if storage == len(sizes):
            sizes.append(whole)
        elif sizes[storage] != whole:
            self.fail(
                f"{place}.storage_bytes", f"expected {sizes[storage]} as before for storage {number}, got {whole}"
            )
        shape, dtype = item.get("shape"), item.get("dtype")
        if shape is not None:
            for i, extent in enumerate(self.items(shape, f"{place}.shape")):
                self.size(extent, f"{place}.shape[{i}]")
        if dtype is not None and not isinstance(dtype, str):
            self.fail(f"{place}.dtype", f"expected a name, got {_show(dtype)}")
        if shape is not None and dtype in ITEM_BYTES and math.prod(shape) * ITEM_BYTES[dtype] != nbytes:
            expected = math.prod(shape) * ITEM_BYTES[dtype]
            self.fail(f"{place}.bytes", f"expected {_show(expected)} as {dtype}{_show(shape)} has, got {nbytes}")
        return GraphTensor(nbytes, storage, None if shape is None else tuple(shape), dtype)

    def ops(
        self, value: Any, tensors: Sequence[GraphTensor], inputs: Sequence[int], storages: dict[int, int]
    ) -> list[GraphOp]:
        there = set(inputs)
        begun = {tensors[tensor].storage for tensor in inputs}
        ops: list[GraphOp] = []
        for i, item in enumerate(self.items(value, "ops")):
            place = f"ops[{i}]"
            op = self.op(item, place, tensors, storages, begun)
            for tensor in op.inputs:
                if tensor not in there:
                    self.missing(f"{place} ({op.name})", tensor, value[i:])
            for tensor in op.outputs:
                if tensor in there:
                    self.fail(f"{place} ({op.name})", f"expected new tensors as outputs, got tensor {tensor} again")
                there.add(tensor)
            begun.update(op.writes)
            ops.append(op)
        return ops

    def op(
        self, item: Any, place: str, tensors: Sequence[GraphTensor], storages: dict[int, int], begun: set[int]
    ) -> GraphOp:
        self.keys(item, place, _OP_KEYS, optional=frozenset({"target", "writes", "once"}))
        name, target = item["name"], item.get("target", item["name"])
        for key, text in (("name", name), ("target", target)):
            if not isinstance(text, str) or not text:
                self.fail(f"{place}.{key}", f"expected a name, got {_show(text)}")
        inputs = self.indices(item["inputs"], len(tensors), f"{place}.inputs")
        outputs = self.indices(item["outputs"], len(tensors), f"{place}.outputs")
        once = item.get("once", False)
        if type(once) is not bool:
            self.fail(f"{place}.once", f"expected true or false, got {_show(once)}")
        made = [tensors[tensor].storage for tensor in outputs]
        if "writes" not in item:
            return GraphOp(name, target, inputs, outputs, tuple(dict.fromkeys(made)), once)
        writes: list[int] = []
        for i, number in enumerate(self.items(item["writes"], f"{place}.writes")):
            if type(number) is not int or number not in storages:
                self.fail(f"{place}.writes[{i}]", f"expected the number of a storage, got {_show(number)}")
            writes.append(storages[number])
        # A storage begins with the op that first makes a tensor in it, said or not.
        writes.extend(storage for storage in made if storage not in begun)
        return GraphOp(name, target, inputs, outputs, tuple(dict.fromkeys(writes)), once)

    def within(
        self, tensors: Sequence[GraphTensor], ops: Sequence[GraphOp], sizes: Sequence[int], numbers: Sequence[int]
    ) -> None:
        """Tensors lie inside their storages, but for views that repeat elements, which no op writes through."""
        views = {tensor for op in ops for tensor in op.outputs if tensors[tensor].storage not in op.writes}
        for i, tensor in enumerate(tensors):
            if tensor.nbytes > sizes[tensor.storage] and i not in views:
                self.fail(
                    f"tensors[{i}].bytes",
                    f"expected at most the {sizes[tensor.storage]} storage_bytes of storage {numbers[tensor.storage]}, "
                    f"got {tensor.nbytes}",
                )

    def missing(self, place: str, tensor: int, rest: Sequence[Any]) -> NoReturn:
        for later in rest:
            if isinstance(later, dict) and isinstance(later.get("outputs"), list) and tensor in later["outputs"]:
                self.fail(
                    place,
                    f"expected inputs that earlier ops produce, got tensor {tensor}, which op {later.get('name')} "
                    "produces only later; list the ops in an order of execution (a cycle has none)",
                )
        self.fail(place, f"expected inputs that exist, got tensor {tensor}, which is no graph input and no op's output")


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
