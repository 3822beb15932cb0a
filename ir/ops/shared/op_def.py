# SPDX-License-Identifier: Apache-2.0
"""What an op must state. One file in this folder holds everything the compiler knows of an op or close family."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Protocol, Union

from ...build import IRBuilder
from ...core import Array, Attr, Op, Value
from ...type_inference import InferFn, add_rule
from ...types import DType, TensorType
from .packing import Packing

Attrs = Mapping[str, Attr]


class Trait(Enum):
    """Facts about an op that passes rely on."""

    ELEMENTWISE = auto()
    """Result element i depends only on the operands' elements at i, after numpy broadcasting."""
    INJECTIVE = auto()
    """Every result element is a copy of at most one operand element (slice, transpose, pad, gather ...)."""
    REDUCTION = auto()
    """Every result element combines many operand elements."""
    CHEAP = auto()
    """Cheap to recompute, next to what it costs to keep its result."""
    RANDOM = auto()
    """Draws random numbers (from a counter and a seed, so that it can be recomputed)."""
    COMMUTATIVE = auto()
    """Two operands in either order give the same result."""
    COPY = auto()
    """Begins a copy between spaces or waits for one: each is an event of its own, never merged, folded, fused or recomputed."""
    ONCE = auto()
    """A view whose bytes are never recomputed, so that all that reads it reads the same bits."""

    __hash__ = object.__hash__  # Members are compared by identity; the enumeration's own takes far longer.


class Expr(Protocol):
    """A scalar expression of a lowering: index arithmetic and element computation."""

    def __add__(self, other: Any, /) -> Expr: ...
    def __radd__(self, other: Any, /) -> Expr: ...
    def __sub__(self, other: Any, /) -> Expr: ...
    def __rsub__(self, other: Any, /) -> Expr: ...
    def __mul__(self, other: Any, /) -> Expr: ...
    def __rmul__(self, other: Any, /) -> Expr: ...
    def __neg__(self) -> Expr: ...
    def __lt__(self, other: Any, /) -> Expr: ...
    def __le__(self, other: Any, /) -> Expr: ...
    def __gt__(self, other: Any, /) -> Expr: ...
    def __ge__(self, other: Any, /) -> Expr: ...


class Tensor(Protocol):
    """A tensor of a lowering: an operand, or what `Builder.compute` made."""

    @property
    def shape(self) -> Any: ...

    def __getitem__(self, index: Any, /) -> Expr: ...


class Builder(Protocol):
    """What a lowering may use. `runtime/codegen` implements it with TVM's tensor expressions.

    A lowering makes each result with one `compute`. Its body is either a scalar expression, or one call of
    `reduce` (nothing around it). Extra `compute` stages are allowed only if they hold no reduction: they are
    inlined into their reader. An op that needs more than one reduction states `Decompose` instead. That way a
    kernel never needs memory besides its operands and results.
    """

    def compute(self, type: TensorType, body: Callable[..., Expr]) -> Tensor:
        """A tensor whose element at (i, j, ...) is body(i, j, ...); a scalar's body takes nothing."""

    def reduce(self, kind: str, extents: Sequence[int], body: Callable[..., Expr]) -> Expr:
        """Combine body(k0, k1, ...) over 0 <= k < extents. `kind`: sum, prod, max, min, any, all.

        The neutral element stands for an empty range. Accumulates in the dtype of the body: cast inside
        the body where a wider accumulator is needed. A sum of many f32 terms that one thread of a CPU adds is made in
        f64, so that its error does not grow with their number.
        """

    def sum_of_hits(
        self,
        indices: Tensor,
        extent: int,
        row: Expr,
        values: Tensor,
        before: Sequence[Expr],
        after: Sequence[Expr],
        end: Expr | None,
    ) -> Expr | None:
        """The sum of values[(*before, *place, *after)] over the places where `indices` names `row`, in their order; only
        the first `end` of them, if that is given.

        Indices below 0 count from `extent`; those out of range name the first or last row. It is an expression like any
        other, not the body of a `compute`. None where a target has nothing better than `reduce` over all places.
        """

    def const(self, value: float | int | bool, dtype: DType) -> Expr: ...
    def cast(self, value: Expr, dtype: DType) -> Expr:
        """Convert as numpy's astype does (float to int truncates)."""

    def bitcast(self, value: Expr, dtype: DType) -> Expr: ...
    def select(self, condition: Expr, then: Expr, otherwise: Expr) -> Expr:
        """Only the chosen side is evaluated, so it may guard an out-of-range read."""

    def equal(self, a: Expr, b: Expr) -> Expr: ...
    def not_equal(self, a: Expr, b: Expr) -> Expr: ...
    def logical_and(self, *terms: Expr) -> Expr: ...
    def logical_or(self, *terms: Expr) -> Expr: ...
    def logical_not(self, a: Expr) -> Expr: ...
    def divide(self, a: Expr, b: Expr) -> Expr:
        """Float division; for integers, division that truncates towards zero, as in C, and gives 0 by 0."""

    def floordiv(self, a: Expr, b: Expr | int) -> Expr:
        """Division that rounds down; integers give 0 by 0."""

    def floormod(self, a: Expr, b: Expr | int) -> Expr:
        """The remainder with the divisor's sign; integers give 0 by 0."""

    def minimum(self, a: Expr, b: Expr | int) -> Expr:
        """The smaller; NaN if either is NaN."""

    def maximum(self, a: Expr, b: Expr | int) -> Expr:
        """The larger; NaN if either is NaN."""

    def binary(self, name: str, a: Expr, b: Expr) -> Expr:
        """Two-operand intrinsics: add, sub, mul, pow, fmod, atan2, bitwise_and, bitwise_or, bitwise_xor, shift_left,
        shift_right."""

    def unary(self, name: str, a: Expr) -> Expr:
        """One-operand intrinsics: exp, log, sqrt, rsqrt, sin, cos, tan, asin, acos, atan, sinh, cosh, tanh, asinh,
        acosh, atanh, erf, floor, ceil, trunc, rint (half to even), abs, isnan, isinf, bitwise_not."""


EvaluateFn = Callable[[Sequence[Array], Attrs, Sequence[TensorType]], Sequence[Array]]
ComputeFn = Callable[[Builder, Op, Sequence[Tensor]], Sequence[Tensor]]
GradientFn = Callable[[IRBuilder, Op, Sequence[Union[Value, None]]], Sequence[Union[Value, None]]]
"""Builds the gradient of the loss in each operand from those in the results (None where a result does not matter).

It may read the op's operands and results: what it reads is what must be kept, or recomputed, for the backward
pass. None for an operand says that the loss does not change with it: it is not a float, or the op is flat in it.
"""


@dataclass(frozen=True)
class Compute:
    """Lowering as a tensor expression: one result tensor for each result of the op."""

    fn: ComputeFn
    parts: Callable[[IRBuilder, Op], Sequence[Value] | None] | None = None
    """Builds smaller ops in the place of one too large for a kernel of its own, as `Decompose`; None leaves the op."""


@dataclass(frozen=True)
class Decompose:
    """Lowering as other ops: `fn` builds them and returns the values that take the place of the results."""

    fn: Callable[[IRBuilder, Op], Sequence[Value]]


@dataclass(frozen=True)
class Literal:
    """No code: the op's results are data (`constant`)."""


@dataclass(frozen=True)
class Routine:
    """Lowering as loops that `runtime/codegen/routines.py` has for the op, by its name: what goes on from one element to the
    next, which no expression of an element's index says. Its kernel is never fused with another."""


@dataclass(frozen=True)
class Asynchronous:
    """No kernel: the runtime moves bytes on a lane of its own, or waits for that."""


Lowering = Union[Compute, Decompose, Literal, Routine, Asynchronous]


@dataclass(frozen=True)
class LibraryKernel:
    """A hand-written or vendor kernel that may take the place of the generated one.

    It is called as `symbol(operands..., results..., workspace?, scalars...)`; the workspace tensor (u8[n]) is there
    exactly if the op has one.
    """

    target: str
    """`llvm` or `cuda`."""
    symbol: str
    """Name of the registered packed function, for example `memc.cpu.conv2d`."""
    supports: Callable[[Op], bool]
    scalars: Callable[[Op], Sequence[int | float]]
    workspace: Callable[[Op], tuple[int, int]] | None
    """Least and most useful workspace bytes; None if it never needs any."""
    groups: bool = False
    """Whether the rules above also take fused groups that begin with the op."""
    in_place: Callable[[Op], Sequence[int]] | None = None
    """Operands of a group whose bytes result 0 may take over, as `OpDef.in_place`; None for none. Of an op alone, its own
    rule counts."""
    packing: Callable[[Op], Packing] | None = None
    """How the kernel wants operand 1, a weight that nothing else reads, to be laid out; None for plainly."""
    replaces: str | None = None
    """The symbol of the kernel that this one replaces where the weight can be packed; None without a packing."""
    whole: bool = False
    """Whether the pass `decompose` leaves the op to the kernel in place of the other ops that it stands for."""


@dataclass(frozen=True)
class OpDef:
    """Everything the compiler knows of one op. Every rule is stated; None says that there is none."""

    name: str
    doc: str
    """The contract: operands, attributes, result. First line is a summary."""
    spec: str | None
    """Link to the defining specification, where there is one."""
    infer: InferFn
    """Result types. Raises OpError saying what was expected and what it got."""
    evaluate: EvaluateFn
    """numpy reference. May return views of its inputs; never writes to them."""
    gradient: GradientFn | None
    """None: there is no rule, and to differentiate through the op is an error. `flat` says that it is zero."""
    in_place: Callable[[Op], Sequence[int]] | None
    """Operands whose bytes result 0 may take over: each has the result's byte size, and the kernel reads none of
    its elements after it wrote a result element over it, whatever the order of execution."""
    view: Callable[[Op], int | None] | None
    """Byte offset of result 0 inside operand 0 when the result is a contiguous part of it, else None."""
    slices: Callable[[Op], Sequence[int | None]] | None
    """For ops that put operands together (concat): the byte offset of each operand inside the result where it is
    a contiguous part of it, else None."""
    flops: Callable[[Op], int]
    """Floating-point operations (a multiply-add counts two); 0 for data movement."""
    lower: Lowering
    library: Sequence[LibraryKernel]
    traits: frozenset[Trait] = frozenset()


_REGISTRY: dict[str, OpDef] = {}


def register(definition: OpDef) -> OpDef:
    """Add an op to the registry. Raises ValueError if the name is taken."""
    add_rule(definition.name, definition.infer)
    _REGISTRY[definition.name] = definition
    return definition


def lookup(name: str) -> OpDef | None:
    """The definition of a registered op; None for a foreign one."""
    return _REGISTRY.get(name)


def definition(op: Op) -> OpDef:
    """The definition of a registered op. Raises KeyError for a foreign one."""
    return _REGISTRY[op.name]


def main_op(op: Op) -> Op:
    """The op itself, or the first of a fused group."""
    return op if op.region is None else op.region.ops[0]


def inner_ops(op: Op) -> Sequence[Op]:
    """The ops of a fused group, or the op itself."""
    return [op] if op.region is None else op.region.ops


def chosen_kernel(op: Op) -> LibraryKernel | None:
    """The library kernel that the plan of an op, or of a group that begins with one, names."""
    symbol = op.plan.library_kernel
    if symbol is None:
        return None
    found = lookup(main_op(op).name)
    return next((k for k in (found.library if found is not None else ()) if k.symbol == symbol), None)


def registered() -> list[OpDef]:
    """All ops by name."""
    return [_REGISTRY[name] for name in sorted(_REGISTRY)]


def flat(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    """The gradient of ops whose results do not change with small changes of their operands."""
    return [None] * len(op.operands)


def result_elements(op: Op) -> int:
    """Elements of all results: the flop count of an elementwise op."""
    return sum(r.type.elements for r in op.results)


def no_flops(op: Op) -> int:
    """The number of operations of ops that only move data."""
    return 0
