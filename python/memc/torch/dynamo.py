# SPDX-License-Identifier: Apache-2.0
"""`torch.compile(backend="memc")`: inference graphs, and what lies between graph breaks.

Dynamo gives a graph of PyTorch calls, AOTAutograd makes it ATen overloads without writes in place, and each is compiled for the sizes
of a call when they come for the first time. Parameters are inputs of such a graph, read where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from memc.frontend.torch.exported import Reader, symbol_name
from memc.frontend.torch.graph import Graph, Input, Output
from memc.ir.errors import UnsupportedError, UsageError
from memc.runtime.execute.executable import Executable

Call = Callable[[list[Any]], list[Any]]


def backend(graph_module: torch.fx.GraphModule, example_inputs: Sequence[Any], **given: Any) -> Callable[..., Any]:
    """The backend of `torch.compile`, found by the name `memc`.

    `options` are those of `memc.compile` (`torch.compile(model, backend="memc", options={"opt_level": 3})`), and `max_sizes`: for how
    many sets of sizes a graph is compiled, 8 if not given; one more raises UsageError.

    Raises UnsupportedError, naming overload, module and source line, for what memc has not, and for graphs that need gradients:
    those are for `compile_step`.
    """
    from torch._dynamo.backends.common import aot_autograd  # Which takes seconds to import.

    options = dict(given.get("options") or {})
    most = int(options.pop("max_sizes", 8))

    def inference(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Call:
        return _boxed(Compiled(module, options, most))

    def refused(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Call:
        raise UnsupportedError(
            "unsupported: a graph that needs gradients; train with memc.torch.compile_step, or call under torch.no_grad()"
        )

    compiler = aot_autograd(fw_compiler=refused, bw_compiler=refused, inference_compiler=inference)
    found: Callable[..., Any] = compiler(graph_module, example_inputs)
    return found


def _boxed(call: Call) -> Call:
    """A function that takes its arguments as one list."""
    call_as_any: Any = call
    call_as_any._boxed_call = True
    return call


class Compiled:
    """A graph of overloads, with an executable for each set of sizes."""

    def __init__(self, module: torch.fx.GraphModule, options: Mapping[str, Any], most: int) -> None:
        self.module = module
        self.options = options
        self.most = most
        self.executables: dict[tuple[Any, ...], Executable] = {}
        self.placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
        (output,) = (n for n in module.graph.nodes if n.op == "output")
        self.outputs = list(output.args[0])
        if not any(any(_is_open(n) for n in _shape(p)) for p in self.placeholders):
            self._executable([p.meta.get("val") for p in self.placeholders])

    def __call__(self, args: list[Any]) -> list[Any]:
        """The graph's results; `args` is emptied."""
        given = list(args)
        args.clear()
        executable = self._executable(given)
        tensors = [a.detach() for a in given if isinstance(a, torch.Tensor)]
        results = (
            iter(executable(*_needed(executable, tensors, self._names(given))).values())
            if executable.outputs
            else iter(())
        )
        return [_as_tensor(next(results)) if _is_tensor(o) else self._number(o, given) for o in self.outputs]

    def _names(self, given: Sequence[Any]) -> list[str]:
        return [p.name for p, a in zip(self.placeholders, given) if isinstance(a, torch.Tensor)]

    def _number(self, output: Any, given: Sequence[Any]) -> Any:
        """A result that is no tensor: None, a number, or one of the inputs."""
        for placeholder, value in zip(self.placeholders, given):
            if output is placeholder:
                return value
        return output

    def _executable(self, given: Sequence[Any]) -> Executable:
        """The executable of the sizes that `given` has."""
        key = tuple(tuple(a.shape) if isinstance(a, torch.Tensor) else a for a in given)
        if key not in self.executables:
            if len(self.executables) >= self.most:
                raise UsageError(
                    f"torch.compile: this would be the {len(self.executables) + 1}th set of sizes of one graph; "
                    "raise the option max_sizes, or pad inputs"
                )
            self.executables[key] = self._compiled(given)
        return self.executables[key]

    def _compiled(self, given: Sequence[Any]) -> Executable:
        from memc import driver

        options = dict(self.options)
        kinds = {a.device.type for a in given if isinstance(a, torch.Tensor)}
        options.setdefault("target", "cuda" if "cuda" in kinds else "llvm")
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
                for size, known in zip(_shape(placeholder), value.shape):
                    if _is_open(size) and symbol_name(size):
                        hints[symbol_name(size)] = int(known)
            else:
                inputs.append(Input(placeholder.name, "value", value=value))
                known = placeholder.meta.get("val")
                if _is_open(known) and symbol_name(known):
                    hints[symbol_name(known)] = int(value)
        outputs = [Output(reader.arg(o)) for o in self.outputs if _is_tensor(o)]
        return Graph(inputs, nodes, outputs, reader.metas, {}, {}, hints, quiet=True)


def _shape(node: Any) -> Sequence[Any]:
    return tuple(getattr(node.meta.get("val"), "shape", ()))


def _is_open(size: Any) -> bool:
    return isinstance(size, torch.SymInt)


def _is_tensor(output: Any) -> bool:
    return isinstance(output, torch.fx.Node) and isinstance(output.meta.get("val"), torch.Tensor)


def _needed(executable: Executable, tensors: Sequence[torch.Tensor], names: Sequence[str]) -> list[torch.Tensor]:
    """The inputs in the executable's order."""
    found = dict(zip(names, tensors))
    return [found[spec.name] for spec in executable.inputs]


def _as_tensor(value: Any) -> torch.Tensor:
    return torch.from_dlpack(value)
