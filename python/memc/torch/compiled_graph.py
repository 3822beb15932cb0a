# SPDX-License-Identifier: Apache-2.0
"""A graph of ATen overloads as a program of memc, compiled for each set of sizes that it is called with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from memc.frontend.torch.exported import Reader, symbol_name
from memc.frontend.torch.graph import Graph, Input, Meta, Output
from memc.ir.errors import UsageError
from memc.ir.types import DType
from memc.runtime.execute.executable import Executable

from .partition import fx_values as fx

SEED = "memc_seed"
"""The input that seeds dropout and other random ops."""


class Compiled:
    """A graph of overloads, with an executable for each set of sizes.

    Tensors that are given are read where they are. Results that are inputs, or views of other results, are no copies of them.
    """

    def __init__(self, module: torch.fx.GraphModule, options: Mapping[str, Any], most: int) -> None:
        """`most`: for how many sets of sizes it is compiled."""
        self.module = module
        self.options = options
        self.most = most
        self.executables: dict[tuple[Any, ...], Executable | None] = {}
        self.placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
        (output,) = (n for n in module.graph.nodes if n.op == "output")
        self.outputs = list(output.args[0])
        self.draws = any(fx.draws(n) for n in module.graph.nodes if n.op == "call_function")
        self.computed = list(dict.fromkeys(made for o in self.outputs if (made := self._source(o)) is not None))
        """The nodes whose tensors the program returns."""
        if not any(any(is_open(n) for n in shape_of(p)) for p in self.placeholders):
            self._executable([p.meta.get("val") for p in self.placeholders])

    def __call__(self, args: list[Any]) -> list[Any]:
        """The graph's results; `args` is emptied."""
        given = [a.detach() if isinstance(a, torch.Tensor) else a for a in args]
        args.clear()
        known: dict[Any, Any] = dict(zip(self.placeholders, given))
        executable = self._executable(given)
        if executable is not None:
            tensors = {p.name: a for p, a in known.items() if isinstance(a, torch.Tensor)}
            if self.draws:
                tensors[SEED] = torch.randint(1 << 62, (), dtype=torch.int64)
            made = executable(*[tensors[spec.name] for spec in executable.inputs])
            known.update((n, _laid_out(torch.from_dlpack(t), n)) for n, t in zip(self.computed, made.values()))
        return [self._known(o, known) for o in self.outputs]

    def _source(self, output: Any) -> torch.fx.Node | None:
        """The node that a result is computed by, or a view of; None for an input, a view of one, and what is no tensor."""
        if not is_tensor(output):
            return None
        while output.op == "call_function" and fx.is_view(output) and _parent(output) is not None:
            output = _parent(output)
        return None if output.op == "placeholder" else output

    def _known(self, node: Any, known: dict[Any, Any]) -> Any:
        """A result: one that is computed, an input, or made of those as views and numbers are."""
        if not isinstance(node, torch.fx.Node):
            return node
        if node not in known:
            args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda n: self._known(n, known))
            target: Any = node.target
            known[node] = target(*args, **kwargs)
        return known[node]

    def _executable(self, given: Sequence[Any]) -> Executable | None:
        """The executable of the sizes that `given` has; None where nothing is computed."""
        key = tuple(tuple(a.shape) if isinstance(a, torch.Tensor) else a for a in given)
        if key not in self.executables:
            if len(self.executables) >= self.most:
                raise UsageError(
                    f"torch.compile: this would be the {len(self.executables) + 1}th set of sizes of one graph; "
                    "raise the option max_sizes, or pad inputs"
                )
            self.executables[key] = self._compiled(given) if self.computed else None
        return self.executables[key]

    def _compiled(self, given: Sequence[Any]) -> Executable:
        from memc import driver

        options = dict(self.options)
        kinds = {a.device.type for a in given if isinstance(a, torch.Tensor) and a.dim()}
        options.setdefault("target", "cuda" if "cuda" in kinds else "llvm")
        with torch.utils._python_dispatch._disable_current_modes():
            return driver.compile(self._graph(given), **options).load()

    def _graph(self, given: Sequence[Any]) -> Graph:
        """The program of these sizes. Raises UnsupportedError."""
        reader = Reader(self.module)
        nodes = list(reader.nodes())
        inputs: list[Input] = []
        hints: dict[str, int] = {}
        for placeholder, value in zip(self.placeholders, given):
            if isinstance(value, torch.Tensor):
                inputs.append(Input(placeholder.name, "input"))
                for size, known in zip(shape_of(placeholder), value.shape):
                    if is_open(size) and symbol_name(size):
                        hints[symbol_name(size)] = int(known)
            else:
                inputs.append(Input(placeholder.name, "value", value=value))
                known = placeholder.meta.get("val")
                if is_open(known) and symbol_name(known):
                    hints[symbol_name(known)] = int(value)
        if self.draws:
            inputs.append(Input(SEED, "input"))
            reader.metas[SEED] = Meta(DType.I64, (), None, "int64")
        outputs = [Output(reader.arg(o)) for o in self.computed]
        found = Graph(inputs, nodes, outputs, reader.metas, {}, {}, hints, quiet=True)
        found.seed = SEED if self.draws else ""
        return found


def _parent(view: torch.fx.Node) -> torch.fx.Node | None:
    """The one tensor that a view is of; None if it is an item of several."""
    keys = {fx.storage_key(t) for t in fx.tensors(view)}
    found = [n for n in view.all_input_nodes if fx.is_tensor(n) and fx.storage_key(n.meta["val"]) in keys]
    return found[0] if len(found) == 1 and fx.is_tensor(view) else None


def _laid_out(tensor: torch.Tensor, node: torch.fx.Node) -> torch.Tensor:
    """A result with the strides that whoever traced the graph counts on."""
    wanted = node.meta["val"].stride()
    if tensor.numel() == 0 or any(is_open(n) for n in wanted) or tuple(wanted) == tensor.stride():
        return tensor
    return torch.empty_strided(tuple(tensor.shape), tuple(wanted), dtype=tensor.dtype, device=tensor.device).copy_(
        tensor
    )


def shape_of(node: Any) -> Sequence[Any]:
    return tuple(getattr(node.meta.get("val"), "shape", ()))


def is_open(size: Any) -> bool:
    return isinstance(size, torch.SymInt)


def is_tensor(output: Any) -> bool:
    return isinstance(output, torch.fx.Node) and isinstance(output.meta.get("val"), torch.Tensor)
