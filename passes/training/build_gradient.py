# SPDX-License-Identifier: Apache-2.0
"""build-gradient: an inference function becomes one training step.

The function's float weights become states (those of frozen names stay weights), and after its ops come the loss, the
backward pass (`backward_pass.py`), loss scaling, clipping, and the optimizer's updates. It then takes the old inputs, `labels` and
`learning_rate`, and returns `loss` and the new content of every state. A model whose result is the loss itself has its labels
among its own inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Optional, Union

from memc.ir.build import IRBuilder
from memc.ir.checked_options import Range
from memc.ir.core import Function, Value, fresh_names
from memc.ir.errors import UsageError
from memc.ir.module import Module
from memc.ir.ops.shared.derivatives import scaled
from memc.ir.snapshot import is_raw
from memc.passes.base import Pass
from memc.passes.precision.mixed_precision import HalfName, MixedPrecision
from memc.passes.rewrite.recognize import recognize
from memc.passes.training import loss_scale as scaling
from memc.passes.training import micro_batches
from memc.passes.training.append_updates import Clipping, NormName, append_updates
from memc.passes.training.attention_choice import built_with_attention
from memc.passes.training.dropout_seeds import MAX_SEED, share_seed, without_dropout
from memc.passes.training.frozen_weights import fits_some, require_names, train_weights
from memc.passes.training.groups import Group, parse_groups, patterns_of
from memc.passes.training.labels import LabelInput, append_outside, label_inputs
from memc.passes.training.losses import IGNORED, Label, LabelKind, Loss, LossName
from memc.passes.training.micro_batches import Minimized
from memc.passes.training.mirror import Depth, Mirror, Policy
from memc.passes.training.optimizers import Optimizer, OptimizerName, OptimizerOptions, Positive, options_of
from memc.passes.training.scores import Scores, scores_of, without_unread
from memc.passes.training.step_builder import DRAWS, LABELS, LOSS, OUTSIDE, RATE, STEP, Training, TrainingStep


def build_gradient(
    module: Module,
    loss: Loss | LossName,
    optimizer: Optimizer,
    *,
    output: str | None = None,
    frozen: Sequence[str] = (),
    groups: Sequence[Group] = (),
    clipping: Clipping = Clipping(),
    accumulate: int = 1,
    dropout: bool = True,
    seed: int = 0,
    loss_scale: str | float | None = None,
    check_labels: bool = False,
    keep_results: bool = False,
) -> Training:
    """Make `main` a training step. Returns what it minimizes.

    Args:
        loss: of result `output` (the first by default) against the input `labels`: i64 classes for
            softmax-cross-entropy, whose axis is 1, else a tensor of the result's type. It takes the scores before a
            sigmoid or softmax that it applies itself (`scores.py`). A result without axes is the loss already.
        frozen: patterns (as in shells) of names of weights that are not trained.
        groups: weights whose optimizer differs in options.
        clipping: what the gradients are limited to.
        accumulate: micro-batches. The step takes that many batches along axis 0 of its inputs, runs them one after
            another, and updates once by the mean gradient.
        dropout: whether dropout drops anything. Where its seed is a constant, as in imported models, it draws from the
            state `dropout.counter`, which each micro-batch moves by one.
        seed: of those draws, from 0 to 2^31 - 1.
        loss_scale: `dynamic` or a number (`loss_scale.py`); None for none.
        check_labels: whether the step also returns how many labels name no class, and then changes no state.
        keep_results: whether the step also returns the other results of the model, those of micro-batches along axis 0.

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
    kept = _others(function, result) if keep_results else {}
    scores = scores_of(module, IRBuilder(module, function, forward, names), result, loss)
    if scores.activation is not None:
        loss = replace(loss, name="bce-with-logits") if scores.activation == "sigmoid" else loss
        forward = without_unread(forward, result, [scores.value, *kept.values()])
    drawn_from = share_seed(forward)
    trained = train_weights(module, function, frozen)
    step = TrainingStep(module, function, IRBuilder(module, function, function.ops, names))
    minimized = Minimized(forward, scores.value, loss, trained, list(kept.values()))
    batches = micro_batches.Batches.of(step, minimized, accumulate, drawn_from, seed)
    found = [*label_inputs(forward), *batches.label_inputs(minimized)]
    scale = None if loss_scale is None else scaling.loss_scale(step.builder, loss_scale, step.state)
    losses, sums, results = micro_batches.backward(step, minimized, batches, scale)
    outside = append_outside(step.builder, function.ops) if check_labels else None
    total = _mean(step.builder, losses)
    gradients = [(w, _divided(step.builder, sums[w], accumulate)) for w in trained if w in sums]
    _require_gradients(gradients, scores.value, frozen)
    gradients = append_updates(step, optimizer, groups, gradients, scale, clipping, outside)
    _set_results(step, total, outside, gradients if optimizer.kind == "none" else [], dict(zip(kept, results)))
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


def _set_results(
    step: TrainingStep,
    loss: Value,
    outside: Value | None,
    gradients: Sequence[tuple[Value, Value]],
    kept: Mapping[str, Value],
) -> None:
    """Have the step return the loss, how many labels are `outside`, `gradients`, `kept` results, and states' new contents."""
    function = step.function
    function.returns = [loss, *([] if outside is None else [outside]), *(gradient for _, gradient in gradients)]
    function.result_names = [LOSS, *([] if outside is None else [OUTSIDE])]
    function.result_names += [f"{weight.name}.grad" for weight, _ in gradients]
    function.returns += kept.values()
    function.result_names += kept
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


def _others(function: Function, result: Value) -> dict[str, Value]:
    """The results beside the one that is trained, by name. Raises UsageError for names that a step needs."""
    names = function.result_names or [v.name for v in function.returns]
    found = {name: value for name, value in zip(names, function.returns) if value is not result}
    taken = {LOSS, OUTSIDE, *(p.name for p in function.params)} & set(found)
    if taken:
        raise UsageError(
            f"build-gradient: result {min(taken)!r} has a name that the step needs; keep-results is not for it"
        )
    return found


def _mean(b: IRBuilder, values: Sequence[Value]) -> Value:
    total = values[0]
    for value in values[1:]:
        total = b.op("add", [total, value])
    return _divided(b, total, len(values))


def _divided(b: IRBuilder, value: Value, count: int) -> Value:
    return value if count == 1 else scaled(b, value, 1 / count)


@dataclass(frozen=True)
class BuildGradient(OptimizerOptions, Pass):
    """Make the main function one training step: forward, loss, backward and update."""

    name: ClassVar[str] = "build-gradient"
    loss: LossName = "softmax-cross-entropy"
    """`output`, also chosen by itself for a result without axes: the result is the loss."""
    output: Optional[str] = None
    """The result that is trained; the first by default."""
    optimizer: OptimizerName = "sgd"
    """`none` returns the gradients instead of updating."""
    groups: tuple[str, ...] = ()
    """Weights with options of their own, as in `groups.py`: `'*.bias: weight-decay=0'`."""
    clip_norm: Optional[Positive] = None
    """Largest norm of all gradients together."""
    clip_norm_type: NormName = "2"
    """The norm that `clip_norm` is of: `inf` is the largest magnitude."""
    clip_value: Optional[Positive] = None
    """Largest magnitude of an element of a gradient, which is limited to it before the norm is."""
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

    keep_results: bool = False
    """Whether the step returns the model's other results, too: scores for a metric, say."""

    attention: bool = True
    """Whether attention becomes one op that keeps no scores, where the target has kernels for it and its gradient."""
    half: Optional[HalfName] = None
    """What `mixed-precision{weights=keep}` rounds to first, once attention was looked for."""

    def check(self) -> None:
        """Raise UsageError for a loss scale that is none, and for options that the optimizer does not have."""
        if self.loss_scale is not None:
            scaling.first_scale(self.loss_scale)
        parse_groups(self.groups, self._optimizer())
        if self.keep_results and not self.dropout:
            raise UsageError(
                "build-gradient: keep-results goes with dropout; a model without it needs no dropout=false"
            )
        if self.clip_norm is None and self.clip_norm_type != "2":
            raise UsageError(f"build-gradient: clip-norm-type {self.clip_norm_type} needs clip-norm")

    def _optimizer(self) -> Optimizer:
        return Optimizer(kind=self.optimizer, **options_of(self))

    def apply(self, module: Module) -> Training:
        recognize(module, module.main)
        named = [pattern for text in self.groups for pattern in patterns_of(text)]
        require_names(module.main, (*self.frozen, *self.no_decay, *named))
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
            groups=parse_groups(self.groups, self._optimizer()),
            clipping=Clipping(self.clip_norm, self.clip_norm_type, self.clip_value),
            accumulate=self.accumulate,
            dropout=self.dropout,
            seed=self.seed,
            loss_scale=self.loss_scale,
            check_labels=self.check_labels,
            keep_results=self.keep_results,
        )
