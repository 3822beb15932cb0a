# SPDX-License-Identifier: Apache-2.0
"""build-gradient: an inference function becomes one training step.

The function's float weights become states (those of frozen names stay weights), and after its ops come the loss, the
backward pass (`backward_pass.py`), loss scaling, clipping, and the optimizer's updates. It then takes the old inputs, `labels` and
`learning_rate`, and returns `loss` and the new content of every state. A model whose result is the loss itself has its labels
among its own inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Optional, Union

import numpy as np

from memc.ir.build import IRBuilder
from memc.ir.checked_options import Range
from memc.ir.core import Function, Value, fresh_names
from memc.ir.errors import UsageError
from memc.ir.module import Module
from memc.ir.ops.shared.casts import cast
from memc.ir.ops.shared.derivatives import scaled, square
from memc.ir.snapshot import is_raw
from memc.ir.types import DType, TensorType
from memc.passes.base import Pass
from memc.passes.precision.mixed_precision import HalfName, MixedPrecision
from memc.passes.rewrite.recognize import recognize
from memc.passes.training import loss_scale as scaling
from memc.passes.training import micro_batches
from memc.passes.training.attention_choice import built_with_attention
from memc.passes.training.dropout_seeds import MAX_SEED, share_seed, without_dropout
from memc.passes.training.frozen_weights import fits_some, require_names, train_weights
from memc.passes.training.labels import LabelInput, append_outside, label_inputs
from memc.passes.training.losses import IGNORED, Label, LabelKind, Loss, LossName
from memc.passes.training.micro_batches import Minimized
from memc.passes.training.mirror import Depth, Mirror, Policy
from memc.passes.training.optimizers import Decay, NotNegative, Optimizer, OptimizerName, Positive, append_updates
from memc.passes.training.scores import Scores, scores_of, without_unread
from memc.passes.training.step_builder import DRAWS, LABELS, LOSS, OUTSIDE, RATE, STEP, Training, TrainingStep


def build_gradient(
    module: Module,
    loss: Loss | LossName,
    optimizer: Optimizer,
    *,
    output: str | None = None,
    frozen: Sequence[str] = (),
    clip_norm: float | None = None,
    accumulate: int = 1,
    dropout: bool = True,
    seed: int = 0,
    loss_scale: str | float | None = None,
    check_labels: bool = False,
) -> Training:
    """Make `main` a training step. Returns what it minimizes.

    Args:
        loss: of result `output` (the first by default) against the input `labels`: i64 classes for
            softmax-cross-entropy, whose axis is 1, else a tensor of the result's type. It takes the scores before a
            sigmoid or softmax that it applies itself (`scores.py`). A result without axes is the loss already.
        frozen: patterns (as in shells) of names of weights that are not trained.
        clip_norm: scale the gradients so that the norm of all of them together is at most this.
        accumulate: micro-batches. The step takes that many batches along axis 0 of its inputs, runs them one after
            another, and updates once by the mean gradient.
        dropout: whether dropout drops anything. Where its seed is a constant, as in imported models, it draws from the
            state `dropout.counter`, which each micro-batch moves by one.
        seed: of those draws, from 0 to 2^31 - 1.
        loss_scale: `dynamic` or a number (`loss_scale.py`); None for none.
        check_labels: whether the step also returns how many labels name no class, and then changes no state.

    Raises UnsupportedError for a model that cannot be trained, naming why, UsageError for options that do not fit it.
    """
    function = module.main
    _require_raw(function)
    names = fresh_names([*(v.name for v in function.values()), LOSS, LABELS, RATE, STEP, DRAWS])
    result = _output(function, output)
    loss = named = _fitting(loss if isinstance(loss, Loss) else Loss(loss), result)
    forward, function.ops = function.ops, []
    if not dropout:
        forward, result = without_dropout(forward, result)
    scores = scores_of(module, IRBuilder(module, function, forward, names), result, loss)
    if scores.activation is not None:
        loss = replace(loss, name="bce-with-logits") if scores.activation == "sigmoid" else loss
        forward = without_unread(forward, result, [scores.value])
    drawn_from = share_seed(forward)
    trained = train_weights(module, function, frozen)
    step = TrainingStep(module, function, IRBuilder(module, function, function.ops, names))
    minimized = Minimized(forward, scores.value, loss, trained)
    batches = micro_batches.Batches.of(step, minimized, accumulate, drawn_from, seed)
    found = [*label_inputs(forward), *batches.label_inputs(minimized)]
    scale = None if loss_scale is None else scaling.loss_scale(step.builder, loss_scale, step.state)
    losses, sums = micro_batches.backward(step, minimized, batches, scale)
    outside = append_outside(step.builder, function.ops) if check_labels else None
    total = _mean(step.builder, losses)
    gradients = [(w, _divided(step.builder, sums[w], accumulate)) for w in trained if w in sums]
    _require_gradients(gradients, scores.value, frozen)
    gradients = _append_updates(step, optimizer, gradients, scale, clip_norm, outside)
    _set_results(step, total, outside, gradients if optimizer.kind == "none" else [])
    return _training(named, scores, result, found)


def _require_raw(function: Function) -> None:
    """Raise UsageError for a function with memory decisions."""
    if not is_raw(function):
        raise UsageError(
            "build-gradient: expected a function before any memory decision, got aliases, placements or copies"
        )


def _require_gradients(gradients: Sequence[object], result: Value, frozen: Sequence[str]) -> None:
    """Raise UsageError if there are none."""
    if not gradients:
        alive = " that is not frozen" if frozen else ""
        raise UsageError(f"build-gradient: nothing to train: result `{result.name}` depends on no weight{alive}")


def _append_updates(
    step: TrainingStep,
    optimizer: Optimizer,
    gradients: list[tuple[Value, Value]],
    scale: scaling.LossScale | None,
    clip_norm: float | None,
    outside: Value | None,
) -> list[tuple[Value, Value]]:
    """The optimizer's updates by the gradients, which are skipped where a gradient is not finite or labels lie `outside` the
    classes. Returns the gradients as the optimizer takes them."""
    b = step.builder
    finite = None
    if scale is not None:
        gradients, finite = scaling.unscaled(b, scale, gradients)
    if clip_norm is not None:
        gradients = _clipped(b, gradients, clip_norm)
    counter = _counter(step) if optimizer.counts_steps else None
    good = None if outside is None else b.op("equal", [outside, b.scalar(0, DType.I64)])
    if good is not None:
        finite = good if finite is None else b.op("logical_and", [finite, good])
    if optimizer.kind != "none":
        rate = step.input(RATE, TensorType(DType.F32, ()))
        step.finite = finite
        append_updates(b, optimizer, gradients, rate, counter, step.state, step.update)
    if finite is not None:
        _skip_unless(step, scale, finite, good)
    return gradients


def _set_results(
    step: TrainingStep, loss: Value, outside: Value | None, gradients: Sequence[tuple[Value, Value]]
) -> None:
    """Have the step return the loss, how many labels are `outside`, `gradients`, and every state's new content."""
    function = step.function
    function.returns = [loss, *([] if outside is None else [outside]), *(gradient for _, gradient in gradients)]
    function.result_names = [LOSS, *([] if outside is None else [OUTSIDE])]
    function.result_names += [f"{weight.name}.grad" for weight, _ in gradients]
    for state, content in step.assigned.items():
        function.returns.append(content if step.is_written(content) else step.builder.op("assign", [state, content]))
        function.result_names.append(state.name)


def _fitting(loss: Loss, result: Value) -> Loss:
    """The loss, or that of the result itself if there is nothing else to be minimized; raises UsageError for options that do
    not fit it."""
    alone = result.type.dtype.is_float and result.type.rank == 0
    if alone and loss.name == Loss.name:
        loss = replace(loss, name="output")
    classes = loss.name == Loss.name and loss.labels == "classes"
    if loss.ignore_index != IGNORED and not classes:
        raise UsageError(
            f"build-gradient: loss {loss.name} has no label to ignore; ignore-index is of labels of classes"
        )
    if loss.labels != "classes" and loss.name != Loss.name:
        raise UsageError(
            f"build-gradient: loss {loss.name} takes no labels of {loss.labels}; softmax-cross-entropy does"
        )
    return loss


def _training(loss: Loss, scores: Scores, result: Value, labels: Sequence[LabelInput]) -> Training:
    """What the step minimizes, in words."""
    name = loss.name
    if loss.name == "output":
        return Training(name, f"the result %{result.name} is the loss", None, tuple(labels))
    if scores.activation is None:
        return Training(name, f"of the result %{result.name}", None, tuple(labels))
    what = f"of %{scores.value.name}, the scores before {scores.activation}, which the loss applies itself"
    return Training(name, what, scores.activation, tuple(labels))


def _output(function: Function, name: str | None) -> Value:
    names = function.result_names or [v.name for v in function.returns]
    if name is not None and name not in names:
        raise UsageError(f"build-gradient: no result is called {name!r}; expected one of {', '.join(names)}")
    return function.returns[names.index(name) if name is not None else 0]


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


def _skip_unless(step: TrainingStep, scale: scaling.LossScale | None, finite: Value, good: Value | None) -> None:
    """Leave all states as they are where a gradient is not finite, but for dropout's counter and the scale's own; that too
    where a label is not `good`."""
    for state, content in step.assigned.items():
        if state.name != DRAWS and not step.is_written(content):
            step.assign(state, scaling.kept_unless(step.builder, finite, state, content))
    if scale is None:
        return
    for state, content in scaling.moved(step.builder, scale, finite).items():
        step.assign(state, content if good is None else scaling.kept_unless(step.builder, good, state, content))


def _counter(step: TrainingStep) -> Value:
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
    """`output`, also chosen by itself for a result without axes: the result is the loss."""
    output: Optional[str] = None
    """The result that is trained; the first by default."""
    optimizer: OptimizerName = "sgd"
    """`none` returns the gradients instead of updating."""
    momentum: Decay = Optimizer.momentum
    nesterov: bool = Optimizer.nesterov
    weight_decay: NotNegative = Optimizer.weight_decay
    no_decay: tuple[str, ...] = ()
    """Name patterns of weights that weight decay leaves alone, such as biases."""
    beta1: Decay = Optimizer.beta1
    beta2: Decay = Optimizer.beta2
    epsilon: Positive = Optimizer.epsilon
    clip_norm: Optional[Positive] = None
    """Largest norm of all gradients together."""
    accumulate: Annotated[int, Range(least=1, most=2**16)] = 1
    """Micro-batches to one update."""
    frozen: tuple[str, ...] = ()
    """Name patterns of weights that are not trained."""
    dropout: bool = True
    """Whether dropout drops anything."""
    seed: Annotated[int, Range(least=0, most=MAX_SEED)] = 0
    """The seed of the masks of dropout."""
    loss_scale: Optional[Union[str, float]] = None
    """`dynamic`, or what the loss is multiplied by for the backward pass: `loss_scale.py`."""
    mirror: Policy = "none"
    """What is recomputed instead of kept: `mirror`'s policy. `none` leaves counts that are set already."""
    mirror_depth: Depth = 1
    """`mirror`'s depth of recursion, for `sublinear`."""
    labels: LabelKind = "classes"
    """What softmax-cross-entropy takes: i64 classes [N, ...], or `probabilities` of the scores' type and shape."""
    ignore_index: Label = IGNORED
    """The label of classes that does not count."""
    check_labels: bool = False
    """Count the labels that name no class, on the device: a step with such changes no state, and to read its loss raises."""

    attention: bool = True
    """Whether attention becomes one op that keeps no scores, where the target has kernels for it and its gradient."""
    half: Optional[HalfName] = None
    """What `mixed-precision{weights=keep}` rounds to first, once attention was looked for."""

    def check(self) -> None:
        """Raise UsageError for a loss scale that is none, and for options that the optimizer does not have."""
        if self.loss_scale is not None:
            scaling.first_scale(self.loss_scale)
        self._optimizer()

    def _optimizer(self) -> Optimizer:
        return Optimizer(
            kind=self.optimizer,
            momentum=self.momentum,
            nesterov=self.nesterov,
            weight_decay=self.weight_decay,
            no_decay=self.no_decay,
            beta1=self.beta1,
            beta2=self.beta2,
            epsilon=self.epsilon,
        )

    def apply(self, module: Module) -> Training:
        recognize(module, module.main)
        require_names(module.main, (*self.frozen, *self.no_decay))
        return built_with_attention(module, self._built, self.frozen) if self.attention else self._built(module)

    def _built(self, module: Module) -> Training:
        frozen = self.frozen
        if self.half is not None:
            MixedPrecision(self.half, weights="keep").apply(module)
            # What attention no longer reads, such as a mask, is gone.
            frozen = tuple(pattern for pattern in frozen if fits_some(module.main, pattern))
        if self.mirror != "none":
            Mirror(self.mirror, self.mirror_depth).apply(module)
        return build_gradient(
            module,
            Loss(self.loss, self.labels, self.ignore_index),
            self._optimizer(),
            output=self.output,
            frozen=frozen,
            clip_norm=self.clip_norm,
            accumulate=self.accumulate,
            dropout=self.dropout,
            seed=self.seed,
            loss_scale=self.loss_scale,
            check_labels=self.check_labels,
        )
