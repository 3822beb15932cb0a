# SPDX-License-Identifier: Apache-2.0
"""build-gradient: an inference function becomes one training step.

The function's float weights become states (those of frozen names stay weights), and after its ops come the loss, the
backward pass (`gradient.py`), loss scaling, clipping, and the optimizer's updates. It then takes the old inputs, `labels` and
`learning_rate`, and returns `loss` and the new content of every state.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Optional

import numpy as np

from memc.ir.build import IRBuilder
from memc.ir.core import Array, Function, Module, Op, Role, Value, fresh_names
from memc.ir.errors import UnsupportedError, UsageError
from memc.ir.ops.casts import HALF, cast
from memc.ir.ops.derivatives import scaled, square
from memc.ir.types import DType, TensorType
from memc.passes import loss_scale as scaling
from memc.passes.base import Pass
from memc.passes.dropout_seeds import first_count, share_seed, without_dropout
from memc.passes.gradient import append_gradients
from memc.passes.losses import binary_cross_entropy, mean_squared_error, softmax_cross_entropy
from memc.passes.mirror import Mirror, Policy
from memc.passes.optimizers import Optimizer, OptimizerName, append_updates
from memc.passes.recognize import recognize
from memc.passes.undo import is_raw

LOSSES = ("softmax-cross-entropy", "mse", "bce", "bce-with-logits")
LossName = Literal["softmax-cross-entropy", "mse", "bce", "bce-with-logits"]

LOSS, LABELS, RATE, STEP, DRAWS = "loss", "labels", "learning_rate", "step", "dropout.counter"
"""Names of what a training step takes, returns and keeps."""


@dataclass
class _Step:
    """A training step being written."""

    module: Module
    function: Function
    builder: IRBuilder
    assigned: dict[Value, Value] = field(default_factory=dict)
    """New content by state, in the order in which the states are met."""
    finite: Value | None = None
    """Whether the step is not to be skipped, bool[]; None if it never is."""

    def state(self, name: str, type: TensorType, content: Array) -> Value:
        taken = {p.name for p in self.function.params}
        if name in taken:
            raise UnsupportedError(f"training needs the name `{name}` for a state, but the model has a tensor of it")
        value = Value(name, type, role=Role.STATE)
        self.function.params.append(value)
        self.module.weights[name] = content
        return value

    def input(self, name: str, type: TensorType) -> Value:
        if name in {p.name for p in self.function.params}:
            raise UnsupportedError(f"training needs the name `{name}` for an input, but the model has a tensor of it")
        value = Value(name, type, role=Role.INPUT)
        self.function.params.append(value)
        return value

    def assign(self, state: Value, content: Value) -> None:
        """Give a state its new content; only the last counts, and it is written after all ops."""
        self.assigned[state] = content

    def update(self, state: Value, content: Value) -> Value:
        """Give a state that is not read any more its new content at once; what it then holds."""
        if self.finite is not None:
            content = scaling.kept_unless(self.builder, self.finite, state, content)
        self.assigned[state] = self.builder.op("assign", [state, content])
        return self.assigned[state]

    def is_written(self, content: Value) -> bool:
        """Whether a state holds that already."""
        return content.op is not None and content.op.name == "assign"

    def current(self, state: Value) -> Value:
        """What the state holds by now."""
        return self.assigned.get(state, state)


def build_gradient(
    module: Module,
    loss: LossName,
    optimizer: Optimizer,
    *,
    output: str | None = None,
    frozen: Sequence[str] = (),
    clip_norm: float | None = None,
    accumulate: int = 1,
    dropout: bool = True,
    seed: int = 0,
    loss_scale: str | None = None,
) -> None:
    """Make `main` a training step.

    Args:
        loss: of result `output` (the first by default) against the input `labels`: i64 classes for
            softmax-cross-entropy, whose axis is 1, else a tensor of the result's type.
        frozen: patterns (as in shells) of names of weights that are not trained.
        clip_norm: scale the gradients so that the norm of all of them together is at most this.
        accumulate: micro-batches. The step takes that many batches along axis 0 of its inputs, runs them one after
            another, and updates once by the mean gradient.
        dropout: whether dropout drops anything. Where its seed is a constant, as in imported models, it draws from the
            state `dropout.counter`, which each micro-batch moves by one.
        seed: of those draws, from 0 to 2^31 - 1.
        loss_scale: `dynamic` or a number (`loss_scale.py`); None for none.

    Raises UnsupportedError for a model that cannot be trained, naming why, UsageError for options that do not fit it.
    """
    function = module.main
    if not is_raw(function):
        raise UsageError("build-gradient: expected a function before any memory decision, got aliases or placements")
    names = fresh_names([*(v.name for v in function.values()), LOSS, LABELS, RATE, STEP, DRAWS])
    logits = _output(function, output)
    forward, function.ops = function.ops, []
    if not dropout:
        forward, logits = without_dropout(forward, logits)
    drawn_from = share_seed(forward)
    trained = _train_weights(module, function, frozen)
    step = _Step(module, function, IRBuilder(module, function, function.ops, names))
    inputs = function.params_of(Role.INPUT)
    batches = [_split(step, value, accumulate) for value in inputs]
    labels = _split(step, step.input(LABELS, _label_type(loss, logits.type, accumulate)), accumulate, given=True)
    draws = _draws(step, drawn_from, seed, accumulate)
    scale = None if loss_scale is None else scaling.loss_scale(step.builder, loss_scale, step.state)
    losses: list[Value] = []
    sums: dict[Value, Value] = {}
    for number in range(accumulate):
        given = {value: parts[number] for value, parts in zip(inputs, batches)}
        given.update(draws[number])
        losses.append(_one_batch(step, forward, given, logits, labels[number], loss, scale, trained, sums, number == 0))
    total = _mean(step.builder, losses)
    gradients = [(w, _divided(step.builder, sums[w], accumulate)) for w in trained if w in sums]
    if not gradients:
        raise UsageError(
            f"build-gradient: nothing to train: result `{logits.name}` depends on no weight"
            + (" that is not frozen" if frozen else "")
        )
    finite = None
    if scale is not None:
        gradients, finite = scaling.unscaled(step.builder, scale, gradients)
    if clip_norm is not None:
        gradients = _clipped(step.builder, gradients, clip_norm)
    counter = _counter(step) if optimizer.counts_steps else None
    if optimizer.kind != "none":
        rate = step.input(RATE, TensorType(DType.F32, ()))
        step.finite = finite
        append_updates(step.builder, optimizer, gradients, rate, counter, step.state, step.update)
    if scale is not None and finite is not None:
        _skip_unless(step, scale, finite)
    function.returns = [total]
    function.result_names = [LOSS]
    if optimizer.kind == "none":
        function.returns += [gradient for _, gradient in gradients]
        function.result_names += [f"{weight.name}.grad" for weight, _ in gradients]
    for state, content in step.assigned.items():
        function.returns.append(content if step.is_written(content) else step.builder.op("assign", [state, content]))
        function.result_names.append(state.name)


def _output(function: Function, name: str | None) -> Value:
    names = function.result_names or [v.name for v in function.returns]
    if name is not None and name not in names:
        raise UsageError(f"build-gradient: no result is called {name!r}; expected one of {', '.join(names)}")
    return function.returns[names.index(name) if name is not None else 0]


def _train_weights(module: Module, function: Function, frozen: Sequence[str]) -> list[Value]:
    """Make the float weights states, but for constants and frozen ones; returns them without running statistics."""
    statistics = {v for op in function.ops if op.name == "batch_norm" for v in op.operands[3:]}
    for pattern in frozen:
        if not any(fnmatch.fnmatchcase(p.name, pattern) for p in function.params_of(Role.WEIGHT)):
            raise UsageError(f"build-gradient: no weight has a name like {pattern!r}")
    trained = []
    for param in function.params_of(Role.WEIGHT):
        if not param.type.dtype.is_float or param.name in module.constants:
            continue
        if any(fnmatch.fnmatchcase(param.name, pattern) for pattern in frozen):
            continue
        if param not in statistics:
            trained.append(param)
        param.role = Role.STATE
    return trained


def _split(step: _Step, value: Value, parts: int, given: bool = False) -> list[Value]:
    """An input's micro-batches; `given` says that its type counts all of them already."""
    if parts == 1:
        return [value]
    if value.type.rank == 0:
        raise UnsupportedError(f"input `{value.name}`: expected an axis of micro-batches, got a scalar")
    batch = value.type.shape[0] // parts if given else value.type.shape[0]
    if not given:
        value.type = value.type.with_shape((batch * parts, *value.type.shape[1:]))
    found = []
    for number in range(parts):
        starts = (number * batch, *[0] * (value.type.rank - 1))
        stops = ((number + 1) * batch, *value.type.shape[1:])
        found.append(step.builder.op("slice", [value], starts=starts, stops=stops, steps=(1,) * value.type.rank))
    return found


def _draws(step: _Step, shared: Value | None, seed: int, parts: int) -> list[dict[Value, Value]]:
    """For each micro-batch, what stands for the seed that its dropout shares."""
    if shared is None:
        return [{}] * parts
    b = step.builder
    counter = step.state(DRAWS, shared.type, np.array(first_count(seed)))
    counts = [counter, *(b.op("add", [counter, b.scalar(n, DType.I64)]) for n in range(1, parts + 1))]
    step.assign(counter, counts.pop())
    return [{shared: count} for count in counts]


def _label_type(loss: LossName, logits: TensorType, parts: int) -> TensorType:
    if logits.rank == 0 or not logits.dtype.is_float:
        raise UnsupportedError(f"expected a result of floats with a batch axis to train on, got {logits}")
    shape = (logits.shape[0] * parts, *logits.shape[1:])
    if loss != "softmax-cross-entropy":
        return logits.with_shape(shape)
    if logits.rank < 2:
        raise UnsupportedError(f"softmax-cross-entropy: expected logits [N, classes, ...], got {logits}")
    return TensorType(DType.I64, (shape[0], *shape[2:]))


def _one_batch(
    step: _Step,
    forward: Sequence[Op],
    given: Mapping[Value, Value],
    logits: Value,
    labels: Value,
    loss: LossName,
    scale: scaling.LossScale | None,
    trained: Sequence[Value],
    sums: dict[Value, Value],
    first: bool,
) -> Value:
    """Forward and backward ops of one micro-batch, its gradients added to `sums`. Returns the loss."""
    function, b = step.function, step.builder
    mapping = dict(given)
    start = len(function.ops)
    for op in forward:
        mapping.update(zip(op.results, _copied(step, op, mapping, first)))
    made = _loss(b, loss, mapping.get(logits, logits), labels)
    start_of_backward = made if scale is None else scaling.scaled_loss(b, scale, made)
    found = append_gradients(step.module, function, start_of_backward, trained, function.ops[start:], b.names)
    for weight, gradient in found.items():
        gradient = unrounded(gradient) if scale is None else gradient
        sums[weight] = b.op("add", [sums[weight], gradient]) if weight in sums else gradient
    return made


def _copied(step: _Step, op: Op, mapping: Mapping[Value, Value], first: bool) -> Sequence[Value]:
    """The op for one micro-batch: itself in the first one. Batch normalization then takes the batch's statistics."""
    b = step.builder
    operands = [mapping.get(v, v) for v in op.operands]
    b.location = op.location
    if op.name == "batch_norm" and all(v.role is Role.STATE for v in op.operands[3:]):
        return [_batch_norm(step, op, operands)]
    if op.name == "constant" and not first:
        return op.results
    results = op.results if first else [Value(next(b.names), v.type) for v in op.results]
    step.function.ops.append(Op(op.name, operands, list(results), dict(op.attrs), location=op.location))
    return results


def _batch_norm(step: _Step, op: Op, operands: Sequence[Value]) -> Value:
    """Normalization by the batch's own statistics, which also move the running ones (PyTorch: the unbiased variance)."""
    b = step.builder
    attrs = {key: op.attrs[key] for key in op.attrs if key not in ("momentum",)}
    made = b.multi("batch_norm_training", operands[:3], **attrs)
    y, mean, _, variance = made.results
    x = operands[0].type
    samples = x.elements // x.shape[1]
    kept = op.attrs["momentum"]
    assert isinstance(kept, float)
    for state, value, factor in (
        (op.operands[3], mean, 1.0),
        (op.operands[4], variance, samples / max(samples - 1, 1)),
    ):
        old = step.current(state)
        moved = scaled(b, cast(b, value, old.type.dtype), (1 - kept) * factor)
        step.assign(state, b.op("add", [scaled(b, old, kept), moved]))
    return y


def _loss(b: IRBuilder, loss: LossName, logits: Value, labels: Value) -> Value:
    if loss == "softmax-cross-entropy":
        return softmax_cross_entropy(b, logits, labels)
    if loss == "mse":
        return mean_squared_error(b, logits, labels)
    return binary_cross_entropy(b, logits, labels, from_logits=loss == "bce-with-logits")


def _mean(b: IRBuilder, values: Sequence[Value]) -> Value:
    total = values[0]
    for value in values[1:]:
        total = b.op("add", [total, value])
    return _divided(b, total, len(values))


def _divided(b: IRBuilder, value: Value, count: int) -> Value:
    return value if count == 1 else scaled(b, value, 1 / count)


def _clipped(b: IRBuilder, gradients: list[tuple[Value, Value]], limit: float) -> list[tuple[Value, Value]]:
    """Gradients scaled by min(1, limit / (norm + 1e-6)), as PyTorch's clip_grad_norm_ does."""
    squares = None
    for _, g in gradients:
        term = square(b, cast(b, g, DType.F32))
        if g.type.rank:
            term = b.op("reduce_sum", [term], axes=tuple(range(g.type.rank)), keepdims=False)
        squares = term if squares is None else b.op("add", [squares, term])
    if squares is None:
        return gradients
    norm = b.op("add", [b.op("sqrt", [squares]), b.scalar(1e-6, DType.F32)])
    factor = b.op("min", [b.op("div", [b.scalar(limit, DType.F32), norm]), b.scalar(1.0, DType.F32)])
    return [(w, b.op("mul", [g, cast(b, factor, g.type.dtype)])) for w, g in gradients]


def unrounded(gradient: Value) -> Value:
    """The gradient of a weight in f32 that is read as half, without its rounding to half on the way. That of a convolution
    keeps it: libraries compute it in half."""
    rounded = _cast_from(gradient, HALF)
    source = None if rounded is None else _cast_from(rounded, (gradient.type.dtype,))
    if source is None or source.op is None or source.op.name == "conv_grad_weight":
        return gradient
    return source


def _cast_from(value: Value, types: Sequence[DType]) -> Value | None:
    """What a cast was of, if of one of `types`."""
    op = value.op
    return op.operands[0] if op is not None and op.name == "cast" and op.operands[0].type.dtype in types else None


def _skip_unless(step: _Step, scale: scaling.LossScale, finite: Value) -> None:
    """Leave all states as they are where a gradient is not finite, but for dropout's counter and the scale's own."""
    for state, content in step.assigned.items():
        if state.name != DRAWS and not step.is_written(content):
            step.assign(state, scaling.kept_unless(step.builder, finite, state, content))
    for state, content in scaling.moved(step.builder, scale, finite).items():
        step.assign(state, content)


def _counter(step: _Step) -> Value:
    """The number of this step, from 1, as f64; the state holds how many were taken."""
    b = step.builder
    taken = step.state(STEP, TensorType(DType.I64, ()), np.zeros((), np.int64))
    now = b.op("add", [taken, b.scalar(1, DType.I64)])
    step.assign(taken, now)
    return cast(b, now, DType.F64)


@dataclass(frozen=True)
class BuildGradient(Pass):
    """Make the main function one training step: forward, loss, backward and update."""

    name: ClassVar[str] = "build-gradient"
    loss: LossName = "softmax-cross-entropy"
    output: Optional[str] = None
    """The result that is trained; the first by default."""
    optimizer: OptimizerName = "sgd"
    """`none` returns the gradients instead of updating."""
    momentum: float = Optimizer.momentum
    nesterov: bool = Optimizer.nesterov
    weight_decay: float = Optimizer.weight_decay
    beta1: float = Optimizer.beta1
    beta2: float = Optimizer.beta2
    epsilon: float = Optimizer.epsilon
    clip_norm: Optional[float] = None
    """Largest norm of all gradients together."""
    accumulate: int = 1
    """Micro-batches to one update."""
    frozen: tuple[str, ...] = ()
    """Name patterns of weights that are not trained."""
    dropout: bool = True
    """Whether dropout drops anything."""
    seed: int = 0
    """Of the masks of dropout."""
    loss_scale: Optional[str] = None
    """`dynamic`, or what the loss is multiplied by for the backward pass: `loss_scale.py`."""
    mirror: Policy = "none"
    """What is computed anew instead of kept: `mirror`'s policy. `none` leaves counts that are set already."""
    mirror_depth: int = 1
    """`mirror`'s depth of recursion, for `sublinear`."""

    def __post_init__(self) -> None:
        if self.accumulate < 1:
            raise UsageError(f"build-gradient: expected at least 1 micro-batch, got {self.accumulate}")
        first_count(self.seed)
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise UsageError(f"build-gradient: expected a positive norm to clip to, got {self.clip_norm}")
        if self.loss_scale is not None:
            scaling.first_scale(self.loss_scale)
        if self.mirror_depth < 1:
            raise UsageError(f"build-gradient: expected a mirror depth of at least 1, got {self.mirror_depth}")
        self._optimizer()

    def _optimizer(self) -> Optimizer:
        return Optimizer(
            kind=self.optimizer,
            momentum=self.momentum,
            nesterov=self.nesterov,
            weight_decay=self.weight_decay,
            beta1=self.beta1,
            beta2=self.beta2,
            epsilon=self.epsilon,
        )

    def apply(self, module: Module) -> None:
        recognize(module, module.main)
        if self.mirror != "none":
            Mirror(self.mirror, self.mirror_depth).apply(module)
        build_gradient(
            module,
            self.loss,
            self._optimizer(),
            output=self.output,
            frozen=self.frozen,
            clip_norm=self.clip_norm,
            accumulate=self.accumulate,
            dropout=self.dropout,
            seed=self.seed,
            loss_scale=self.loss_scale,
        )
