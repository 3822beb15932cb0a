# SPDX-License-Identifier: Apache-2.0
"""What a framework model says beside the rules of its ops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..allocators import Allocator, Caching
from ..onnx_graph import Node


@dataclass(frozen=True)
class Framework:
    """A release of a framework. Sizes in bytes."""

    name: str
    rules: Mapping[str, Callable[[Any, Node], None]]
    """By the ops of ONNX, and those that `recognize` makes of several."""
    allocator: Allocator = Caching()
    outside: int | None = None
    """What a process takes outside the allocator; None for what the GPU's measurements say."""
    workspace_limit: int | None = None
    """Algorithms of convolutions that take more are not used; None for no limit."""
    matrix_workspaces: bool = True
    """Whether the workspace of cuBLAS is the allocator's."""
    keeps_workspace: bool = False
    """Whether convolutions share one workspace, which grows and stays."""
    binds_gradients: bool = False
    """Whether gradients of parameters have their places from the start."""
    applies_at_once: bool = False
    """Whether plain SGD applies a gradient as soon as it is there, and gives it up, rather than in a step of all."""
    names: bool = True
    """Whether tensors live as long as they have names in a program, rather than until they are read last."""
    source: str = ""
    """Where the figures are from."""
