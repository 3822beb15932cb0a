# SPDX-License-Identifier: Apache-2.0
"""Modules to programs: the export, and its failures as errors of one line."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from memc.frontend.torch.exported import read_exported
from memc.frontend.torch.graph import Graph, Location, Node
from memc.frontend.torch.stack_traces import user_line
from memc.ir.errors import MemcError, UnsupportedError


def exported(module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], name: str) -> Graph:
    """The program of a module, for inputs like the given ones; messages call it `name`. Raises UnsupportedError."""
    try:
        program = torch.export.export(module, tuple(args), dict(kwargs), strict=False)
    except MemcError:
        raise
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        said = lines[0] if lines else type(error).__name__
        where = user_line(str(error)) or user_line("".join(traceback.format_tb(error.__traceback__)))
        said += f" ({where})" if where else ""
        raise UnsupportedError(f"unsupported: {name}: torch.export: {said[:400]}") from error
    return read_exported(program)


def within(graph: Graph, prefix: str) -> Graph:
    """The program with names as the module called `prefix` in it has them."""
    start = prefix + "."

    def short(name: str) -> str:
        return name.removeprefix(start)

    def moved(node: Node) -> Node:
        module = "" if node.location.module == prefix else short(node.location.module)
        return replace(node, location=Location(module, node.location.line))

    graph.inputs = [replace(item, target=short(item.target)) for item in graph.inputs]
    graph.outputs = [replace(item, target=short(item.target)) for item in graph.outputs]
    graph.weights = {short(name): weight for name, weight in graph.weights.items()}
    graph.nodes = [moved(node) for node in graph.nodes]
    return graph
