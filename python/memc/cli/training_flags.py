# SPDX-License-Identifier: Apache-2.0
"""The flags beside `--train`: how a training step is made of a model, and what was typed after them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Optional

import typer

from memc.ir.checked_options import require_one_of
from memc.ir.errors import UsageError
from memc.passes.base import Pass
from memc.passes.pipeline_text import parse_pipeline
from memc.passes.training.build_gradient import BuildGradient
from memc.passes.training.losses import LABEL_KINDS, LOSSES
from memc.passes.training.mirror import POLICIES
from memc.passes.training.optimizers import OPTIMIZERS, OptimizerOptions, options_of

TRAINING: Mapping[str, tuple[Any, Any, Any]] = {
    "loss": (
        Optional[str],
        None,
        typer.Option("--loss", help=f"With --train: {', '.join(LOSSES)} (default: the first)."),
    ),
    "labels": (
        Optional[str],
        None,
        typer.Option(
            "--labels", help=f"With --train: {' or '.join(LABEL_KINDS)} of softmax-cross-entropy (default: the first)."
        ),
    ),
    "ignore_index": (
        Optional[int],
        None,
        typer.Option(
            "--ignore-index", metavar="N", help="With --train: the label that does not count (default: -100)."
        ),
    ),
    "check_labels": (
        bool,
        False,
        typer.Option("--check-labels", help="With --train: check labels on the device too, when the loss is read."),
    ),
    "optimizer": (
        Optional[str],
        None,
        typer.Option(
            "--optimizer",
            help=f"With --train: {', '.join(name for name in OPTIMIZERS if name != 'none')} (default: the first); none for gradients.",
        ),
    ),
    "optimizer_options": (
        Optional[str],
        None,
        typer.Option("--optimizer-options", metavar="OPTIONS", help="With --train: 'momentum=0.9 weight-decay=1e-4'."),
    ),
    "groups": (
        Optional[list[str]],
        None,
        typer.Option(
            "--group",
            metavar="'PATTERN: OPTIONS'",
            help="With --train: weights with optimizer options or a 'rate=' of their own (repeatable).",
        ),
    ),
    "clip_norm": (
        Optional[float],
        None,
        typer.Option("--clip-norm", help="With --train: largest norm of all gradients together."),
    ),
    "clip_norm_type": (
        Optional[str],
        None,
        typer.Option("--clip-norm-type", metavar="2|inf", help="With --train: the norm of --clip-norm (default: 2)."),
    ),
    "clip_value": (
        Optional[float],
        None,
        typer.Option("--clip-value", help="With --train: largest magnitude of an element of a gradient."),
    ),
    "loss_scale": (
        Optional[str],
        None,
        typer.Option(
            "--loss-scale",
            metavar="dynamic|NUMBER",
            help="With --train: what the loss is multiplied by for gradients (f16: dynamic; else none).",
        ),
    ),
    "accumulate": (
        Optional[int],
        None,
        typer.Option("--accumulate", metavar="N", help="With --train: micro-batches to one update."),
    ),
    "freeze": (
        Optional[list[str]],
        None,
        typer.Option("--freeze", metavar="PATTERN", help="With --train: weights to leave alone (repeatable)."),
    ),
    "no_dropout": (bool, False, typer.Option("--no-dropout", help="With --train: leave out the model's dropout.")),
    "seed": (Optional[int], None, typer.Option("--seed", help="With --train: seed of dropout's masks (default: 0).")),
    "mirror": (
        Optional[str],
        None,
        typer.Option("--mirror", help=f"With --train: what to recompute: {', '.join(POLICIES)} (default: the first)."),
    ),
}
"""Flags beside `--train`: type, default and what `--help` says."""


def parse_training(train: bool, given: Mapping[str, Any], optimizer_options: str | None) -> BuildGradient | None:
    """What `--train` and the options that go with it say; `given` holds fields of BuildGradient, None where not said."""
    said = {name: value for name, value in given.items() if value is not None}
    if not train:
        if said or optimizer_options:
            raise UsageError("options of a training step (--loss, --optimizer and such) need --train")
        return None
    for name, choices in (("loss", LOSSES), ("labels", LABEL_KINDS), ("optimizer", OPTIMIZERS), ("mirror", POLICIES)):
        if name in said:
            require_one_of(said[name], choices, f"--{name} {said[name]}")
    for name in {"frozen", "groups"} & set(said):
        said[name] = tuple(said[name])
    return BuildGradient(**_optimizer_options(optimizer_options or ""), **said)


@dataclass(frozen=True)
class _OptimizerOptions(OptimizerOptions, Pass):
    """What `--optimizer-options` may say, read as pipelines are."""

    name: ClassVar[str] = "optimizer"


def _optimizer_options(text: str) -> dict[str, Any]:
    """`momentum=0.9 weight-decay=1e-4` as numbers by name. Raises UsageError."""
    if "{" in text or "}" in text:
        raise UsageError(f"--optimizer-options {text!r}: expected NAME=VALUE pairs, got braces")
    try:
        (parsed,) = parse_pipeline(f"optimizer{{{text}}}", {_OptimizerOptions.name: _OptimizerOptions})
    except UsageError as error:
        what = str(error).partition(": ")[2]  # Without the position, which counts from another beginning.
        raise UsageError(f"--optimizer-options {text!r}: {what}") from None
    assert isinstance(parsed, _OptimizerOptions)
    return options_of(parsed)
