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
from memc.ir.sizes import format_size
from memc.report.compilation import Report

from . import options
from .console import progress, set_up_logging, stdout_console, write_text
from .values import parse_options


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
    disabled_pass: options.DisabledPasses = None,
    memory_budget: options.MemoryBudget = None,
    train: options.Train = False,
    loss: options.Loss = None,
    labels: options.Labels = None,
    ignore_index: options.IgnoreIndex = None,
    check_labels: options.CheckLabels = False,
    optimizer: options.OptimizerName = None,
    optimizer_options: options.OptimizerOptions = None,
    clip_norm: options.ClipNorm = None,
    loss_scale: options.LossScale = None,
    accumulate: options.Accumulate = None,
    freeze: options.Freeze = None,
    no_dropout: options.NoDropout = False,
    seed: Annotated[
        Optional[int], typer.Option("--seed", help="With --train: seed of dropout's masks (default: 0).")
    ] = None,
    mirror: options.Mirror = None,
    alignment: options.Alignment = None,
    kernels: options.Kernels = "auto",
    precision: options.Precision = "f32",
    workspace: options.Workspace = "free",
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
    settings = parse_options(
        target=target,
        arch=arch,
        mcpu=mcpu,
        opt_level=opt_level,
        dim=dim,
        input_shapes=input_shapes,
        bind=bind,
        pass_pipeline=pass_pipeline,
        disabled_pass=disabled_pass,
        memory_budget=memory_budget,
        train=train,
        loss=loss,
        labels=labels,
        ignore_index=ignore_index,
        check_labels=check_labels,
        optimizer=optimizer,
        optimizer_options=optimizer_options,
        clip_norm=clip_norm,
        loss_scale=loss_scale,
        accumulate=accumulate,
        freeze=freeze,
        no_dropout=no_dropout,
        seed=seed,
        mirror=mirror,
        alignment=alignment,
        kernels=kernels,
        precision=precision,
        workspace=workspace,
    )
    destination = None if plan_only else output or Path(Path(model).stem + ".memc")
    with progress(quiet) as report_stage:
        compilation = driver.compile(
            model,
            destination,
            progress=report_stage,
            plan_only=plan_only,
            print_ir_after_all=print_ir_after_all,
            print_ir_after_change=print_ir_after_change,
            **settings,
        )
    if plan_only and output is not None:
        write_text(str(output), str(compilation.module).rstrip("\n"))
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
    if report.training is not None:
        console.print(f"loss: {report.training.loss}, {report.training.of}", soft_wrap=True, markup=False)
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
    if report.workspace_bytes:
        row("largest workspace", report.workspace_bytes)
    row("weights", report.weights_bytes)
    row("inputs and outputs", report.io_bytes)
    row("peak", report.peak_bytes)
    if report.recomputation is not None:
        found = report.recomputation
        row("peak, no recomputation", found.peak_bytes_without)
        table.add_row("ops recomputed", f"{found.ops}", f"{found.added_percent:.2f} % more time")
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
