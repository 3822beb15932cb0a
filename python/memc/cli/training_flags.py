# SPDX-License-Identifier: Apache-2.0
"""The flags beside `--train`: how a training step is made of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

import typer

from memc.passes.training.losses import LABEL_KINDS, LOSSES
from memc.passes.training.mirror import POLICIES
from memc.passes.training.optimizers import OPTIMIZERS

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
