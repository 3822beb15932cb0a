# SPDX-License-Identifier: Apache-2.0
"""memc compile: a model into an artifact, with a summary of its memory."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from memc import driver
from memc.ir.errors import UsageError
from memc.report.terminal_tables import print_compilation
from memc.report.trace import plan_trace

from . import shared_flags
from .console import print_times, progress, set_up_logging, stdout_console, write_text
from .flags_from_options import takes_options


@takes_options()
def compile_model(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="An .onnx or .pt2 model, or .memir text.")],
    output: Annotated[
        Optional[Path], typer.Option("-o", "--output", help="Artifact folder (default: MODEL's name, .memc).")
    ] = None,
    *,
    settings: dict[str, Any],
    json: shared_flags.Json = None,
    trace: Annotated[
        Optional[str],
        typer.Option("--trace", metavar="FILE", help="Write the plan's timeline, copies too, as a Chrome trace."),
    ] = None,
    print_pass_times: shared_flags.PassTimes = False,
    quiet: shared_flags.Quiet = False,
    verbose: shared_flags.Verbose = 0,
    no_color: shared_flags.NoColor = False,
) -> None:
    """Compile a model into an artifact that runs from one planned arena."""
    set_up_logging(verbose, quiet)
    plan_only = settings["plan_only"]
    files = {"--json": json, "--output": str(output) if plan_only else None, "--trace": trace}
    to_stdout = [option for option, file in files.items() if file == "-"]
    if len(to_stdout) > 1:
        raise UsageError(
            f"{' and '.join(f'{option} -' for option in to_stdout)}: only one of them can have standard output"
        )
    destination = None if plan_only else output or Path(Path(model).stem + ".memc")
    with progress(quiet) as report_stage:
        compilation = driver.compile(model, destination, progress=report_stage, **settings)
    if plan_only and output is not None:
        write_text(str(output), str(compilation.module).rstrip("\n"))
    if print_pass_times:
        print_times(compilation.report.pass_seconds)
    if json is not None:
        write_text(json, compilation.report.to_json())
    if trace is not None:
        write_text(trace, json_module.dumps(plan_trace(compilation.module, compilation.report.pipeline)))
    if "-" not in (json, trace) and not quiet:
        where = str(compilation.path) if compilation.path else None
        print_compilation(stdout_console(no_color), model, compilation.report, where)
