# SPDX-License-Identifier: Apache-2.0
"""Options that several verbs share, spelled once."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from memc.passes.training.losses import LABEL_KINDS, LOSSES
from memc.passes.training.mirror import POLICIES

Dims = Annotated[
    Optional[list[str]], typer.Option("--dim", metavar="NAME=N", help="Bind a symbolic dimension (repeatable).")
]
InputShapes = Annotated[
    Optional[str],
    typer.Option("--input-shapes", metavar="SHAPES", help='Shapes by input name: "x:[1,3,224,224] y:[1,2]".'),
]
Bind = Annotated[
    Optional[list[str]],
    typer.Option("--bind", metavar="NAME=VALUE", help="Make an input a constant: a number, JSON list or @file.npy."),
]
TargetName = Annotated[str, typer.Option("--target", help="llvm (CPU) or cuda.")]
Arch = Annotated[Optional[str], typer.Option("--arch", help="GPU architecture for cuda, for example sm_90.")]
Mcpu = Annotated[Optional[str], typer.Option("--mcpu", help="CPU to compile for (default: native).")]
OptLevel = Annotated[int, typer.Option("-O", "--opt-level", metavar="N", help="Optimization level, 0 to 3.")]
Kernels = Annotated[
    str,
    typer.Option(
        "--kernels", help="auto: library kernels unless a small op's raises the peak; library: always; or generated."
    ),
]
Precision = Annotated[
    str,
    typer.Option(
        "--precision",
        help="f32: strict; tf32: products and convolutions on CUDA with factors rounded to TF32; f16, bf16: in half "
        "precision, with what lies between them.",
    ),
]
Workspace = Annotated[
    str,
    typer.Option(
        "--workspace",
        metavar="none|free|SIZE",
        help="What library kernels may use beyond their least: none; free: what lies free in the arena, from -O2 on; or "
        "SIZE, even if the arena grows.",
    ),
]
Pipeline = Annotated[
    Optional[str],
    typer.Option(
        "-p", "--pass-pipeline", metavar="PASSES", help="Passes to run, e.g. 'in-place,share{strategy=color}'."
    ),
]
DisabledPasses = Annotated[Optional[str], typer.Option("--disabled-pass", metavar="A,B", help="Passes to leave out.")]
MemoryBudget = Annotated[
    Optional[str],
    typer.Option(
        "--memory-budget", metavar="SIZE", help="Bytes of the peak to keep, by recomputation from -O2 on: 4GiB."
    ),
]
Alignment = Annotated[Optional[int], typer.Option("--alignment", help="Bytes that offsets are multiples of.")]
Train = Annotated[bool, typer.Option("--train", help="Make a training step of the model.")]
Loss = Annotated[Optional[str], typer.Option("--loss", help=f"With --train: {', '.join(LOSSES)} (default: the first).")]
Labels = Annotated[
    Optional[str],
    typer.Option(
        "--labels", help=f"With --train: {' or '.join(LABEL_KINDS)} of softmax-cross-entropy (default: the first)."
    ),
]
IgnoreIndex = Annotated[
    Optional[int],
    typer.Option("--ignore-index", metavar="N", help="With --train: the label that does not count (default: -100)."),
]
CheckLabels = Annotated[
    bool,
    typer.Option("--check-labels", help="With --train: check labels on the device too, when the loss is read."),
]
OptimizerName = Annotated[
    Optional[str], typer.Option("--optimizer", help="With --train: sgd (default), adam, adamw; none for gradients.")
]
OptimizerOptions = Annotated[
    Optional[str],
    typer.Option("--optimizer-options", metavar="OPTIONS", help="With --train: 'momentum=0.9 weight-decay=1e-4'."),
]
ClipNorm = Annotated[
    Optional[float], typer.Option("--clip-norm", help="With --train: largest norm of all gradients together.")
]
LossScale = Annotated[
    Optional[str],
    typer.Option(
        "--loss-scale",
        metavar="dynamic|NUMBER",
        help="With --train: what the loss is multiplied by for gradients (f16: dynamic; else none).",
    ),
]
Accumulate = Annotated[
    Optional[int], typer.Option("--accumulate", metavar="N", help="With --train: micro-batches to one update.")
]
Freeze = Annotated[
    Optional[list[str]],
    typer.Option("--freeze", metavar="PATTERN", help="With --train: weights to leave alone (repeatable)."),
]
NoDropout = Annotated[bool, typer.Option("--no-dropout", help="With --train: leave out the model's dropout.")]
Mirror = Annotated[
    Optional[str],
    typer.Option("--mirror", help=f"With --train: what to compute anew: {', '.join(POLICIES)} (default: the first)."),
]
CudaGraph = Annotated[
    bool, typer.Option("--cuda-graph/--no-cuda-graph", help="On CUDA, launch each run as one graph (default).")
]
Json = Annotated[Optional[str], typer.Option("--json", metavar="FILE", help="Write the results as JSON; - for stdout.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Errors only.")]
Verbose = Annotated[int, typer.Option("-v", "--verbose", count=True, help="More log output (repeatable).")]
NoColor = Annotated[bool, typer.Option("--no-color", help="No colour in the output.")]
PrintAfterAll = Annotated[bool, typer.Option("--print-ir-after-all", help="Print the IR after each pass (stderr).")]
PrintAfterChange = Annotated[
    bool, typer.Option("--print-ir-after-change", help="Print the IR after each pass that changed it (stderr).")
]
PassTimes = Annotated[bool, typer.Option("--print-pass-times", help="Print the seconds of each pass (stderr).")]
Rtol = Annotated[float, typer.Option("--rtol", help="Relative tolerance, per element.")]
Atol = Annotated[float, typer.Option("--atol", help="Absolute tolerance, per element.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of generated inputs.")]
