# SPDX-License-Identifier: Apache-2.0
"""What an importer of one ONNX op type sees, and the registry of importers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Union

import numpy as np
import onnx

from memc.ir.build import IRBuilder
from memc.ir.core import Array, Role, Value
from memc.ir.errors import UnsupportedError
from memc.ir.types import DType, TensorType

from .data_dependent_sizes import Sizes

Known = Union[Value, Array]
"""An ONNX value during import: an IR value, or its data where that is known at import."""


@dataclass
class NodeContext:
    """One node being imported."""

    node: onnx.NodeProto
    opset: int
    """Version of the node's operator set."""
    inputs: list[Known | None]
    """None for an omitted optional input."""
    b: IRBuilder
    """Appends ops; its location is the node's name."""
    trainable: bool = False
    """Whether the model is imported to be trained: weights stay weights, and normalization is not folded."""
    constants: dict[int, tuple[Array, Value]] = field(default_factory=dict)
    """Values already made of known arrays, by the array's identity, so that an array becomes one weight."""
    streams: Iterator[int] = field(default_factory=itertools.count)
    """Numbers for ops that draw at random, so that no two draw the same."""
    sizes: Sizes = field(default_factory=Sizes)
    """The sizes that depend on data."""
    counter: Callable[[], Value] | None = None
    """Gives the counter of runs, which ops that draw at random draw by; None where none can be imported."""

    def has(self, index: int) -> bool:
        """Whether input `index` is given."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def value(self, index: int) -> Value:
        """Input `index` as an IR value; known data becomes a constant or weight."""
        known = self.inputs[index]
        if known is None:
            raise self.unsupported(f"input {index} is missing")
        if isinstance(known, Value):
            return known
        if id(known) not in self.constants:
            _ir_dtype(known, self)
            name = self.node.input[index] if index < len(self.node.input) else ""
            self.constants[id(known)] = (known, self.b.constant(known, name=name or None))
        made = self.constants[id(known)][1]
        self.inputs[index] = made
        return made

    def type(self, index: int) -> TensorType:
        """Type of input `index`, known or not."""
        known = self.inputs[index]
        if known is None:
            raise self.unsupported(f"input {index} is missing")
        if isinstance(known, Value):
            return known.type
        return TensorType(_ir_dtype(known, self), known.shape)

    def known(self, index: int) -> Array | None:
        """Data of input `index` if it is known at import, else None."""
        known = self.inputs[index] if index < len(self.inputs) else None
        return known if isinstance(known, np.ndarray) else None

    def const(self, index: int) -> Array:
        """Data of input `index`, which must be known. Raises UnsupportedError saying how to bind it."""
        known = self.known(index)
        given = self.inputs[index] if index < len(self.inputs) else None
        if isinstance(given, Value) and given.op is None and given.role is Role.WEIGHT:
            return self.b.module.weights[given.name]
        if known is None:
            name = self.node.input[index] if index < len(self.node.input) else f"#{index}"
            if any(p.name == name and p.role is Role.INPUT for p in self.b.function.params):
                hint = f"bind it with --bind {name}=VALUE"
            else:
                hint = "bind the graph inputs that decide it with --bind NAME=VALUE"
            raise self.unsupported(f"input `{name}` must be known at compile time; {hint}")
        return known

    def ints(self, index: int) -> tuple[int, ...]:
        """Known integer data of input `index`, flattened."""
        return tuple(int(v) for v in np.asarray(self.const(index)).reshape(-1))

    def attr(self, name: str, default: Any = None) -> Any:
        """Attribute `name` as Python data (bytes decoded, lists as tuples, tensors as arrays)."""
        for attribute in self.node.attribute:
            if attribute.name == name:
                return _python(onnx.helper.get_attribute_value(attribute))
        return default

    def draw(self) -> tuple[Value, int]:
        """What an op that draws at random is given: its seed, i64[], and its stream.

        The seed is the counter of runs, with the node's attribute `seed`, if it has one, in the upper half. A training step
        has a seed of its own instead."""
        if self.counter is None:
            raise self.unsupported("random numbers are drawn at run time, not at import")
        seed = self.counter()
        own = int(np.float32(self.attr("seed", 0.0)).view(np.int32))
        if own and not self.trainable:
            seed = self.b.op("add", [seed, self.b.scalar(own << 32, DType.I64)])
        return seed, next(self.streams)

    def unsupported(self, why: str) -> UnsupportedError:
        """An error that names the node and op; raise it."""
        label = self.node.name or (self.node.output[0] if self.node.output else "")
        return UnsupportedError(f"unsupported: node `{label}` ({self.node.op_type}): {why}")


def _ir_dtype(array: Array, context: NodeContext) -> DType:
    try:
        return DType.from_numpy(array.dtype)
    except KeyError:
        raise context.unsupported(f"tensors of element type {array.dtype.name}") from None


def _python(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    if isinstance(value, (list, tuple)) or type(value).__name__.startswith("Repeated"):
        return tuple(_python(v) for v in value)
    return value


Importer = Callable[[NodeContext], Sequence[Known]]
"""Returns one IR value or known array for each output of the node (trailing unused ones may be left out)."""

_IMPORTERS: dict[tuple[str, str], Importer] = {}


def imports(op_type: str, domain: str = "") -> Callable[[Importer], Importer]:
    """Decorator: the importer of an ONNX op type. It handles every opset, asking `ctx.opset` where they differ."""

    def add(fn: Importer) -> Importer:
        if (domain, op_type) in _IMPORTERS:
            raise ValueError(f"two importers for {domain}:{op_type}")
        _IMPORTERS[domain, op_type] = fn
        return fn

    return add


def importer_of(op_type: str, domain: str = "") -> Importer | None:
    return _IMPORTERS.get((domain, op_type))


def op_types(domain: str) -> list[str]:
    """The op types of a domain that have importers, sorted."""
    return sorted(op_type for of, op_type in _IMPORTERS if of == domain)
