# SPDX-License-Identifier: Apache-2.0
"""memc estimate: how much GPU memory a framework's job takes."""

from __future__ import annotations

import json as json_module
import re
from typing import Annotated, Any, Optional

import typer
from typer.core import TyperCommand

from memc.estimation import Estimate
from memc.estimation import estimate as make_estimate
from memc.ir.errors import BudgetError, UsageError
from memc.report.estimate_table import print_estimate

from . import shared_flags
from .console import error_line, set_up_logging, stdout_console, write_text
from .pairs import parse_dims
from .values import size_or_share

File = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="A script (.py), recorded events (.json[.gz]), a snapshot (.pickle), .csv, .onnx, an artifact.",
    ),
]
Optimizer = Annotated[
    Optional[str], typer.Option("--optimizer", metavar="NAME", help="With --train: sgd (default), momentum, adam, ...")
]
Framework = Annotated[
    Optional[str], typer.Option("--framework", metavar="NAME", help="That runs the model: pytorch-2.11 (default).")
]
Dims = Annotated[
    Optional[list[str]], typer.Option("--dim", metavar="NAME=N", help="Of a model's open dimension (repeatable).")
]
FindBatch = Annotated[
    Optional[str],
    typer.Option("--find-batch", metavar="NAME=LEAST..MOST", help="Find the largest that fits: batch=8..1024."),
]
Precision = Annotated[
    str, typer.Option("--precision", metavar="NAME", help="Of a model: f32 (default), bf16, amp-bf16 or amp-f16.")
]
Accumulate = Annotated[
    int, typer.Option("--accumulate", metavar="N", help="Batches whose gradients are added up in a step.")
]
Checkpoint = Annotated[
    Optional[str],
    typer.Option("--checkpoint", metavar="PATTERN", help="Modules that are recomputed in training: '*.layer.*'."),
]

ChannelsLast = Annotated[bool, typer.Option("--channels-last", help="A model of images has this layout.")]
CudnnBenchmark = Annotated[bool, typer.Option("--cudnn-benchmark", help="cuDNN tries its engines (cudnn.benchmark).")]

PlanFile = Annotated[
    Optional[str],
    typer.Option(
        "--plan", metavar="FILE", help="Write addresses for a step's blocks, for planned memory: step.plan.json."
    ),
]

Steps = Annotated[
    Optional[int], typer.Option("--steps", min=0, help="Of a script's optimizer (3); 0: run it to its end.")
]
Python = Annotated[
    Optional[str], typer.Option("--python", metavar="PATH", help="The interpreter with PyTorch, for a script.")
]

WorldSize = Annotated[
    int, typer.Option("--world-size", min=1, metavar="N", help="Ranks of a distributed job, one of which a script is.")
]
Rank = Annotated[int, typer.Option("--rank", min=0, metavar="R", help="Of a script, in a distributed job (0).")]
Timeout = Annotated[
    Optional[float], typer.Option("--timeout", metavar="SECONDS", help="After which a script is given up (600).")
]
Assumed = Annotated[
    Optional[list[str]],
    typer.Option("--assume", metavar="NAME=VALUE", help="Where a script's data decides: nonzero=0.5, all=false, ..."),
]

GpuName = Annotated[Optional[str], typer.Option("--gpu", metavar="NAME", help="h200, h100, a100 or rtx4090.")]

Memory = Annotated[
    Optional[str],
    typer.Option("--memory", metavar="SIZE", help="Of the device, that the job may take: 24GiB, or 50% of --gpu's."),
]

AllocConf = Annotated[
    Optional[str],
    typer.Option("--alloc-conf", metavar="TEXT", help="As PYTORCH_CUDA_ALLOC_CONF, instead of the recording's."),
]

AllocatorName = Annotated[
    Optional[str], typer.Option("--allocator", metavar="NAME", help="pytorch, tensorflow, xla, mxnet or cupy.")
]

ZeroGrad = Annotated[
    str, typer.Option("--zero-grad", metavar="WHEN", help="Gradients are dropped `first` in a step, or at its `end`.")
]


class COMMAND(TyperCommand):
    """Arguments after two dashes are a script's, and no others."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        ctx.obj = args[at + 1 :]
        ctx.allow_extra_args = True
        rest: list[str] = super().parse_args(ctx, args[:at])
        if rest:
            script = "; arguments of the script come after two dashes" if ctx.params["file"].endswith(".py") else ""
            raise UsageError(f"expected one FILE, got {' '.join(rest)} besides{script}")
        return rest

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- ARGUMENTS]"]


def estimate(
    context: typer.Context,
    file: File,
    gpu: GpuName = None,
    memory: Memory = None,
    alloc_conf: AllocConf = None,
    allocator: AllocatorName = None,
    device: Annotated[Optional[int], typer.Option("--device", min=0, help="Of a snapshot with several.")] = None,
    train: Annotated[bool, typer.Option("--train", help="Train the model, instead of running it only.")] = False,
    optimizer: Optimizer = None,
    dim: Dims = None,
    framework: Framework = None,
    tf32: Annotated[bool, typer.Option("--tf32/--no-tf32", help="Convolutions may use TF32 (default).")] = True,
    zero_grad: ZeroGrad = "first",
    precision: Precision = "f32",
    accumulate: Accumulate = 1,
    checkpoint: Checkpoint = None,
    channels_last: ChannelsLast = False,
    cudnn_benchmark: CudnnBenchmark = False,
    find_batch: FindBatch = None,
    plan: PlanFile = None,
    steps: Steps = None,
    python: Python = None,
    world_size: WorldSize = 1,
    rank: Rank = 0,
    timeout: Timeout = None,
    assume: Assumed = None,
    json: shared_flags.Json = None,
    no_color: shared_flags.NoColor = False,
    quiet: shared_flags.Quiet = False,
    verbose: shared_flags.Verbose = 0,
) -> int:
    """Tell how much GPU memory a framework's job takes, and whether it fits."""
    set_up_logging(verbose, quiet)
    found = make_estimate(
        file,
        gpu=gpu,
        memory=None if memory is None else size_or_share(memory),
        alloc_conf=alloc_conf,
        allocator=allocator,
        device=device,
        train=train,
        optimizer=optimizer,
        dims=parse_dims(dim) if dim else None,
        framework=framework,
        tf32=tf32,
        zero_grad=zero_grad,
        precision=precision,
        accumulate=accumulate,
        checkpoint=checkpoint,
        channels_last=channels_last,
        cudnn_benchmark=cudnn_benchmark,
        find_batch=None if find_batch is None else _batches(find_batch),
        plan=plan,
        world_size=world_size,
        rank=rank,
        **_of_script(steps, python, context.obj, timeout, assume, verbose > 0),
    )
    return _told(found, json, quiet, no_color)


def _of_script(
    steps: int | None,
    python: str | None,
    arguments: list[str] | None,
    timeout: float | None,
    assume: list[str] | None,
    show: bool,
) -> dict[str, Any]:
    """How a script runs."""
    told = {"steps": steps, "python": python, "arguments": arguments or (), "timeout": timeout, "show": show}
    return {**told, "assume": _assumed(assume or [])}


def _assumed(pairs: list[str]) -> dict[str, object]:
    """Numbers, truth values and words by name."""
    found: dict[str, object] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name or name in found:
            raise UsageError(f"--assume {pair}: expected NAME=VALUE, each name once, such as nonzero=0.5")
        try:
            found[name] = json_module.loads(text)
        except ValueError:
            found[name] = text
    return found


def _batches(text: str) -> tuple[str, int, int]:
    match = re.fullmatch(r"(.+)=(\d{1,9})\.\.(\d{1,9})", text, re.ASCII)
    if match is None:
        raise UsageError(f"--find-batch {text}: expected NAME=LEAST..MOST, such as batch=8..1024")
    return match.group(1), int(match.group(2)), int(match.group(3))


def _told(found: Estimate, json: str | None, quiet: bool, no_color: bool) -> int:
    """The exit code, once the estimate is written. What does not fit is told in one line, as errors are."""
    if json is not None:
        write_text(json, json_module.dumps(found.to_dict()))
    if json != "-" and not quiet:
        print_estimate(stdout_console(no_color), found)
    if found.fits is not False:
        return 0
    least = f"the job takes {found.device_bytes:,} bytes of the device where memory suffices"
    ran_out = found.out_of_memory
    if ran_out is not None:
        op = f" at {ran_out.op}" if ran_out.op else ""
        least = f"out of memory at event {ran_out.event}{op}, asking for {ran_out.requested_bytes:,} bytes; {least}"
    enough = "the memory fraction does" if found.memory_bytes is None else f"{found.memory_bytes:,} bytes of memory do"
    error_line(f"{found.source}: {enough} not suffice: {least}")
    return BudgetError.exit_code
