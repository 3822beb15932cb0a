# SPDX-License-Identifier: Apache-2.0
"""What a loss takes of a model that ends in a sigmoid or softmax: the scores before it.

The cross entropies apply these functions themselves, exactly where a probability of f32 is 0 or 1 already. After a model's own
they would be of another model (softmax of a softmax), or lose their gradient (the logarithm of a saturated probability). So
the loss is that of what the last activation was applied to:

    bce, bce-with-logits     sigmoid(z), or 1 / (1 + exp(-z)) written out
    softmax-cross-entropy    softmax(z) and log_softmax(z) over the axis of classes, exp(z) / sum(exp(z)), log(softmax(z))

Between it and the result there may be ops that only move elements or change their type, and dropout, of which a probability
has none. The activation stays where something else reads it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from memc.ir.build import IRBuilder
from memc.ir.core import Op, Value
from memc.ir.module import Module
from memc.ir.ops.shared.axes import axis_of
from memc.passes.rewrite.recognize import constant_number
from memc.passes.training.losses import Loss

CLASSES = 1
"""The axis of classes in what softmax-cross-entropy takes."""


@dataclass(frozen=True)
class Scores:
    """What a loss is of."""

    value: Value
    activation: str | None
    """What the model makes of it before its result and the loss leaves out: sigmoid, softmax or log_softmax; None for the
    result itself."""


def scores_of(module: Module, b: IRBuilder, output: Value, loss: Loss) -> Scores:
    """What `loss` takes of the model's result; ops that move scores as their activation was moved are appended to `b`."""
    if loss.name in ("bce", "bce-with-logits"):
        search = _Search(module, b, "sigmoid")
        found = search.before(output, None)
    elif loss.name == "softmax-cross-entropy" and output.type.rank > CLASSES:
        search = _Search(module, b, "softmax")
        found = search.before(output, CLASSES)
    else:
        return Scores(output, None)
    if found is None:
        return Scores(output, None)
    return Scores(_build(b, found), search.seen)


@dataclass(frozen=True)
class _Moved:
    """An op that is to be repeated on scores."""

    op: Op
    sources: Sequence[_Moved | Value]
    """What stands for its operands of floats."""


def _build(b: IRBuilder, found: _Moved | Value) -> Value:
    if isinstance(found, Value):
        return found
    b.location = found.op.location
    sources = [_build(b, source) for source in found.sources]
    op = found.op
    return b.op(op.name, [*sources, *op.operands[len(sources) :]], op.plan, **op.attrs)


@dataclass
class _Search:
    """The last activation on the ways to a value."""

    module: Module
    b: IRBuilder
    activation: str
    seen: str | None = None

    def before(self, value: Value, axis: int | None, logarithm: bool = False) -> _Moved | Value | None:
        """What `value` is without its activation, along `axis` if that is softmax; None if there is none on some way.
        `logarithm`: one was taken of it already."""
        op = value.op
        if op is None or not value.type.dtype.is_float:
            return None
        source = self.argument(op, axis, logarithm)
        if source is not None:
            return source
        if op.name == "log" and axis is not None and not logarithm:
            found = self.before(op.operands[0], axis, True)
            self.seen = "log_softmax" if found is not None else None
            return found
        if op.name in ("dropout", "copy"):
            return self.before(op.operands[0], axis, logarithm)
        inner = _axis_before(op, axis)
        if inner is None:
            return None
        data = op.operands if op.name == "concat" else op.operands[:1]
        sources = []
        for operand in data:
            found = self.before(operand, None if axis is None else inner, logarithm)
            if found is None:
                return None
            sources.append(found)
        return _Moved(op, sources)

    def argument(self, op: Op, axis: int | None, logarithm: bool) -> _Moved | Value | None:
        """What the activation is applied to, in its element type, if `op` is one."""
        if axis is None:
            found = op.operands[0] if op.name == "sigmoid" else self.written_sigmoid(op)
            self.seen = self.seen if found is None else "sigmoid"
            return None if found is None else _as(op, found)
        if op.name in ("softmax", "log_softmax") and axis_of(op.attrs, op.result.type) == axis:
            if op.name == "log_softmax" and logarithm:
                return None
            self.seen = op.name
            return op.operands[0]
        found = _written_softmax(op, axis)
        self.seen = self.seen if found is None else "softmax"
        return None if found is None else _as(op, found)

    def written_sigmoid(self, op: Op) -> Value | None:
        """z of 1 / (1 + exp(-z)), where mixed precision may have put casts."""
        shape = op.result.type.shape
        if op.name == "reciprocal":
            divisor = _uncast(op.operands[0]).op
        elif op.name == "div" and self.is_number(op.operands[0], 1):
            divisor = _uncast(op.operands[1]).op
        else:
            return None
        if divisor is None or divisor.name != "add" or divisor.result.type.shape != shape:
            return None
        for one, power in (divisor.operands, divisor.operands[::-1]):
            exponential = _uncast(power).op
            if self.is_number(one, 1) and exponential is not None and exponential.name == "exp":
                z = self.negated(_uncast(exponential.operands[0]))
                return z if z is not None and z.type.shape == shape else None
        return None

    def negated(self, value: Value) -> Value | None:
        """z of -z."""
        op = value.op
        if op is not None and op.name == "neg":
            return op.operands[0]
        if op is not None and op.name == "mul":
            return next((a for a, f in (op.operands, op.operands[::-1]) if self.is_number(f, -1)), None)
        return None

    def is_number(self, value: Value, number: float) -> bool:
        return constant_number(self.module, _uncast(value)) == number


def _uncast(value: Value) -> Value:
    """What a value of floats was before its type was changed."""
    while value.op is not None and value.op.name == "cast" and value.op.operands[0].type.dtype.is_float:
        value = value.op.operands[0]
    return value


def _as(op: Op, z: Value) -> _Moved | Value:
    """z in the element type of the result of `op`."""
    if z.type.dtype is op.result.type.dtype:
        return z
    cast = Op("cast", [z], [Value(op.result.name, op.result.type)], {"to": op.result.type.dtype}, location=op.location)
    return _Moved(cast, [z])


def _written_softmax(op: Op, axis: int) -> Value | None:
    """z of exp(z) / sum(exp(z)); the maximum that may have been subtracted from z changes nothing."""
    power, total = (_uncast(v).op for v in op.operands) if op.name == "div" else (None, None)
    if power is None or total is None or power.name != "exp" or total.name != "reduce_sum":
        return None
    same = _uncast(total.operands[0]) is power.result and total.attrs["axes"] == (axis,) and total.attrs["keepdims"]
    return power.operands[0] if same and power.result.type.shape == op.result.type.shape else None


def _axis_before(op: Op, axis: int | None) -> int | None:
    """Where the axis was before an op that moves elements of its first operand (of all, for concat) or changes their type;
    0 if no axis is asked for. None for other ops, and where elements of other samples would come between."""
    source = op.operands[0].type if op.operands else None
    if source is None or not source.dtype.is_float:
        return None
    if op.name == "cast":
        return axis or 0
    if axis is None:
        return 0 if op.name in ("reshape", "transpose", "slice", "concat", "broadcast", "gather") else None
    if op.name == "transpose":
        perm = op.attrs["perm"]
        assert isinstance(perm, tuple)
        moved = perm[axis]
        return moved if isinstance(moved, int) else None
    if op.name == "reshape":
        return _reshaped_axis(source.shape, op.result.type.shape, axis)
    if op.name == "concat":
        return axis if op.attrs["axis"] != axis else None
    if op.name == "slice":
        return axis if source.shape[axis] == op.result.type.shape[axis] else None
    return None


def _reshaped_axis(source: Sequence[int], result: Sequence[int], axis: int) -> int | None:
    """The axis of the same extent and stride, by which it has the same elements."""
    stride = math.prod(result[axis + 1 :])
    for candidate, extent in enumerate(source):
        if extent == result[axis] and math.prod(source[candidate + 1 :]) == stride:
            return candidate
    return None


def without_unread(ops: Sequence[Op], output: Value, wanted: Sequence[Value]) -> list[Op]:
    """The ops without those that only led to `output`, now that `wanted` takes its place."""
    used = {v for op in ops for v in op.operands} | set(wanted)
    dropped: set[Op] = set()
    pending = [output]
    while pending:
        op = pending.pop().op
        if op is None or op in dropped or any(v in used for v in op.results):
            continue
        dropped.add(op)
        used = {v for other in ops if other not in dropped for v in other.operands} | set(wanted)
        pending.extend(op.operands)
    return [op for op in ops if op not in dropped]
