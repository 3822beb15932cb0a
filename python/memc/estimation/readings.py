# SPDX-License-Identifier: Apache-2.0
"""What a loop over a model is, and the readings of what is not known of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from .frameworks import Framework
from .lifetimes import leaving
from .onnx_graph import OnnxGraph
from .workspaces import Workspaces

STEPS = 3
CONVOLUTIONS = ("Conv", "ConvTranspose")


@dataclass(frozen=True)
class LoopShape:
    """What is run over a model, and how."""

    optimizer: str | None
    """None for inference."""
    zero_grad: str = "first"
    precision: str = "f32"
    accumulate: int = 1
    """Batches in a step."""
    checkpoint: str | None = None
    channels_last: bool = False
    """Whether images have this layout."""
    steps: int = STEPS


@dataclass(frozen=True)
class Reading:
    """What is taken to be so in a run."""

    names: Mapping[int, Sequence[str]]
    """By node: those that end after it."""
    workspaces: Workspaces
    skipped: int = 0
    """First steps without an update."""


def readings(graph: OnnxGraph, framework: Framework, shape: LoopShape, workspaces: Workspaces) -> list[Reading]:
    """The plain reading, and for each thing that is not known another: how long operands have names (`lifetimes.leaving`); whether
    gradients of weights on tensor cores are sums of parts; whether a gradient scaler skips the first update, as its first scale is
    often too large."""
    plain = Reading(leaving(graph), workspaces)
    found = [plain]
    if framework.names:
        named = leaving(graph, named=True)
        found += [replace(plain, names=named)] if named != plain.names else []
    if workspaces.tensor_cores and shape.optimizer is not None and any(node.op in CONVOLUTIONS for node in graph.nodes):
        found.append(replace(plain, workspaces=replace(workspaces, split_sums=True)))
    if shape.precision == "amp-f16" and shape.optimizer is not None:
        found.append(replace(plain, skipped=1))
    return found
