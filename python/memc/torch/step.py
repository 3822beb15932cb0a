# SPDX-License-Identifier: Apache-2.0
"""compile_step: a module, a loss and an optimizer as one compiled training step, whose weights are the module's own."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from memc.ir.errors import UnsupportedError, UsageError
from memc.ir.messages import shown
from memc.runtime.execute.executable import Executable
from memc.runtime.execute.training import RATE, TrainingStep

from .arguments import batch_of, norm_type, rate_of
from .chosen_parameters import left_alone, read_parameters, require_no_training_of
from .compiled_options import compiled_options, require_compiled_for
from .example_numbers import numbers_of, without_numbers
from .losses import LossLike, WithLoss, checked_metrics, loss_of
from .mixed import begin_with, loss_scale_of, precision_of
from .moments import SharedMoments
from .optimizers import STATE_NAMES, Mapped, OptimizerLike, mapped
from .shared_tensors import SharedTensors
from .sharing import fixed_views, state_views

if TYPE_CHECKING:
    from memc.driver import Compilation
    from memc.frontend.torch.graph import Graph


class Step:
    """A compiled training step. Call it with a batch as `example` was; it updates the module's parameters and buffers, and
    returns the loss.

    The module's parameters and running statistics are the step's own states: PyTorch sees them over the same bytes, so that
    `state_dict`, checkpoints and evaluation between steps work as ever. With an optimizer of torch.optim, its state is shared
    as well, and its learning rate, which a scheduler may move, is read at each call.
    """

    def __init__(
        self,
        model: nn.Module,
        executable: TrainingStep,
        chosen: Mapped,
        rate: float | None = None,
        constants: Collection[str] | None = None,
        example: Sequence[Any] | Mapping[str, Any] = (),
    ) -> None:
        """`constants`: names of tensors that it was compiled with as they were; None: those that the artifact has by name.
        `example`: the batch that it was compiled for, if numbers in it are not to be given again."""
        self.model = model
        self.executable = executable
        self.compilation: Compilation | None = None
        """None for a step that was loaded."""
        self.optimizer = chosen.optimizer
        self.learning_rate = rate if rate is not None else executable.learning_rate
        """Of an optimizer by name."""
        self._parameters: dict[str, nn.Parameter] = dict(model.named_parameters())
        self._views = state_views(executable)
        self._numbers = numbers_of(example)
        kept = fixed_views(executable)
        self._tensors = SharedTensors(model, self._views, kept, kept if constants is None else constants)
        own = self.optimizer
        self.outputs: dict[str, torch.Tensor] = {}
        """Of the last step, before its update: `scores`, or several losses by name, where `outputs` was asked for, and metrics."""
        how = compiled_options(executable)
        self._moments = None if own is None else SharedMoments(chosen, self._parameters, self._views, how)

    @property
    def report(self) -> Any:
        """The report of the compilation: peak memory, bound, and what was recomputed. None for a step that was loaded."""
        return None if self.compilation is None else self.compilation.report

    def rates(self) -> dict[str, float]:
        """The learning rates of the next step, by the artifact's inputs: `learning_rate`, and `learning_rate.N` of further parameter
        groups that have some of what is trained."""
        return {RATE: self.learning_rate} if self._moments is None else self._moments.rates()

    def __call__(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """One step on a batch. Returns the loss, a tensor without axes on the module's device.

        What was done to the module and the optimizer since the last call counts: other values of parameters and statistics, the
        optimizer's own steps, and states that were loaded or emptied. Raises UsageError where its options, or the modules' modes, are
        no longer those that were compiled, its parameters have taken unlike numbers of steps, or tensors that are not trained are others,
        and for inputs of another shape, element type or device than `example` had.
        """
        if args and callable(args[0]) and not isinstance(args[0], torch.Tensor):
            raise UsageError(
                "step: expected a batch, got a function: a compiled step computes the loss itself and takes no closure"
            )
        args, kwargs = without_numbers(self._numbers, args, kwargs)
        self._tensors.enter()
        rates = {RATE: self.learning_rate} if self._moments is None else self._moments.enter()
        names = {spec.name for spec in self.executable.inputs}
        given = {**{name: rate for name, rate in rates.items() if name in names}, **kwargs}
        results = Executable.__call__(
            self.executable, *(_plain(a) for a in args), **{n: _plain(a) for n, a in given.items()}
        )
        self._tensors.leave()
        if self._moments is not None:
            self._moments.leave()
        self.outputs = {name: _tensor(value) for name, value in results.items() if name != "loss"}
        return _tensor(results["loss"])

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's state, as `torch.optim.Optimizer.state_dict` gives it. Raises UsageError for an optimizer by name."""
        found: dict[str, Any] = self._own().state_dict()
        return found

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over an optimizer's state, of PyTorch's or of another step. Raises UsageError for an optimizer by name, and what
        PyTorch raises for the state of another optimizer."""
        self._own().load_state_dict(dict(state))
        if self._moments is not None:
            self._moments.adopt()

    def _own(self) -> torch.optim.Optimizer:
        if self.optimizer is None:
            raise UsageError(
                "state_dict: expected an optimizer of torch.optim in compile_step, got one by name; use save"
            )
        return self.optimizer

    def save(self, path: str) -> None:
        """Write all states as a safetensors file, from which `restore` goes on."""
        self._tensors.follow()
        if self._moments is not None:
            self._moments.follow()
        self.executable.save(path)

    def restore(self, path: str) -> None:
        """Read what `save` wrote."""
        self.executable.restore(path)
        self._tensors.reread()
        if self._moments is not None:
            self._moments.reread()


def _plain(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else value


def _tensor(value: Any) -> torch.Tensor:
    """A result as PyTorch's tensor, over the same bytes."""
    return torch.from_dlpack(value)


def compile_step(
    model: nn.Module,
    loss: LossLike = "cross-entropy",
    optimizer: OptimizerLike = "sgd",
    *,
    example: Sequence[Any] | Mapping[str, Any],
    labels: int = 1,
    learning_rate: float | None = None,
    optimizer_options: Mapping[str, Any] | None = None,
    accumulate: int = 1,
    clip_norm: float | None = None,
    clip_norm_type: float = 2.0,
    clip_value: float | None = None,
    frozen: Sequence[str] = (),
    seed: int = 0,
    loss_scale: str | float | None = None,
    scaler: Any = None,
    outputs: bool = False,
    metrics: Mapping[str, Any] | None = None,
    output: str | Path | None = None,
    **options: Any,
) -> Step:
    """Compile one training step of a module: forward, loss, gradients and update in one arena that is planned in advance.

    Args:
        model: trained as its modules' modes say: those in evaluation mode normalize by their running statistics and drop nothing.
            Parameters that need no gradient, or that `optimizer` has not, stay as they are.
        loss: a name (`cross-entropy`, `mse`, `l1`, `smooth-l1`, `huber`, `bce`, `bce-with-logits`, `kl`, `nll`), a loss module, a
            function of the model's result (its `logits`, or its first tensor) and the labels, or `output`: the model
            returns the loss, alone, first, or as `loss`. Several by name are added up: `{"kind": "cross-entropy", "place": (f, 0.5)}`,
            with weights; each takes the model's result of its name, or in order, and one label.
        optimizer: one of torch.optim with its parameter groups (SGD, Adam, AdamW, RMSprop, Adagrad, Adadelta, Adamax, NAdam,
            RAdam, Adafactor), or a name of those or of `lion` and `adamw8bit`, with `learning_rate` and `optimizer_options`.
        example: one batch: the model's inputs and then the labels; or a dict of the model's arguments by name with loss `output`.
            Its shapes, types and device are those of all steps.
        labels: how many tensors at the end of `example` are the loss's.
        accumulate: micro-batches; the step then takes that many batches in one.
        clip_norm, clip_norm_type, clip_value: of `clip_grad_norm_` (norms 2 and inf) and `clip_grad_value_`, on the gradients of all
            parameters; where both are given, values are clipped first.
        seed, loss_scale: as in `BuildGradient`.
        scaler: a `torch.amp.GradScaler`: the step then scales its loss as it does, beginning with its scale; the object itself
            stays as it is.
        outputs: whether `step.outputs` has the scores of each step, or several losses by name.
        metrics: functions of the scores (of several losses: the model's result) and the labels, by name; `step.outputs` has their values
            at each step, before its update.
        output: the artifact's folder, for `load_step`; a temporary one if None.
        frozen: patterns of names of further parameters that are not trained.
        **options: of `memc.compile`: `memory_budget`, `precision` (a `torch.autocast` or an element type, too), `offload`, `target`
            (by default that of the module's device)...

    Raises UsageError, UnsupportedError (naming module and source line) and BudgetError, each of one line.
    """
    if scaler is not None and loss_scale is not None:
        raise UsageError("loss_scale: expected a GradScaler or a loss scale, got both")
    learning_rate = rate_of(learning_rate)
    training = {
        "accumulate": accumulate,
        "clip_norm": clip_norm,
        "clip_norm_type": norm_type(clip_norm_type),
        "clip_value": clip_value,
        "seed": seed,
        "loss_scale": loss_scale if scaler is None else loss_scale_of(scaler),
    }
    compilation = compile_artifact(
        model,
        loss,
        optimizer,
        example=example,
        labels=labels,
        frozen=frozen,
        output=output,
        optimizer_options=optimizer_options,
        outputs=outputs,
        metrics=metrics,
        training=training,
        **options,
    )
    executable = compilation.load()
    assert isinstance(executable, TrainingStep)
    constants = compilation.module.constants
    step = Step(model, executable, mapped(optimizer, optimizer_options), learning_rate, constants, example)
    step.compilation = compilation
    if scaler is not None:
        begin_with(scaler, step._views)
    return step


def compile_artifact(
    model: nn.Module,
    loss: LossLike,
    optimizer: OptimizerLike,
    *,
    example: Sequence[Any] | Mapping[str, Any],
    labels: int = 1,
    frozen: Sequence[str] = (),
    output: str | Path | None = None,
    optimizer_options: Mapping[str, Any] | None = None,
    outputs: bool = False,
    metrics: Mapping[str, Any] | None = None,
    training: Mapping[str, Any] | None = None,
    **options: Any,
) -> Compilation:
    """What `compile_step` compiles, without loading it: for another device than this machine has, and `load_step` there.

    `training`: further fields of `BuildGradient`. The rest is as in `compile_step`, and so are the errors.
    """
    from memc import driver
    from memc.passes.training.build_gradient import BuildGradient

    if not isinstance(model, nn.Module):
        raise UsageError(f"model: expected a torch.nn.Module, got {shown(model)}")
    chosen = mapped(optimizer, optimizer_options)
    function = loss_of(loss)
    require_no_training_of(function, chosen)
    args, kwargs, labels = batch_of(example, loss, labels)
    alone = left_alone(model, chosen, frozen)
    graph = _program(WithLoss(model, function, labels, outputs, checked_metrics(metrics)), args, kwargs)
    own = {name for name, _ in model.named_parameters(remove_duplicate=False)} - alone
    for name in set(graph.weights) - own:
        graph.weights[name].trained = False
    options.setdefault("target", _device_of(model))
    read = read_parameters(graph) if len(chosen.groups) > 1 else set(graph.weights)
    named = [(name, p) for name, p in model.named_parameters() if name in read and name not in alone]
    options["precision"] = precision_of(options.get("precision", "f32"))
    several = outputs or bool(metrics)
    how = BuildGradient(
        loss="output",
        output="loss" if several else None,
        keep_results=several,
        **(training or {}),
        **chosen.for_names(named),
    )
    return driver.compile(graph, output, train=how, **options)


def load_step(
    path: str | Path, model: nn.Module, optimizer: OptimizerLike = "sgd", *, learning_rate: float | None = None
) -> Step:
    """The step that `compile_step` wrote to `path`, on a module of the same kind and an optimizer of the same options. It goes on
    from the module's and the optimizer's state.

    Raises UsageError where a trained state is no parameter or buffer of the module, where weights that are not trained are others than the
    artifact has by name, where the optimizer is another than the step was compiled for, and what loading an artifact raises.
    """
    from memc.runtime.execute.load import load

    executable = load(path)
    if not isinstance(executable, TrainingStep):
        raise UsageError(f"{path}: expected a training step, got a model for inference")
    owned = {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers())}
    extra = {own for own in (*STATE_NAMES, "step", "mu_product", "loss_scale", "dropout", "good_steps")}
    for name, state in executable.states.items():
        if name in owned and tuple(owned[name].shape) != tuple(state.spec.shape):
            raise UsageError(
                f"{path}: `{name}`: expected shape {list(state.spec.shape)}, got {list(owned[name].shape)}"
            )
        known = name in owned or name.rpartition(".")[0] in owned or name.partition(".")[0] in extra
        known = known or name.removesuffix(".absmax").rpartition(".")[0] in owned
        if not known:
            raise UsageError(f"{path}: the module has no parameter `{name}`, which the step trains")
    chosen = mapped(optimizer)
    require_compiled_for(executable, chosen, model.named_parameters())
    return Step(model, executable, chosen, learning_rate)


def _program(wrapped: WithLoss, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Graph:
    """The program of a module with its loss."""
    from .program import exported, within

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return within(exported(wrapped, args, kwargs, type(wrapped.model).__name__), "model")


def _device_of(model: nn.Module) -> str:
    """The target of the device that the parameters are on. Raises UnsupportedError where they are on several."""
    found = {str(p.device.type) for p in model.parameters()} or {"cpu"}
    if len(found) > 1 or found - {"cpu", "cuda"}:
        raise UnsupportedError(f"unsupported: parameters on {', '.join(sorted(found))}: expected one, cpu or cuda")
    return "cuda" if found == {"cuda"} else "llvm"
