# SPDX-License-Identifier: Apache-2.0
"""Seconds that compilations take, of graphs that strain parts of the compiler and of training steps, and how they grow.

    python benchmarks/compile_time.py [--models DIR --cache CACHE] [--markdown FILE] [CASE ...]

Each case is compiled twice in processes of their own: with an empty cache of kernels, and with what the first left there. CPU
seconds are the process's and those of the compilers that it starts, without the import of TVM; the wall clock's say something
only where nothing else runs. `--half` compiles each case at half its size, too, which tells whether its time grows with its
square. Training steps need `--models` (`benchmarks/models.py`); they are compiled for sm_90, which needs nvcc and no GPU.
The case `run` compiles nothing: it is `memc run` of a model of one op, less the import of TVM, each the least of five.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser

sys.path.insert(0, str(Path(__file__).resolve().parent))

STEPS = {"resnet50": 32, "mobilenet_v2": 32, "bert_base": 8}
"""Training steps, by the model's name, and their batch."""


def graph(nodes: list[onnx.NodeProto], shape: list[int], result: str, weights: dict[str, Any]) -> onnx.ModelProto:
    """A model of one input x and one output, in f32."""
    made = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(result, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(data), name) for name, data in weights.items()],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def wide_concat(size: int) -> onnx.ModelProto:
    """`size` sums with a constant each, joined."""
    weights = {f"c{n}": np.random.default_rng(n).normal(size=(1, 8)).astype(np.float32) for n in range(size)}
    nodes = [helper.make_node("Add", ["x", f"c{n}"], [f"t{n}"]) for n in range(size)]
    nodes.append(helper.make_node("Concat", [f"t{n}" for n in range(size)], ["y"], axis=0))
    return graph(nodes, [1, 8], "y", weights)


def nested_concats(size: int) -> onnx.ModelProto:
    """Each of `size` layers takes what all layers before it gave, joined."""
    nodes, known = [], ["x"]
    for n in range(size):
        nodes.append(helper.make_node("Concat", known if n else ["x", "x"], [f"c{n}"], axis=1))
        nodes.append(helper.make_node("ReduceMean", [f"c{n}", "axis"], [f"r{n}"], keepdims=1))
        nodes.append(helper.make_node("Expand", [f"r{n}", "shape"], [f"t{n}"]))
        known.append(f"t{n}")
    return graph(nodes, [2, 4], known[-1], {"axis": np.array([1]), "shape": np.array([2, 4])})


def reversed_split(size: int) -> onnx.ModelProto:
    """`size` rows, an exponential of each, joined in the other order."""
    nodes = [helper.make_node("Split", ["x"], [f"s{n}" for n in range(size)], axis=0, num_outputs=size)]
    nodes += [helper.make_node("Exp", [f"s{n}"], [f"e{n}"]) for n in range(size)]
    nodes.append(helper.make_node("Concat", [f"e{n}" for n in reversed(range(size))], ["y"], axis=0))
    return graph(nodes, [size, 8], "y", {})


def unrolled_loop(size: int) -> onnx.ModelProto:
    """A Loop of `size` iterations of two ops, in place."""
    return parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 20]> g (float[8] x) => (float[8] y) <int64 n={{{size}}}, bool c={{1}}> {{'
        "y = Loop(n, c, x) <body = b (int64 i, bool ci, float[8] a) => (bool co, float[8] an) {"
        "co = Identity(ci) s = Sigmoid(a) an = Add(s, x) }> }"
    )


def unrolled_gru(size: int) -> onnx.ModelProto:
    """A GRU of 8 cells over `size` steps: eight ops a step."""
    rng = np.random.default_rng(0)
    shapes = {"w": (1, 24, 5), "r": (1, 24, 8), "b": (1, 48)}
    weights = {name: rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}
    node = helper.make_node("GRU", ["x", "w", "r", "b"], ["y", ""], hidden_size=8, linear_before_reset=1)
    return graph([node], [size, 2, 5], "y", weights)


CASES: dict[str, tuple[Callable[[int], onnx.ModelProto], int]] = {
    "concat": (wide_concat, 2000),
    "nested-concats": (nested_concats, 60),
    "reversed-split": (reversed_split, 500),
    "loop": (unrolled_loop, 8000),
    "gru": (unrolled_gru, 893),
}
"""Graphs by name, and the size of each."""


RUN = "run"
"""The case that is no compilation."""


def cpu_seconds() -> float:
    """CPU seconds in user mode of this process and of those that it has waited for."""
    return sum(resource.getrusage(who).ru_utime for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def compile_one(args: argparse.Namespace) -> dict[str, Any]:
    """What compiling one case takes, in this process."""
    import memc
    from memc.runtime import codegen  # Imports TVM.

    assert codegen
    if args.one in CASES:
        source: Any = CASES[args.one][0](args.size).SerializeToString()
        options: dict[str, Any] = {}
    else:
        import models

        (model,) = [m for m in models.MODELS if m.name == f"training/{args.one}"]
        source = model.path(args.models, args.cache)
        shapes = model.shapes(STEPS[args.one])
        options = {"input_shapes": shapes, "target": "cuda", "arch": "sm_90", "train": memc.BuildGradient()}
    cpu, wall = cpu_seconds(), time.perf_counter()
    report = memc.compile(source, **options).report
    facts = {
        "cpu": cpu_seconds() - cpu,
        "wall": time.perf_counter() - wall,
        "ops": report.ops,
        "kernels": report.kernels,
    }
    return {**facts, **{name: report.seconds[name] for name in ("passes", "codegen")}}


def measured(args: argparse.Namespace, name: str, size: int, kept: str) -> dict[str, Any]:
    """What compiling a case takes in a process of its own, with the cache of kernels in folder `kept`."""
    given = [sys.executable, __file__, "--one", name, "--size", str(size)]
    given += ["--models", str(args.models), "--cache", str(args.cache)]
    done = subprocess.run(
        given, env={**os.environ, "MEMC_KERNEL_CACHE": kept}, stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def row(args: argparse.Namespace, name: str, size: int) -> str:
    """A line of the table."""
    with tempfile.TemporaryDirectory() as kept:
        first, again = (measured(args, name, size, kept) for _ in range(2))
    growth = ""
    if args.half and name in CASES:
        with tempfile.TemporaryDirectory() as kept:
            growth = f"{first['cpu'] / measured(args, name, size // 2, kept)['cpu']:.1f}"
    cells = [name, str(size), str(first["ops"]), str(first["kernels"]), f"{first['cpu']:.1f}", growth]
    cells += [f"{again['cpu']:.1f}", f"{first['wall']:.1f}", f"{first['passes']:.1f}", f"{first['codegen']:.1f}"]
    return f"| {' | '.join(cells)} |"


def seconds_of(command: list[str]) -> tuple[float, float]:
    """CPU and wall-clock seconds of a process."""
    cpu, wall = cpu_seconds(), time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return cpu_seconds() - cpu, time.perf_counter() - wall


def run_row() -> str:
    """The line of `memc run`: what it takes beyond `import tvm`. The two are run in turns."""
    import memc

    model = graph([helper.make_node("Relu", ["x"], ["y"])], [4], "y", {})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tiny.memc"
        report = memc.compile(model, path).report
        run = [sys.executable, "-m", "memc", "run", str(path), "--input", "x=1"]
        found = [(seconds_of([sys.executable, "-c", "import tvm"]), seconds_of(run)) for _ in range(5)]
    cpu, wall = (min(all_[n] for _, all_ in found) - min(tvm[n] for tvm, _ in found) for n in range(2))
    return f"| {RUN} | 1 | {report.ops} | {report.kernels} | {cpu:.1f} | | | {wall:.1f} | | |"


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument(
        "cases", nargs="*", metavar="CASE", help=f"of {', '.join([*CASES, *STEPS, RUN])}; default all"
    )
    arguments.add_argument("--models", type=Path, help="folder of ONNX models; without it, no training steps")
    arguments.add_argument("--cache", type=Path, default=Path("build/models"))
    arguments.add_argument("--half", action="store_true", help="also at half the size")
    arguments.add_argument("--markdown", type=Path, help="write the table there")
    arguments.add_argument("--one", help=argparse.SUPPRESS)
    arguments.add_argument("--size", type=int, default=0, help=argparse.SUPPRESS)
    args = arguments.parse_args()
    if args.one:
        print(json.dumps(compile_one(args)))
        return 0
    sizes = {**{name: size for name, (_, size) in CASES.items()}, **(STEPS if args.models else {}), RUN: 1}
    titles = ["case", "size or batch", "ops", "kernels", "CPU s", "against half the size", "CPU s, kernels kept"]
    titles += ["wall s", "passes, wall s", "codegen, wall s"]
    lines = [f"| {' | '.join(titles)} |", "| --- " + "| --: " * (len(titles) - 1) + "|"]
    for name in args.cases or sizes:
        if name not in sizes:
            arguments.error(f"no case {name}; there are {', '.join(sizes)}")
        lines.append(run_row() if name == RUN else row(args, name, sizes[name]))
        print(lines[-1], flush=True)
    if args.markdown:
        args.markdown.write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
