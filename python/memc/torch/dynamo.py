# SPDX-License-Identifier: Apache-2.0
"""`torch.compile(backend="memc")`: inference, training, and what lies between graph breaks.

Dynamo gives a graph of PyTorch calls, AOTAutograd makes it ATen overloads without writes in place, in training one graph for the
forward and one for the backward, and each is compiled for the sizes of a call when they come for the first time. Parameters are
inputs of such a graph, read where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from memc.ir.errors import UsageError

from .compiled_graph import Compiled

Call = Callable[[list[Any]], list[Any]]

DECOMPOSED = (
    "_native_batch_norm_legit_functional",
    "native_dropout",
    "_fused_rms_norm",
    "_unsafe_view",
)
"""Overloads that training decomposes beside those of core ATen."""
WHOLE = ("native_layer_norm", "gelu", "silu", "hardswish", "hardsigmoid", "addmm", "_softmax", "_log_softmax")
"""Overloads that it does not, for which memc has ops."""


def backend(graph_module: torch.fx.GraphModule, example_inputs: Sequence[Any], **given: Any) -> Callable[..., Any]:
    """The backend of `torch.compile`, found by the name `memc`.

    `options` are those of `memc.compile` (`torch.compile(model, backend="memc", options={"opt_level": 3})`), and

    - `memory_budget`: in training, of what forward and backward hold together, as in `partitioner`;
    - `dynamic`: `compile` (the default) compiles a graph anew for each set of sizes, `refuse` for one only;
    - `max_sizes`: for how many sets of sizes a graph is compiled, 8 if not given; one more raises UsageError.

    Raises UnsupportedError, naming overload, module and source line, for what memc has not, UsageError for a wrong option, and
    BudgetError for a budget that cannot be kept.
    """
    from torch._dynamo.backends.common import aot_autograd  # Which takes seconds to import.

    options = dict(given.get("options") or {})
    if "level" in options:
        options["opt_level"] = options.pop("level")
    most = _most(options)
    tensors = (a for a in example_inputs if isinstance(a, torch.Tensor))
    if not (torch.is_grad_enabled() and any(t.requires_grad for t in tensors)):
        compiler = aot_autograd(fw_compiler=_refused, bw_compiler=_refused, inference_compiler=_compiler(options, most))
        found: Callable[..., Any] = compiler(graph_module, example_inputs)
        return found
    return _training(graph_module, example_inputs, options, most)


def _training(
    graph_module: torch.fx.GraphModule, example_inputs: Sequence[Any], options: dict[str, Any], most: int
) -> Callable[..., Any]:
    """A forward and a backward, which memc's partitioner splits."""
    from torch._dynamo.backends.common import aot_autograd
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from .partition.partitioner import partitioner

    split = partitioner(options.pop("memory_budget", "100%"), holds_inputs=True)
    compiled = _compiler(options, most)
    compiler = aot_autograd(
        fw_compiler=compiled,
        bw_compiler=compiled,
        inference_compiler=compiled,
        partition_fn=split,
        decompositions=_decompositions(),
    )
    with sdpa_kernel(SDPBackend.MATH):  # Whose parts memc has; fused kernels are PyTorch's own.
        found: Callable[..., Any] = compiler(graph_module, example_inputs)
    return found


def _decompositions() -> dict[Any, Any]:
    """What becomes smaller overloads, so that little of the backward needs converters of its own."""
    from torch._decomp import core_aten_decompositions, get_decompositions

    aten = torch.ops.aten
    found = dict(core_aten_decompositions())
    names = [getattr(aten, name) for name in DECOMPOSED if hasattr(aten, name)]
    found.update(get_decompositions(names))
    for name in WHOLE:
        for overload in getattr(aten, name).overloads():
            found.pop(getattr(getattr(aten, name), overload), None)
    return found


def _most(options: dict[str, Any]) -> int:
    """For how many sets of sizes a graph is compiled."""
    dynamic = options.pop("dynamic", "compile")
    if dynamic not in ("compile", "refuse"):
        raise UsageError(f"option dynamic: expected `compile` or `refuse`, got {dynamic!r}")
    return 1 if dynamic == "refuse" else int(options.pop("max_sizes", 8))


def _compiler(options: dict[str, Any], most: int) -> Callable[..., Call]:
    return partial(_compile, options=options, most=most)


def _compile(module: torch.fx.GraphModule, inputs: Sequence[Any], options: dict[str, Any], most: int) -> Call:
    return _boxed(Compiled(module, options, most))


def _refused(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Call:
    raise AssertionError("a graph without gradients has no forward and backward")


def _boxed(call: Call) -> Call:
    """A function that takes its arguments as one list."""
    call_as_any: Any = call
    call_as_any._boxed_call = True
    return call
