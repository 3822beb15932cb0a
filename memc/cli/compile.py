# SPDX-License-Identifier: Apache-2.0
"""memc compile: a model into an artifact, with a summary of its memory."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Optional

import typer
from rich.console import Console
from rich.table import Table

from memc import driver
from memc.ir.errors import UsageError
from memc.ir.sizes import format_size, parse_size
from memc.passes.build_gradient import LOSSES
from memc.passes.mirror import POLICIES
from memc.report import Report

from . import options
from .console import progress, set_up_logging, stdout_console, write_text
from .values import parse_bindings, parse_dims, parse_shapes, parse_training


def compile_model(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="An .onnx model, or .memir text.")],
    output: Annotated[
        Optional[Path], typer.Option("-o", "--output", help="Artifact folder (default: MODEL's name, .memc).")
    ] = None,
    target: options.TargetName = "llvm",
    arch: options.Arch = None,
    mcpu: options.Mcpu = None,
    opt_level: options.OptLevel = 2,
    dim: options.Dims = None,
    input_shapes: options.InputShapes = None,
    bind: options.Bind = None,
    pass_pipeline: options.Pipeline = None,
    disabled_pass: Annotated[
        Optional[str], typer.Option("--disabled-pass", metavar="A,B", help="Passes to leave out.")
    ] = None,
    memory_budget: Annotated[
        Optional[str],
        typer.Option(
            "--memory-budget", metavar="SIZE", help="Bytes of the peak to keep, by recomputation from -O2 on: 4GiB."
        ),
    ] = None,
    train: Annotated[bool, typer.Option("--train", help="Make a training step of the model.")] = False,
    loss: Annotated[
        Optional[str], typer.Option("--loss", help=f"With --train: {', '.join(LOSSES)} (default: the first).")
    ] = None,
    optimizer: Annotated[
        Optional[str], typer.Option("--optimizer", help="With --train: sgd (default), adam, adamw; none for gradients.")
    ] = None,
    optimizer_options: Annotated[
        Optional[str],
        typer.Option("--optimizer-options", metavar="OPTIONS", help="With --train: 'momentum=0.9 weight-decay=1e-4'."),
    ] = None,
    clip_norm: Annotated[
        Optional[float], typer.Option("--clip-norm", help="With --train: largest norm of all gradients together.")
    ] = None,
    accumulate: Annotated[
        Optional[int], typer.Option("--accumulate", metavar="N", help="With --train: micro-batches to one update.")
    ] = None,
    freeze: Annotated[
        Optional[list[str]],
        typer.Option("--freeze", metavar="PATTERN", help="With --train: weights to leave alone (repeatable)."),
    ] = None,
    no_dropout: Annotated[
        bool, typer.Option("--no-dropout", help="With --train: leave out the model's dropout.")
    ] = False,
    seed: Annotated[
        Optional[int], typer.Option("--seed", help="With --train: seed of dropout's masks (default: 0).")
    ] = None,
    mirror: Annotated[
        Optional[str],
        typer.Option(
            "--mirror", help=f"With --train: what to compute anew: {', '.join(POLICIES)} (default: the first)."
        ),
    ] = None,
    alignment: Annotated[
        Optional[int], typer.Option("--alignment", help="Bytes that offsets are multiples of.")
    ] = None,
    kernels: options.Kernels = "auto",
    plan_only: Annotated[
        bool, typer.Option("--plan-only", help="Stop after the passes; -o takes the planned IR as text.")
    ] = False,
    json: options.Json = None,
    print_ir_after_all: options.PrintAfterAll = False,
    print_ir_after_change: options.PrintAfterChange = False,
    print_pass_times: options.PassTimes = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
    no_color: options.NoColor = False,
) -> None:
    """Compile a model into an artifact that runs from one planned arena."""
    set_up_logging(verbose, quiet)
    if plan_only and json == "-" and str(output) == "-":
        raise UsageError("--json - and --output -: only one of them can have standard output")
    given = {
        "loss": loss,
        "optimizer": optimizer,
        "clip_norm": clip_norm,
        "accumulate": accumulate,
        "frozen": freeze,
        "dropout": False if no_dropout else None,
        "seed": seed,
        "mirror": mirror,
    }
    training = parse_training(train, given, optimizer_options)
    destination = None if plan_only else output or Path(Path(model).stem + ".memc")
    with progress(quiet) as report_stage:
        compilation = driver.compile(
            model,
            destination,
            progress=report_stage,
            target=target,
            arch=arch,
            mcpu=mcpu,
            opt_level=opt_level,
            dims=parse_dims(dim or []),
            input_shapes=parse_shapes(input_shapes),
            bind=parse_bindings(bind or []),
            alignment=alignment,
            train=training,
            kernels=kernels,
            pass_pipeline=pass_pipeline,
            disabled_passes=tuple(name for name in (disabled_pass or "").split(",") if name),
            memory_budget=None if memory_budget is None else parse_size(memory_budget),
            plan_only=plan_only,
            print_ir_after_all=print_ir_after_all,
            print_ir_after_change=print_ir_after_change,
        )
    if plan_only and output is not None:
        from memc.ir.printer import print_module

        write_text(str(output), print_module(compilation.module).rstrip("\n"))
    if print_pass_times:
        print_times(compilation.report.pass_seconds)
    if json is not None:
        write_text(json, compilation.report.to_json())
    if json != "-" and not quiet:
        where = str(compilation.path) if compilation.path else None
        print_summary(stdout_console(no_color), model, compilation.report, where)


def print_times(timings: list[tuple[str, float]]) -> None:
    """Seconds per pass on stderr."""
    for name, seconds in timings:
        print(f"{seconds:9.4f} s  {name}", file=sys.stderr)


def print_summary(console: Console, model: str, report: Report, path: str | None) -> None:
    """The summary table of a compilation."""
    console.print(f"{Path(model).name}: {report.target}, -O{report.opt_level}", soft_wrap=True, markup=False)
    table = Table(show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column(justify="right")

    def row(label: str, nbytes: int, note: str = "") -> None:
        table.add_row(label, f"{nbytes:,} B", note or format_size(nbytes))

    row("unoptimized", report.unoptimized_bytes)
    row("arena", report.arena_bytes)
    row("lower bound", report.lower_bound_bytes)
    table.add_row("gap", f"{report.gap_percent:.2f} %", "of the lower bound")
    if report.order_gain_percent is not None:
        table.add_row("order gain", f"{report.order_gain_percent:.2f} %", "of the given order")
    row("weights", report.weights_bytes)
    row("inputs and outputs", report.io_bytes)
    row("peak", report.peak_bytes)
    if report.recomputation is not None:
        found = report.recomputation
        row("peak, no op run again", found.peak_bytes_without)
        table.add_row("ops run again", f"{found.ops}", f"{found.added_percent:.2f} % more time")
    table.add_section()
    table.add_row("ops", f"{report.ops}", f"{report.kernels} kernels" if report.kernels else "")
    for name, seconds in report.seconds.items():
        table.add_row(name, f"{seconds:.2f} s", "")
    if report.largest:
        table.add_section()
    for tensor in report.largest:
        table.add_row(f"%{tensor.name}", tensor.type, format_size(tensor.bytes))
    console.print(table)
    if path:
        console.print(f"wrote {path}", soft_wrap=True)
