# SPDX-License-Identifier: Apache-2.0
"""The backward pass of a function: Chen et al. 2016, Algorithm 2, with the mirror counts of the ops.

An op with `plan {mirror = k}` has its results dropped after the forward pass and recomputed up to k times: gradients read
the copy of the highest count, and each copy reads the copies before it. Copies are appended where a gradient first
needs them, in topological order, and carry `plan {recompute = [i]}`, so that they are never merged with what they repeat.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from memc.ir.build import IRBuilder
from memc.ir.core import Function, Op, Value, fresh_names
from memc.ir.errors import UnsupportedError
from memc.ir.module import Module
from memc.ir.ops.shared.op_def import lookup
from memc.passes.training.batch_statistics import normalized_again


def append_gradients(
    module: Module,
    function: Function,
    loss: Value,
    wrt: Sequence[Value],
    forward: Sequence[Op] | None = None,
    names: Iterator[str] | None = None,
) -> dict[Value, Value]:
    """Append ops that compute the gradient of `loss`, a float of one element, in each of `wrt`.

    `forward` are the ops to differentiate, by default all; `names` are fresh ones for new values.
    Returns the gradients, each of its value's type; a value that the loss does not depend on is left out. Nothing is
    computed that no gradient of `wrt` needs but dead results, which `canonicalize` removes.

    Raises UnsupportedError naming the op if a gradient must pass through one without a rule, and for a loss of another
    type.
    """
    if not loss.type.dtype.is_float or loss.type.elements != 1:
        raise UnsupportedError(f"loss %{loss.name}: expected a float of one element, got {loss.type}")
    forward = list(function.ops if forward is None else forward)
    wanted = _between(forward, wrt, loss)
    builder = IRBuilder(
        module, function, [], fresh_names(v.name for v in function.values()) if names is None else names
    )
    mirrored = _Mirrors(forward, builder)
    sums = _Sums(builder)
    one = builder.op("broadcast", [builder.scalar(1.0, loss.type.dtype)], shape=loss.type.shape)
    sums.add(loss, one)
    for op in reversed(forward):
        if not any(v in wanted for v in op.results):
            continue
        grads = [sums.total(v) for v in op.results]
        if all(g is None for g in grads):
            continue
        builder.location = op.location
        for operand, grad in zip(op.operands, _apply_rule(builder, mirrored.view(op), grads)):
            if grad is not None and operand in wanted:
                sums.add(operand, grad)
        function.ops.extend(mirrored.needed(builder.ops))
        builder.ops.clear()
    found = {value: sums.total(value) for value in wrt}
    function.ops.extend(mirrored.needed(builder.ops))
    return {value: grad for value, grad in found.items() if grad is not None}


def _between(forward: Sequence[Op], wrt: Iterable[Value], loss: Value) -> set[Value]:
    """Float values that depend on one of `wrt` and that the loss depends on."""
    reached = set(wrt)
    for op in forward:
        if any(v in reached for v in op.operands):
            reached.update(v for v in op.results if v.type.dtype.is_float)
    needed = {loss}
    for op in reversed(forward):
        if any(v in needed for v in op.results):
            needed.update(op.operands)
    return reached & needed


def _apply_rule(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    definition = lookup(op.name)
    rule = definition.gradient if definition is not None else None
    if rule is None:
        where = f" ({op.location})" if op.location else ""
        raise UnsupportedError(
            f"op {op.name}{where}: expected an op with a gradient on the way from the loss to the weights, got one without; "
            "freeze the weights before it, or write the model without it"
        )
    found = list(rule(b, op, grads))
    if len(found) != len(op.operands):
        raise RuntimeError(f"{op.name}.gradient gave {len(found)} gradients, expected {len(op.operands)}")
    for operand, grad in zip(op.operands, found):
        if grad is not None and grad.type != operand.type:
            raise RuntimeError(f"{op.name}.gradient gave {grad.type} for an operand of type {operand.type}")
    return found


@dataclass
class _Sums:
    """Gradients so far, added up as they come: so each shared weight needs bytes for one sum and one term."""

    builder: IRBuilder
    sums: dict[Value, Value] = field(default_factory=dict)
    parts: dict[Value, list[_Slice]] = field(default_factory=dict)
    """Gradients that are zero but for a slice, kept apart until it is known whether they tile the value."""

    def add(self, value: Value, grad: Value) -> None:
        part = _slice_of(grad)
        if part is not None:
            self.parts.setdefault(value, []).append(part)
        elif value in self.sums:
            self.sums[value] = self.builder.op("add", [self.sums[value], grad])
        else:
            self.sums[value] = grad

    def total(self, value: Value) -> Value | None:
        """The whole gradient in `value`; None if nothing came."""
        for grad in self._joined(self.parts.pop(value, [])):
            if value in self.sums:
                grad = self.builder.op("add", [self.sums[value], grad])
            self.sums[value] = grad
        return self.sums.get(value)

    def _joined(self, parts: list[_Slice]) -> list[Value]:
        """Slices that tile an axis as one concat of them; others as they are."""
        whole = [part.grad for part in parts]
        axes = {part.axis for part in parts}
        if len(parts) < 2 or len(axes) != 1:
            return whole
        axis = axes.pop()
        ordered = sorted(parts, key=lambda part: part.start)
        end = 0
        for part in ordered:
            if part.start != end:
                return whole
            end += part.source.type.shape[axis]
        if end != whole[0].type.shape[axis]:
            return whole
        return [self.builder.op("concat", [part.source for part in ordered], axis=axis)]


@dataclass(frozen=True)
class _Slice:
    """A gradient that is zero but for `source`, from index `start` on along `axis`."""

    grad: Value
    source: Value
    axis: int
    start: int


def _slice_of(grad: Value) -> _Slice | None:
    """The slice that a gradient is zero around, if it is padded on one axis only."""
    op = grad.op
    if op is None or op.name != "pad" or op.attrs["mode"] != "constant" or op.attrs["value"] != 0:
        return None
    low, high = op.attrs["low"], op.attrs["high"]
    assert isinstance(low, tuple) and isinstance(high, tuple)
    padded = [d for d, (before, after) in enumerate(zip(low, high)) if before or after]
    if len(padded) != 1:
        return None
    start = low[padded[0]]
    assert isinstance(start, int)
    return _Slice(grad, op.operands[0], padded[0], start)


class _Mirrors:
    """The copies of mirrored ops, and which of them the function holds already."""

    def __init__(self, forward: Sequence[Op], builder: IRBuilder) -> None:
        self.builder = builder
        self.latest: dict[Value, Value] = {}
        """a[v] of Algorithm 2: the copy that gradients read."""
        self.pending: set[Op] = set()
        counts = {op: op.plan.mirror for op in forward}
        for level in range(1, max(counts.values(), default=0) + 1):
            for op in forward:
                if counts[op] >= level:
                    self._copy(op, level)

    def _copy(self, op: Op, level: int) -> None:
        operands = [self.latest.get(v, v) for v in op.operands]
        if op.name == "batch_norm_training":
            self._normalize(op, operands[0], level)
            return
        results = [Value(next(self.builder.names), v.type) for v in op.results]
        plan = replace(op.plan, mirror=0, recompute=(level, *op.plan.recompute))
        self.pending.add(Op(op.name, operands, results, dict(op.attrs), plan, location=op.location))
        self.latest.update(zip(op.results, results))

    def _normalize(self, op: Op, x: Value, level: int) -> None:
        """A copy of batch normalization, by the statistics that it made."""
        self.builder.location = op.location
        found = normalized_again(self.builder, op, x)
        for made in self.builder.ops:
            if made.name != "constant":
                made.plan = replace(made.plan, recompute=(level, *made.plan.recompute))
        self.pending.update(self.builder.ops)
        self.builder.ops.clear()
        self.latest[op.results[0]] = found

    def view(self, op: Op) -> Op:
        """`op` as its gradient sees it: with the copies of its operands and results."""
        seen = copy.copy(op)
        seen.operands = [self.latest.get(v, v) for v in op.operands]
        seen.results = [self.latest.get(v, v) for v in op.results]
        return seen

    def needed(self, ops: Iterable[Op]) -> Iterator[Op]:
        """`ops` in order, each after the copies that it is the first to need."""
        for op in ops:
            stack = [op]
            while stack:
                top = stack[-1]
                missing = [v.op for v in top.operands if v.op is not None and v.op in self.pending and v.op is not top]
                if missing:
                    stack.extend(missing)
                    continue
                stack.pop()
                if top is op:
                    break
                if top in self.pending:
                    self.pending.discard(top)
                    yield top
            yield op


def set_mirrors(counts: Mapping[Op, int]) -> None:
    """Write mirror counts into the ops' plans."""
    for op, count in counts.items():
        op.plan = replace(op.plan, mirror=count)
