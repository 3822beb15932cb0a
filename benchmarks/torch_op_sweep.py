# SPDX-License-Identifier: Apache-2.0
"""Overloads of ATen as memc imports them, compared with PyTorch on the samples of PyTorch's own tests (`op_db`).

    python benchmarks/torch_op_sweep.py [--ops NAME,...] [--samples N] [--json FILE]   # where PyTorch and memc are installed

Each sample is traced as `torch.export` would have it, whole ops kept whole, imported, and evaluated by memc's reference evaluator. Results must
have PyTorch's shapes and element types, and its values within a tolerance. Prints the page of results. PyTorch's tests need `expecttest`.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from memc.frontend.torch import import_torch
from memc.frontend.torch.context import overloads
from memc.frontend.torch.exported import Reader, array_of, dtype_of
from memc.frontend.torch.graph import Graph, Input, Output
from memc.ir.core import Array, Role
from memc.ir.errors import MemcError
from memc.ir.evaluate import evaluate

DTYPES = (torch.float32, torch.int64, torch.uint8, torch.bool, torch.float16)

TOLERANCES = {np.dtype(np.float16): 2e-2, np.dtype(np.float32): 2e-4}
"""Relative, and absolute; integers and booleans are compared exactly."""

RANDOM = (
    "dropout",
    "bernoulli",
    "rand",
    "normal",
    "uniform",
    "multinomial",
    "cauchy",
    "exponential",
    "geometric",
    "empty",
    "log_normal",
)
"""Parts of names of what gives no values to compare."""


UNSTABLE = {f"aten.{name}.default" for name in ("sort", "argsort", "topk", "kthvalue")}
"""Overloads that give equal elements any order: where there are some, positions are not compared."""


@dataclass
class Tally:
    """What became of the samples that call an overload."""

    samples: int = 0
    same: int = 0
    refused: int = 0
    differ: list[str] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)


def tensors_of(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def traced(call: Any, sample: Any) -> tuple[torch.fx.GraphModule, list[torch.Tensor], list[torch.Tensor]]:
    """A sample's graph of overloads, its tensors, and PyTorch's results."""
    leaves, spec = torch.utils._pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    at = [n for n, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    given = [leaves[n].detach() for n in at]

    def run(*inputs: torch.Tensor) -> list[torch.Tensor]:
        filled = list(leaves)
        for n, value in zip(at, inputs):
            filled[n] = value
        first, args, kwargs = torch.utils._pytree.tree_unflatten(filled, spec)
        return tensors_of(call(first, *args, **kwargs))

    with torch.no_grad():
        wanted = [result.clone() for result in run(*[x.clone() for x in given])]
        module = make_fx(run, tracing_mode="real", pre_dispatch=True)(*[x.clone() for x in given])
    return module, given, wanted


def program_of(module: torch.fx.GraphModule) -> Graph:
    """The graph as memc's importer takes it."""
    reader = Reader(module)
    nodes = list(reader.nodes())
    inputs = [Input(n.name, "input") for n in module.graph.nodes if n.op == "placeholder"]
    return Graph(inputs, nodes, [Output(arg) for arg in reader.outputs()], reader.metas)


def difference(got: Sequence[Array], wanted: Sequence[Array]) -> str:
    """What is not as PyTorch has it; empty if all is."""
    if len(got) != len(wanted):
        return f"{len(got)} results, not {len(wanted)}"
    for mine, theirs in zip(got, wanted):
        if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
            return f"{mine.dtype}{list(mine.shape)}, not {theirs.dtype}{list(theirs.shape)}"
        limit = TOLERANCES.get(theirs.dtype, 1e-7 if theirs.dtype.kind == "f" else 0)
        with np.errstate(all="ignore"):
            if not np.allclose(mine, theirs, rtol=limit, atol=limit, equal_nan=True):
                at = np.unravel_index(
                    int(np.argmin(np.isclose(mine, theirs, limit, limit, equal_nan=True))), mine.shape
                )
                return f"{mine[at]!r}, not {theirs[at]!r}, of {theirs.dtype}{list(theirs.shape)}"
    return ""


def compared(graph: Graph, given: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> str:
    """The difference of memc's results. Raises MemcError for what it refuses."""
    module = import_torch(graph)
    arrays = {item.name: array_of(x) for item, x in zip(graph.inputs, given)}
    inputs = {p.name: arrays[p.name] for p in module.main.params_of(Role.INPUT)}
    with np.errstate(all="ignore"):
        found = list(evaluate(module, inputs).values())
    theirs = [array_of(x) for x in wanted]
    if (
        any(node.target in UNSTABLE for node in graph.nodes)
        and len(np.unique(arrays[graph.inputs[0].name])) < given[0].numel()
    ):
        of_values = slice(0, 0) if len(theirs) == 1 else slice(0, 1)
        found, theirs = found[of_values], theirs[of_values]
    return difference(found, theirs)


def samples_of(info: Any, dtype: torch.dtype, most: int) -> Iterator[Any]:
    if dtype in info.supported_dtypes("cpu"):
        torch.manual_seed(0)
        yield from islice(info.sample_inputs("cpu", dtype, requires_grad=False), most)


def is_plain(graph: Graph, given: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> bool:
    """Whether memc has the types of all that goes in and comes out, and something does."""
    every = [*given, *wanted]
    dense = all(x.layout is torch.strided and dtype_of(x.dtype) is not None for x in every)
    return bool(graph.nodes) and bool(wanted) and dense


def sweep(infos: Sequence[Any], most: int) -> tuple[dict[str, Tally], Counter[str]]:
    """Tallies by overload, and how many samples call overloads that memc has not."""
    known, tallies, missing = set(overloads()), defaultdict(Tally), Counter[str]()
    for info in infos:
        for dtype in DTYPES:
            for sample in samples_of(info, dtype, most):
                try:
                    module, given, wanted = traced(info.op, sample)
                    graph = program_of(module)
                except (RuntimeError, TypeError, ValueError, NotImplementedError, AssertionError, MemcError):
                    continue  # What PyTorch does not trace, and arguments that are no tensors or numbers.
                if not is_plain(graph, given, wanted):
                    continue
                called = {node.target for node in graph.nodes}
                absent = {
                    t for t in called if t not in known and t.replace("_.", ".") not in known and t.startswith("aten.")
                }
                if absent:
                    missing.update(absent)
                    continue
                _count(tallies, info, called, (graph, given, wanted))
        print(info.name, file=sys.stderr, flush=True)
    return tallies, missing


def _count(tallies: dict[str, Tally], info: Any, called: set[str], case: tuple[Any, Any, Any]) -> None:
    said, refused = "", ""
    try:
        said = compared(*case)
    except MemcError as error:
        refused = str(error).splitlines()[0]
    except Exception as error:  # A fault of the importer, which users would see as a stack trace.
        said = f"{type(error).__name__}: {error}"[:200]
    for target in called:
        tally = tallies[target]
        tally.samples += 1
        if refused:
            tally.refused += 1
            tally.reasons[refused.rpartition(": ")[2]] += 1
        elif said:
            tally.differ.append(f"{info.name}: {said}")
        else:
            tally.same += 1


def page(tallies: dict[str, Tally], missing: Counter[str], most: int) -> str:
    """The page of results."""
    ours = {name: t for name, t in sorted(tallies.items()) if name.startswith("aten.")}
    differ = sum(bool(t.differ) for t in ours.values())
    lines = [
        "# ATen overloads on the samples of PyTorch's own tests",
        "",
        "<!-- headline -->",
        f"- {len(ours)} overloads that memc imports have samples in PyTorch's `op_db`: on {sum(t.same for t in ours.values()):,} of "
        f"{sum(t.samples for t in ours.values()):,} calls",
        f"  memc gives PyTorch's results, {sum(t.refused for t in ours.values()):,} it refuses in one line; {differ} overloads differ somewhere.",
        "<!-- end of headline -->",
        "",
        "From",
        "",
        "    python benchmarks/torch_op_sweep.py",
        "",
        f"PyTorch {torch.__version__.partition('+')[0]} on the CPU; at most {most} samples for each op and element type (f32, i64, u8, bool, f16), evaluated by the",
        "reference evaluator. A sample counts for each overload that its graph calls. What draws at random is left out. Results of f16 that",
        "differ: PyTorch rounds transposed convolutions and grid samples on the way, to results further from its f64 ones than memc's are.",
        "",
        "| overload | samples | as PyTorch | refused | differ | why refused, or what differs |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for name, t in ours.items():
        said = [*(reason for reason, _ in t.reasons.most_common(2)), *t.differ[:1]]
        shown = "; ".join(said).replace("|", "\\|").replace("\n", " ")[:160]
        lines.append(f"| `{name}` | {t.samples} | {t.same} | {t.refused} | {len(t.differ)} | {shown} |")
    lines += ["", f"{len(missing)} overloads of `op_db` memc has not; the most frequent in samples:", ""]
    lines.append(", ".join(f"`{name}` {count}" for name, count in missing.most_common(40)) + ".")
    return "\n".join(lines)


def main() -> None:
    """Sweep, and print the page."""
    from torch.testing._internal.common_methods_invocations import op_db

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default="", help="names of op_db, separated by commas; all if not given")
    parser.add_argument("--samples", type=int, default=6, help="of each op and element type")
    parser.add_argument("--json", type=Path, help="write every difference there")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    chosen = set(filter(None, args.ops.split(",")))
    infos = [i for i in op_db if (not chosen or i.name in chosen) and not any(part in i.name for part in RANDOM)]
    tallies, missing = sweep(infos, args.samples)
    if args.json:
        args.json.write_text(json.dumps({n: t.differ for n, t in sorted(tallies.items()) if t.differ}, indent=1))
    print(page(tallies, missing, args.samples))


if __name__ == "__main__":
    main()
