# SPDX-License-Identifier: Apache-2.0
"""One training step of each training model on the CPU, held against PyTorch's: loss, gradients, updated weights.

    python benchmarks/training_step.py --models DIR --cache CACHE [--compiled] [--json FILE] [--markdown FILE] [NAME ...]

Needs PyTorch, which runs the same ONNX file (`torch_onnx.py`). The loss is the cross entropy of the first output with
seeded classes; the optimizer is SGD with momentum, whose buffer holds the gradient after the first step. The models are
exported for inference, so that they have no dropout.

Everything is computed by memc and by PyTorch, in f32 and in f64 (`onnx_double.py`). A network with ReLU or max pooling
has a gradient that jumps where an input crosses zero or the maximum passes to another element. Among the millions of
inputs of a step a few always lie closer to that than the rounding errors of f32, so that any two f32 implementations
differ by such jumps, and PyTorch's f32 results from its own f64 ones, now the one more, now the other. In f64 there are
next to none, and both must agree: that is the first test. memc's step is evaluated with numpy there, in one poisoned arena
at the offsets of its plan, or with `--compiled` by its code, which has no library for f64 and takes minutes.

That the jumps make the difference in f32, and no inaccurate kernel, is shown by the second: the same network without
its kinks (`onnx_smooth.py`: SiLU for ReLU and clipping, mean for max pooling), in f32, held against PyTorch in f64.

The error of a tensor is norm(a - b) / norm(b), b being PyTorch's; a cell has that of the worst tensor. Gradients and
running means that are zero but for rounding (a bias before a batch normalization, a key's before a softmax: a norm in f64
below 1e-10 of the largest one's) have no direction to compare: their error is norm(a - b) / (norm of the largest gradient
or mean), in a column of its own.

| column | meaning |
| --- | --- |
| weights | trained tensors: all of PyTorch's parameters, none missed and none more, or the model does not pass |
| f64 by | how memc computed in f64: `arena`, the planned step in numpy, or `code` |
| gradients, weights, statistics, zeros | errors of memc to PyTorch, both in f64; `zeros` with the number of such tensors |
| f32: loss, weights, statistics | errors of memc to PyTorch, both in f32, with kinks |
| together: memc, PyTorch | f32: errors of each to PyTorch in f64, of all gradients as one vector |
| worst: memc, PyTorch | the same, of the gradient that is farthest off |
| smooth: memc, PyTorch | `worst` without kinks; `-` for a model that has none, whose `worst` counts |
| compile, step | CPU seconds of all threads to compile, and of the first step, in f32 |

`passes`: below 1e-4 are every error to PyTorch in f64, and in f32 the errors to PyTorch in f64 of the loss, of the running
statistics and, without kinks, of the gradients. What f32 cannot give to 1e-4, in PyTorch neither, may be twice as far off as
in PyTorch, tensor by tensor. With seeded weights BERT's tokens become more alike from layer to layer: the gradients of its
last queries and keys are 1e-9 of the largest one, differences of numbers that agree to that. ResNet-152 amplifies the
rounding of its first layers through all others, whose statistics are of 98 numbers at the end.

BERT and ViT are 1e-8 off in f64: their files write GELU out, with a square root of 2 that is rounded to f32; memc reads it as
one op, and takes the root as it is.

What batch normalization does to its running statistics: ONNX's `momentum` is the share of the old ones that stays; the
new variance is the unbiased one, as PyTorch has it (ONNX's own training mode takes the biased). Tensors that the exporter
joined for equal contents are trained apart, by both. Each model runs in a process of its own. The times are
of a machine that did other work too.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import numpy as np
from onnx_double import write_double
from onnx_smooth import kinks, write_smooth
from step_errors import TOLERANCE, Array, Arrays, Step, Truth, together

RATE, MOMENTUM = 1 / 64, 0.9
CLASSES = 4
"""Labels are below this: the fewest classes of any model."""
BOTH = ("memc", "torch")
SUFFIX = ".momentum"
"""How memc names the state of a weight that holds its gradient after the first step."""

HEADER = """\
| model | weights | loss | f64 by | gradients | weights | statistics | zeros | f32: loss | weights | statistics \
| together: memc | PyTorch | worst: memc | PyTorch | smooth: memc | PyTorch | compile s | step s | ops | passes |
| --- | --: | --: | --- | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --- |"""


def cpu_seconds() -> float:
    """Of this process, all its threads, and the processes that it has run."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def by_torch(path: Path, feeds: Arrays, labels: Array, double: bool) -> Step:
    import torch
    from torch_onnx import Network

    network = Network.load(path, torch.float64 if double else torch.float32)
    logits = network({name: torch.from_numpy(array) for name, array in feeds.items()})
    loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(labels))
    loss.backward()
    torch.optim.SGD(network.parameters.values(), lr=RATE, momentum=MOMENTUM).step()
    return Step(
        loss.item(),
        {name: w.grad.numpy() for name, w in network.parameters.items() if w.grad is not None},
        {name: w.detach().numpy() for name, w in network.parameters.items()},
        {name: b.numpy() for name, b in network.buffers.items()},
    )


def train() -> Any:
    import memc

    return memc.BuildGradient(optimizer="sgd", momentum=MOMENTUM)


def by_code(path: Path, feeds: Arrays, labels: Array, args: argparse.Namespace, reorder: bool = False) -> Step:
    """memc's compiled step, in the type of the model's floats.

    Seeking another order changes no result, and takes most of the passes' time.
    """
    import memc

    marks: list[float] = []
    compilation = memc.compile(
        path,
        dims={"batch": args.batch},
        train=train(),
        disabled_passes=[] if reorder else ["reorder"],
        progress=lambda stage: marks.append(cpu_seconds()),
    )
    marks.append(cpu_seconds())
    step = compilation.load()
    step.learning_rate = RATE
    start = cpu_seconds()
    loss = step(**feeds, labels=labels)
    facts = {
        "compile": marks[-1] - marks[0],
        "step": cpu_seconds() - start,
        "ops": len(compilation.module.main.ops),
        "arena": compilation.report.arena_bytes,
    }
    return by_names(loss, step.state(), facts)


def by_arena(path: Path, feeds: Arrays, labels: Array, args: argparse.Namespace) -> Step:
    """memc's planned step, evaluated with numpy in one poisoned arena at the planned offsets."""
    import memc
    from memc.ir.evaluate import evaluate_in_arena

    options = {"dims": {"batch": args.batch}, "train": train(), "disabled_passes": ["reorder"]}
    module = memc.compile(path, plan_only=True, **options).module
    results = evaluate_in_arena(module, {**feeds, "labels": labels, "learning_rate": np.float32(RATE)})
    return by_names(float(results.pop("loss")), results, {})


def by_names(loss: float, states: Arrays, facts: dict[str, float]) -> Step:
    gradients = {name.removesuffix(SUFFIX): array for name, array in states.items() if name.endswith(SUFFIX)}
    weights = {name: states[name] for name in gradients}
    others = {name: array for name, array in states.items() if name not in weights and not name.endswith(SUFFIX)}
    return Step(loss, gradients, weights, others, facts)


def measure(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """All numbers of one model's row."""
    from models import select

    (model,) = select([f"training/{name}"])
    path = model.path(args.models, args.cache)
    feeds = model.feeds(args.batch)
    labels = np.random.default_rng(0).integers(0, CLASSES, args.batch)
    truth = Truth(by_torch(path, feeds, labels, double=True))
    row: dict[str, Any] = {"model": name, "weights": len(truth.step.weights)}
    row["zeros"] = len(truth.no_gradient | truth.no_mean)
    row |= in_double(path, feeds, labels, args, truth)
    row |= in_single(path, feeds, labels, args, truth)
    row["smooth"] = without_kinks(path, feeds, labels, args)
    row["memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    smooth = row["smooth"] or row["worst"]
    unmet = [*row["unlike"], *row["forward"]["far"], *smooth["far"]]
    row["good"] = not unmet and max(row["f64"].values()) < TOLERANCE
    return row


def in_double(path: Path, feeds: Arrays, labels: Array, args: argparse.Namespace, truth: Truth) -> dict[str, Any]:
    """memc's errors in f64, and the names of tensors that only one of the two has."""
    wide = {n: a.astype(np.float64) if a.dtype == np.float32 else a for n, a in feeds.items()}
    with tempfile.TemporaryDirectory() as folder:
        run = by_code if args.compiled else by_arena
        mine = run(write_double(path, Path(folder)), wide, labels, args)
    step = truth.step
    unlike = (step.weights.keys() ^ mine.weights.keys()) | (step.statistics.keys() ^ mine.statistics.keys())
    return {"unlike": sorted(unlike), "compiled": args.compiled, "f64": truth.errors(mine, step)}


def in_single(path: Path, feeds: Arrays, labels: Array, args: argparse.Namespace, truth: Truth) -> dict[str, Any]:
    """memc's errors to PyTorch in f32, and those of both to the truth."""
    mine = by_code(path, feeds, labels, args, reorder=True)
    narrow = by_torch(path, feeds, labels, double=False)
    both = {"memc": mine, "torch": narrow}
    return {
        **mine.facts,
        "loss": mine.loss,
        "f32": truth.errors(mine, narrow),
        "together": {key: together(step.gradients, truth.step.gradients) for key, step in both.items()},
        "worst": truth.single(mine, narrow),
        "forward": truth.forward(mine, narrow),
    }


def without_kinks(path: Path, feeds: Arrays, labels: Array, args: argparse.Namespace) -> dict[str, Any] | None:
    """The errors in f32 of both to the truth for the model without kinks; None if it has none."""
    if not kinks(path):
        return None
    with tempfile.TemporaryDirectory() as folder:
        smooth = write_smooth(path, Path(folder))
        truth = Truth(by_torch(smooth, feeds, labels, double=True))
        mine = by_code(smooth, feeds, labels, args)
        return truth.single(mine, by_torch(smooth, feeds, labels, double=False))


def line(row: dict[str, Any]) -> str:
    wide, narrow = row["f64"], row["f32"]
    errors = [wide[k] for k in ("gradients", "weights", "statistics")]
    others = [
        *(narrow[k] for k in ("loss", "weights", "statistics")),
        *row["together"].values(),
        *(row["worst"][k] for k in BOTH),
    ]
    smooth = [f"{row['smooth'][k]:.1e}" for k in BOTH] if row["smooth"] else ["-", "-"]
    cells = [
        row["model"],
        f"{row['weights']}" + (f", {len(row['unlike'])} unlike" if row["unlike"] else ""),
        f"{row['loss']:.4f}",
        "code" if row["compiled"] else "arena",
        *(f"{n:.1e}" for n in errors),
        f"{row['zeros']}: {wide['zeros']:.1e}" if row["zeros"] else "-",
        *(f"{n:.1e}" for n in others),
        *smooth,
        *(f"{row[k]:.1f}" for k in ("compile", "step")),
        f"{row['ops']:,}",
        "yes" if row["good"] else "**no**",
    ]
    return f"| {' | '.join(map(str, cells))} |"


def versions() -> str:
    import onnx
    import torch
    import tvm

    mine = version("memc")
    return (
        f"memc {mine}, PyTorch {torch.__version__}, onnx {onnx.__version__}, TVM {tvm.__version__}, "
        f"numpy {np.__version__}, Python {platform.python_version()}; {platform.machine()}."
    )


def run_apart(name: str) -> dict[str, Any]:
    """`measure` in a process of its own, with the arguments of this one."""
    command = [sys.executable, *sys.argv, "--one", name]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name}: failed with exit code {done.returncode}")
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    title, rest = (__doc__ or "").split("\n", 1)
    parts = [f"# {title.rstrip('.')}", "Written by `benchmarks/training_step.py`:\n" + rest.rstrip(), versions()]
    return "\n\n".join([*parts, summary(rows), "\n".join([HEADER, *map(line, rows)])]) + "\n"


def summary(rows: Sequence[dict[str, Any]]) -> str:
    good = sum(row["good"] for row in rows)
    kinked = [row for row in rows if row["smooth"]]
    mine, torchs = (sum(row["worst"][key] < TOLERANCE for row in kinked) for key in BOTH)
    even = [row["smooth"] or row["worst"] for row in rows]
    met, theirs = (sum(errors[key] < TOLERANCE for errors in even) for key in BOTH)
    ratio = float(np.exp(np.median([np.log(errors["memc"] / errors["torch"]) for errors in even])))
    return (
        f"{good} of {len(rows)} models pass. {len(kinked)} have kinks: with them every f32 gradient is within {TOLERANCE:g} "
        f"of PyTorch's in f64 for {mine} of those, and for {torchs} in PyTorch. Without kinks it is for {met} of all "
        f"{len(rows)}, and for {theirs} in PyTorch; memc's largest error is {ratio:.2f} times PyTorch's (median)."
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="models by name; all by default")
    parser.add_argument("--models", type=Path, required=True, help="folder with training/")
    parser.add_argument("--cache", type=Path, default=Path("build/models"))
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--compiled", action="store_true", help="run compiled code in f64 too")
    parser.add_argument("--json", type=Path, help="write all rows; those there of models not measured now are kept")
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.one, args)))
        return 0
    from models import MODELS

    names = [m.name.split("/")[1] for m in MODELS if m.family == "training"]
    stored = json.loads(args.json.read_text()) if args.json and args.json.exists() else []
    rows = {row["model"]: row for row in stored}
    print(HEADER)
    for name in args.names or names:
        rows[name] = run_apart(name)
        print(line(rows[name]), flush=True)
        ordered = [rows[n] for n in names if n in rows]
        if args.json:
            args.json.write_text(json.dumps(ordered, indent=1) + "\n")
        if args.markdown:
            args.markdown.write_text(markdown(ordered))
    print(summary(list(rows.values())))
    return int(not all(row["good"] for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
