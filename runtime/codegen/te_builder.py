# SPDX-License-Identifier: Apache-2.0
"""The lowering `Builder` of `memc.ir.ops.shared.op_def` over TVM tensor expressions.

Tensors that a lowering makes without a reduction exist only as functions of their index: reading one composes its
expression into the reader, so a kernel has no intermediate stage. A value read at an index that is certainly inside its
shape is bound with a `Let` once in each scope, which keeps fused expressions linear in size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm
import tvm_ffi
from tvm import te, tirx

from memc.ir.types import DType, TensorType
from memc.runtime.codegen import bf16, reducers
from memc.runtime.codegen.exact_arithmetic import exact
from memc.runtime.codegen.expressions import (
    COMPUTED,
    STORED,
    KernelError,
    const,
    constant_value,
    dtype_of,
    is_float,
    is_leaf,
    is_load,
    node,
    walk,
)
from memc.runtime.codegen.integers import sealed
from memc.runtime.codegen.math_functions import hidden
from memc.runtime.codegen.scalar_builder import ScalarBuilder

INDEX_LIMIT = 2**31 - 1
"""Kernels that touch a tensor with more elements than this use 64-bit loop variables."""

LONG_SUM = 128
"""Terms from which on a sum of f32 is made in f64. Adding n terms one after another can cost log2(n) bits; f64 costs no
time, as these loops wait for memory and not for arithmetic."""


def inlined(let: Any) -> Any:
    """The body of a `Let` with the value in place of the variable."""
    return tvm_ffi.structural_map(let.body, (tirx.Var, lambda v: let.value if v.same_as(let.var) else v))


def address(load: Any) -> Any:
    """The position of an element at which a TE tensor is read."""
    return tirx.call_intrin("handle", "tirx.address_of", load)


def position_of(index: Any, type: TensorType) -> tuple[Any, ...]:
    """An index into a tensor, which may be a single number, as one of each axis."""
    position = index if isinstance(index, tuple) else (index,)
    if len(position) != type.rank:
        raise KernelError(f"index of rank {len(position)} into {type}")
    return position


@dataclass
class Scope:
    """Inner values that were read at a known index since the scope (a compute's or a reduction's body) began."""

    values: dict[Any, tirx.Var] = field(default_factory=dict)
    order: list[tuple[tirx.Var, Any]] = field(default_factory=list)
    indices: list[Any] = field(default_factory=list)
    """Indices known by their identity, which lasts as long as they are kept."""

    def key(self, index: Any) -> Any:
        """What equal indices have in common. TVM cannot compare expressions that read a tensor: of those each is its own."""
        if not any(is_load(call) for call in walk(index, tvm.ir.Call)):
            return tvm_ffi.structural.StructuralKey(index)
        self.indices.append(index)
        return index.id_

    def close(self, expr: Any) -> Any:
        """`expr` inside the bindings of this scope."""
        for variable, value in reversed(self.order):
            expr = tirx.Let(variable, value, expr)
        return expr


class Operand:
    """A tensor in memory: a kernel parameter or the result of the kernel's one reduction."""

    def __init__(self, builder: TEBuilder, tensor: te.Tensor, type: TensorType) -> None:
        self.builder = builder
        self.tensor = tensor
        self.type = type
        self.encoded = type.dtype is DType.BF16 and str(tensor.dtype) == "uint16"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    def __getitem__(self, index: Any) -> Any:
        value = self.tensor(*[self.builder.unbound(node(i)) for i in position_of(index, self.type)])
        return bf16.value_of_bf16(value) if self.encoded else value


class Literal:
    """A tensor of one repeated value, known when the kernel is built."""

    def __init__(self, value: Any, type: TensorType, target: str) -> None:
        # TVM takes x + 0 for x when it makes the sum, which is wrong for -0.
        self.value = hidden(value, target) if constant_value(value) == 0 and is_float(dtype_of(value)) else value
        self.type = type

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    def __getitem__(self, index: Any) -> Any:
        return self.value


class Inline:
    """A tensor that exists only as the function of its index."""

    def __init__(self, builder: TEBuilder, type: TensorType, body: Callable[..., Any]) -> None:
        self.builder = builder
        self.type = type
        self.body = body

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    def __getitem__(self, index: Any) -> Any:
        return self.builder.read_inline(self, position_of(index, self.type))


class Reduction:
    """What `TEBuilder.reduce` hands to `compute`."""

    def __init__(self, expr: Any) -> None:
        self.expr = expr


class TEBuilder(ScalarBuilder):
    """Builds one kernel. `stages` collects the reductions that became TE stages (at most one per kernel)."""

    def __init__(self, target: str, wide_index: bool = False) -> None:
        super().__init__(target, wide_index)
        self.stages: list[te.Tensor] = []
        self.may_reduce = True
        """Whether the op being lowered may reduce. Where it cannot, bodies are not tried out in advance."""
        self.only_loads = True
        """Whether elements are read where expressions say so; or before, so that they are variables."""
        self.scopes: list[Scope] = []
        self.bound: dict[Any, Any] = {}
        """The value of every variable that a scope binds."""

    # Tensors

    def extent(self, value: int) -> Any:
        """An extent in the kernel's index type."""
        return tirx.IntImm(self.index_dtype, value)

    def placeholder(self, type: TensorType, name: str) -> Operand:
        """A tensor the kernel is given."""
        shape = [self.extent(d) for d in type.shape]
        return Operand(self, te.placeholder(shape, STORED[type.dtype], name=name), type)

    def compute(self, type: TensorType, body: Callable[..., Any]) -> Any:
        """See `Builder.compute`. A body that reduces becomes a stage; any other stays a function."""
        if not self.may_reduce:
            return Inline(self, type, body)
        reduces = False

        def stage_body(*index: Any) -> Any:
            nonlocal reduces
            self.bind_ranges(index, type.shape)
            self.scopes.append(Scope())
            value = body(*index)
            scope = self.scopes.pop()
            reduces = isinstance(value, Reduction)
            if not reduces:
                return scope.close(node(value))
            if scope.order:
                raise KernelError("a reduction must be the whole body of a compute")
            return value.expr

        stage = te.compute([self.extent(d) for d in type.shape], stage_body, name="reduced")
        if not reduces:
            return Inline(self, type, body)
        self.stages.append(stage)
        if str(stage.dtype) == "float64" and type.dtype is not DType.F64:
            return Inline(self, type, lambda *index: stage(*[self.unbound(node(i)) for i in index]))
        return Operand(self, stage, type)

    def materialize(self, tensor: Any, name: str) -> te.Tensor:
        """The TE stage that writes `tensor` to memory: what the kernel returns."""
        exact = tensor.type.dtype is not DType.BF16
        if exact and isinstance(tensor, Operand) and any(tensor.tensor.same_as(s) for s in self.stages):
            return tensor.tensor
        shape = [self.extent(d) for d in tensor.type.shape]

        return te.compute(shape, lambda *index: self.element(tensor, index), name=name)

    def element(self, tensor: Any, index: Sequence[Any]) -> Any:
        """An element of `tensor` as it is stored, of an expression by itself."""
        self.bind_ranges(index, tensor.type.shape)
        self.scopes.append(Scope())
        value = tensor[tuple(index)] if not isinstance(tensor, Inline) else tensor.body(*index)
        if isinstance(value, Reduction):
            raise KernelError("a reduction must be the whole body of a compute")
        value = self.convert(value, COMPUTED[tensor.type.dtype])
        stored = bf16.bits_of_bf16(value) if tensor.type.dtype is DType.BF16 else value
        return exact(self.scopes.pop().close(stored), self.target, self.only_loads)

    def read_inline(self, tensor: Inline, index: tuple[Any, ...]) -> Any:
        """The element of an inline tensor, bound once per scope where reading it early is safe."""
        position = tuple(self.index(i) for i in index)
        if not self.scopes or not self.inside(position, tensor.shape):
            return self.compose(tensor, position)
        scope = self.scopes[-1]
        key = (id(tensor), tuple(map(scope.key, position)))
        if key not in scope.values:
            value = self.compose(tensor, position)
            # TVM's range analysis fails on a bound bool once it is vectorized.
            if is_leaf(value) or dtype_of(value) == "bool":
                return value
            variable = tirx.Var("v", dtype_of(value))
            scope.values[key] = variable
            scope.order.append((variable, value))
            self.bound[variable] = value
        return scope.values[key]

    def compose(self, tensor: Inline, position: tuple[Any, ...]) -> Any:
        value = tensor.body(*position)
        if isinstance(value, Reduction):
            raise KernelError("a reduction was read before it became a stage")
        return self.data(self.convert(value, COMPUTED[tensor.type.dtype]))

    def data(self, value: Any) -> Any:
        """An element as the next op sees it: integers computed from data are sealed, those from indices alone are not."""
        if any(is_load(c) for c in walk(node(value), tvm.ir.Call)) or any(
            v in self.bound for v in walk(value, tirx.Var)
        ):
            return sealed(value, self.target)
        return value

    def unbound(self, index: Any) -> Any:
        """The index with bound variables replaced by their values: TVM states which elements a block reads outside of
        the bindings."""
        if isinstance(index, int):
            return index
        while any(v in self.bound for v in walk(index, tirx.Var)):
            index = tvm_ffi.structural_map(index, (tirx.Var, lambda v: self.bound.get(v, v)))
        # A value stands in the index and in its own binding: a `Let` inside would define its variable twice.
        while walk(index, tirx.Let):
            index = tvm_ffi.structural_map(index, (tirx.Let, inlined))
        return index

    def index(self, value: Any) -> Any:
        return self.extent(value) if isinstance(value, int) else node(value)

    # Reductions

    def reduce(self, kind: str, extents: Sequence[int], body: Callable[..., Any]) -> Any:
        """See `Builder.reduce`."""
        axes = [te.reduce_axis((self.extent(0), self.extent(max(n, 1))), name=f"k{i}") for i, n in enumerate(extents)]
        self.bind_ranges([a.var for a in axes], extents)
        self.scopes.append(Scope())
        value = body(*[a.var for a in axes])
        value = exact(self.scopes.pop().close(node(value)), self.target, self.only_loads)
        if not extents or 0 in extents:
            return reducers.identity(kind, dtype_of(value)) if 0 in extents else value
        # On a GPU many threads share a sum, each with few terms, and f64 may be slow.
        if kind == "sum" and self.target == "llvm" and math.prod(extents) >= LONG_SUM:
            value = self.convert(value, "float64") if dtype_of(value) == "float32" else value
        return Reduction(reducers.reducer(kind, self.target)(value, axis=axes))

    def sum_of_hits(
        self, indices: Any, extent: int, row: Any, values: Any, before: Sequence[Any], after: Sequence[Any], end: Any
    ) -> Any:
        """See `Builder.sum_of_hits`: a function of the device, in which the threads of a warp look for hits together."""
        memory = isinstance(indices, Operand) and isinstance(values, Operand)
        if self.target != "cuda" or not memory or values.type.dtype not in (DType.F32, DType.F64):
            return None
        places = math.prod(indices.shape)
        between = math.prod(values.shape[len(before) + len(indices.shape) :])
        first = (*before, *[0] * len(indices.shape), *after)
        if not places:
            return const(0, COMPUTED[values.type.dtype])
        return tirx.call_pure_extern(
            COMPUTED[values.type.dtype],
            "memc_sum_of_hits",
            address(indices[(0,) * len(indices.shape)]),
            const(places, "int64") if end is None else end.astype("int64"),
            const(extent, "int64"),
            row.astype("int64"),
            address(values[first]),
            const(between, "int64"),
        )
