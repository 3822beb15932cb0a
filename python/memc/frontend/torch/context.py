# SPDX-License-Identifier: Apache-2.0
"""What the converter of an overload sees, and the registry of converters."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Union

import numpy as np

from memc.ir.build import IRBuilder
from memc.ir.core import Value
from memc.ir.errors import UnsupportedError
from memc.ir.ops.shared.casts import cast
from memc.ir.types import DType, TensorType

from .graph import Graph, Meta, Node, Ref
from .handles import Handle, View, fresh

Known = Union[Handle, Value, int, float, bool, None, list[Any]]
"""A value of the program during import: a tensor, or a number that is known."""


@dataclass
class State:
    """One import: what all nodes share."""

    b: IRBuilder
    graph: Graph
    trainable: bool = False
    """Whether a training step is made of the program."""
    symbols: dict[str, int] = field(default_factory=dict)
    streams: Iterator[int] = field(default_factory=itertools.count)
    """Numbers for ops that draw at random, so that no two draw the same."""
    names: dict[str, int] = field(default_factory=dict)
    """How often each name of a node was given to a value."""
    statistics: set[Value] = field(default_factory=set)
    """Running statistics, which a training step moves by itself."""


@dataclass
class NodeContext:
    """One node being imported."""

    node: Node
    state: State
    scope: dict[str, Known]
    metas: dict[str, Meta]
    read_args: set[str] = field(default_factory=set)
    """Names of the arguments that the converter asked for."""

    @property
    def b(self) -> IRBuilder:
        """Appends ops; its location is the node's."""
        return self.state.b

    @property
    def trainable(self) -> bool:
        return self.state.trainable

    def resolved(self, arg: Any) -> Any:
        """An argument with names replaced by what they stand for."""
        if isinstance(arg, Ref):
            if arg.name not in self.scope:
                raise self.invalid(f"`{arg.name}` is not defined")
            return self.scope[arg.name]
        return [self.resolved(item) for item in arg] if isinstance(arg, (list, tuple)) else arg

    def get(self, name: str, default: Any = None) -> Any:
        """Argument `name`: a handle, a number, text or a list; `default` where it is left out or None."""
        self.read_args.add(name)
        found = self.resolved(self.node.args.get(name))
        return default if found is None else found

    def unread(self) -> str | None:
        """A tensor argument that nothing asked for."""
        tensors = (n for n, a in self.node.args.items() if isinstance(self.scope.get(getattr(a, "name", "")), Handle))
        return next((name for name in tensors if not name.isdigit() and name not in self.read_args), None)

    def has(self, name: str) -> bool:
        """Whether an argument is given and not None."""
        return self.get(name) is not None

    def handle(self, name: str) -> Handle:
        """The tensor that an argument is."""
        found = self.get(name)
        if isinstance(found, Value):
            return fresh(found)
        if not isinstance(found, Handle):
            raise self.unsupported(f"expected a tensor as argument `{name}`, got {found!r}")
        return found

    def value(self, name: str) -> Value:
        """The tensor that an argument is, as an IR value."""
        return self.handle(name).read(self.b)

    def read(self, known: Any) -> Value:
        """A resolved argument that is a tensor, as an IR value."""
        if isinstance(known, Handle):
            return known.read(self.b)
        if isinstance(known, Value):
            return known
        raise self.unsupported(f"expected a tensor, got {known!r}")

    def values(self, name: str) -> list[Value]:
        """A list of tensors."""
        return [self.read(item) for item in self.get(name, [])]

    def operand(self, name: str, dtype: DType) -> Value:
        """A tensor or number as a value of a given element type."""
        return self.typed(self.get(name), dtype)

    def typed(self, known: Any, dtype: DType) -> Value:
        """A resolved tensor or number as a value of a given element type."""
        if isinstance(known, (int, float)):
            if dtype.is_integer and not float(known).is_integer():
                raise self.unsupported(f"expected an integer, got {known}")
            return self.b.scalar(_wrapped(int(known), dtype) if dtype.is_integer else known, dtype)
        return cast(self.b, self.read(known), dtype)

    def ints(self, name: str, default: Sequence[int] | None = None) -> list[int]:
        """Integers; one for a single number."""
        found = self.get(name, default)
        if found is None:
            raise self.unsupported(f"argument `{name}` is missing")
        found = found if isinstance(found, list) else [found] if isinstance(found, int) else list(found)
        if not all(isinstance(n, int) for n in found):
            raise self.unsupported(f"argument `{name}`: expected sizes that are known at compile time, got tensors")
        return [int(n) for n in found]

    def axis(self, axis: int, rank: int) -> int:
        """An axis counted from the front."""
        limit = max(rank, 1)
        if not -limit <= axis < limit:
            raise self.invalid(f"axis {axis} of a tensor of rank {rank}")
        return axis + limit if axis < 0 else axis

    def axes(self, name: str, rank: int) -> tuple[int, ...]:
        """Axes, all of them if none is given."""
        found = self.get(name)
        if found is None or found == []:
            return tuple(range(rank))
        return tuple(sorted({self.axis(a, rank) for a in self.ints(name)} if rank else ()))

    def out(self, index: int = 0) -> Meta | None:
        """What the program says of result `index`."""
        names = [name for name in self.node.results if name]
        return self.metas.get(names[index]) if index < len(names) else None

    def out_dtype(self, default: DType, index: int = 0) -> DType:
        """The element type of a result as the program says, or `default` where it says nothing."""
        meta = self.out(index)
        if meta is not None and meta.dtype is None and meta.kind:
            raise self.unsupported(f"elements of type {meta.kind}")
        return default if meta is None or meta.dtype is None else meta.dtype

    def view(self, of: Handle, view: View) -> Handle:
        """A view of a tensor."""
        made = Handle(of.storage, of, view)
        made.read(self.b)
        return made

    def draw(self) -> tuple[Value, int]:
        """What an op that draws at random is given: its seed, i64[], which a training step replaces, and its stream."""
        if self.state.graph.seed:
            return self.read(self.scope[self.state.graph.seed]), next(self.state.streams)
        if not self.trainable:
            raise self.unsupported("random numbers are drawn in training steps only; call eval() before the export")
        return self.b.scalar(0, DType.I64), next(self.state.streams)

    def label(self) -> str:
        """How messages name the node: its target and place."""
        place = str(self.node.location)
        return f"{self.node.target} `{self.node.name}`" + (f" ({place})" if place else "")

    def unsupported(self, why: str) -> UnsupportedError:
        """An error that names the node, its module and source line; raise it."""
        return UnsupportedError(f"unsupported: {self.label()}: {why}")

    def invalid(self, why: str) -> UnsupportedError:
        """An error for a program that contradicts itself; raise it."""
        return UnsupportedError(f"invalid: {self.label()}: {why}")


Converter = Callable[[NodeContext], Any]
"""Returns the node's result, or a list of them: values, handles or numbers."""

_CONVERTERS: dict[str, Converter] = {}


def converts(*targets: str) -> Callable[[Converter], Converter]:
    """Decorator: the converter of overloads, such as `aten.add.Tensor`."""

    def add(fn: Converter) -> Converter:
        for target in targets:
            if target in _CONVERTERS:
                raise ValueError(f"two converters for {target}")
            _CONVERTERS[target] = fn
        return fn

    return add


def converter_of(target: str) -> Converter | None:
    return _CONVERTERS.get(target)


def overloads() -> list[str]:
    """All overloads that have converters, sorted."""
    return sorted(_CONVERTERS)


_RANKS = {
    **{DType.BOOL: 0, DType.U8: 1, DType.I8: 1, DType.I16: 2, DType.U16: 2, DType.I32: 3, DType.U32: 3},
    **{DType.I64: 4, DType.U64: 4, DType.F16: 5, DType.BF16: 5, DType.F32: 6, DType.F64: 7},
}


def promoted(left: DType, right: DType) -> DType:
    """The element type of an operation of two tensors, as PyTorch chooses it."""
    if left is right:
        return left
    if {left, right} == {DType.F16, DType.BF16}:
        return DType.F32
    if {left, right} == {DType.U8, DType.I8}:
        return DType.I16
    return max(left, right, key=lambda dtype: _RANKS[dtype])


def _category(known: Any) -> int:
    if isinstance(known, (bool, int, float)):
        return 0 if isinstance(known, bool) else 1 if isinstance(known, int) else 2
    dtype = known.type.dtype
    return 2 if dtype.is_float else 0 if dtype is DType.BOOL else 1


def common_dtype(*operands: Any) -> DType:
    """The element type of an operation of tensors (IR values) and numbers: tensors with axes decide, unless another operand
    is of a higher kind (bool, integer, float)."""
    ranked = [x for x in operands if isinstance(x, Value) and x.type.rank]
    scalars = [x for x in operands if isinstance(x, Value) and not x.type.rank]
    numbers = [x for x in operands if not isinstance(x, Value)]
    found: DType | None = None
    reached = -1
    for group in (ranked, scalars):
        higher = [x for x in group if _category(x) > reached]
        for x in higher:
            found = x.type.dtype if found is None or _category(x) > reached else promoted(found, x.type.dtype)
            reached = max(reached, _category(x))
        for x in higher:
            if _category(x) == reached and found is not None:
                found = promoted(found, x.type.dtype)
    for x in numbers:
        if _category(x) > reached:
            found, reached = (DType.BOOL, DType.I64, DType.F32)[_category(x)], _category(x)
    return found if found is not None else DType.F32


def _wrapped(number: int, dtype: DType) -> int:
    """A number in as many bits as the type has, as PyTorch converts it."""
    bits = 8 * dtype.itemsize
    number %= 2**bits
    return number - 2**bits if np.issubdtype(dtype.numpy, np.signedinteger) and number >= 2 ** (bits - 1) else number


def like(type: TensorType, shape: Sequence[int]) -> TensorType:
    return type.with_shape(tuple(shape))
