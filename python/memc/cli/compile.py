# SPDX-License-Identifier: Apache-2.0
"""memc compile: a model into an artifact, with a summary of its memory."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Optional

import typer
from rich.console import Console
from rich.table import Table

from memc import driver
from memc.ir.errors import UsageError
from memc.ir.sizes import format_size
from memc.report.compilation import Report

from . import options
from .compile_options import takes_options
from .console import progress, set_up_logging, stdout_console, write_text


@takes_options()
def compile_model(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="An .onnx model, or .memir text.")],
    output: Annotated[
        Optional[Path], typer.Option("-o", "--output", help="Artifact folder (default: MODEL's name, .memc).")
    ] = None,
    *,
    settings: dict[str, Any],
    json: options.Json = None,
    print_pass_times: options.PassTimes = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
    no_color: options.NoColor = False,
) -> None:
    """Compile a model into an artifact that runs from one planned arena."""
    set_up_logging(verbose, quiet)
    plan_only = settings["plan_only"]
    if plan_only and json == "-" and str(output) == "-":
        raise UsageError("--json - and --output -: only one of them can have standard output")
    destination = None if plan_only else output or Path(Path(model).stem + ".memc")
    with progress(quiet) as report_stage:
        compilation = driver.compile(model, destination, progress=report_stage, **settings)
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
    if report.host_bytes:
        row("host", report.host_bytes)
        table.add_row(
            "host gap", f"{report.host_gap_percent:.2f} %", f"of {format_size(report.host_lower_bound_bytes)}"
        )
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
