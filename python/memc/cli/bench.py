# SPDX-License-Identifier: Apache-2.0
"""memc bench: run an artifact or a model again and again, and say how fast it is."""

from __future__ import annotations

import json as json_module
from typing import Annotated, Any, Optional

import typer

from memc.ir.errors import UsageError
from memc.measure.benchmark import Benchmark, bench
from memc.report.terminal_tables import print_benchmark, print_profile

from . import shared_flags
from .console import progress, set_up_logging, stdout_console, write_text
from .flags_from_options import takes_options
from .pairs import parse_pairs
from .values import parse_inputs, parse_seconds

PROFILED_RUNS = 10

NOT_MEASURED = (
    *("plan_only", "print_ir_after_all", "print_ir_after_change"),
    *("labels", "ignore_index", "check_labels", "seed", "profile"),
)
"""Options of a compilation, and of its training step, that this verb does not have; its own seed is dropout's, too, and its
profile is what it measures."""


Warmup = Annotated[int, typer.Option("--warmup", metavar="N", help="Runs before those that count.")]
Runs = Annotated[int, typer.Option("--runs", metavar="N", help="Runs that count, at least.")]
MinTime = Annotated[
    Optional[str],
    typer.Option("--min-time", metavar="TIME", help="Run on until so much time is measured: 2s, 500ms."),
]
Threads = Annotated[
    Optional[int], typer.Option("--threads", metavar="N", help="Threads of kernels on the CPU (default: all).")
]
ProfiledRuns = Annotated[int, typer.Option("--profiled-runs", metavar="N", help="Runs that take the ops' times.")]
Top = Annotated[Optional[int], typer.Option("--top", metavar="N", help="With --profile: show the N slowest ops alone.")]
Trace = Annotated[
    Optional[str], typer.Option("--trace", metavar="FILE", help="Write a profiled run as a Chrome trace.")
]
SaveProfile = Annotated[
    Optional[str],
    typer.Option(
        "--save-profile", metavar="FILE", help="Write the ops' seconds and the link's rates as plans read them."
    ),
]


@takes_options(but=NOT_MEASURED)
def bench_model(
    model: Annotated[
        str, typer.Argument(metavar="ARTIFACT|MODEL", help="A folder that `memc compile` wrote, or a model to compile.")
    ],
    input: Annotated[
        Optional[list[str]],
        typer.Option("-i", "--input", metavar="NAME=VALUE", help="@file.npy, a number or JSON (default: random)."),
    ] = None,
    seed: shared_flags.Seed = 0,
    warmup: Warmup = 5,
    runs: Runs = 50,
    min_time: MinTime = None,
    threads: Threads = None,
    cuda_graph: shared_flags.CudaGraph = True,
    profile: Annotated[bool, typer.Option("--profile", help="Take the time of each op, too.")] = False,
    profiled_runs: ProfiledRuns = PROFILED_RUNS,
    top: Top = None,
    trace: Trace = None,
    save_profile: SaveProfile = None,
    *,
    settings: dict[str, Any],
    json: shared_flags.Json = None,
    quiet: shared_flags.Quiet = False,
    verbose: shared_flags.Verbose = 0,
    no_color: shared_flags.NoColor = False,
) -> None:
    """Measure how fast an artifact, or a model compiled with the options of `memc compile`, runs; a training step too."""
    set_up_logging(verbose, quiet)
    _require_top(top, profile)
    files = {"--json": json, "--trace": trace, "--save-profile": save_profile}
    shown = not _wants_stdout(files) and not quiet
    given = parse_pairs(input or [], "--input")
    profiled = profile or trace is not None or save_profile is not None
    with progress(quiet) as report_stage:
        found = bench(
            model,
            inputs=lambda specs: parse_inputs(given, {spec.name: spec.type for spec in specs}, seed),
            seed=seed,
            warmup=warmup,
            runs=runs,
            min_seconds=0.0 if min_time is None else parse_seconds(min_time, "--min-time"),
            threads=threads,
            cuda_graph=cuda_graph,
            profiled_runs=profiled_runs if profiled else 0,
            measure_link=save_profile is not None,
            progress=report_stage,
            **settings,
        )
    _write(found, json, trace, save_profile)
    if shown:
        console = stdout_console(no_color)
        print_benchmark(console, model, found)
        if profile and found.profile is not None:
            print_profile(console, found.profile, top)


def _require_top(top: int | None, profile: bool) -> None:
    if top is not None and not profile:
        raise UsageError("--top: expected --profile beside it")
    if top is not None and top < 1:
        raise UsageError(f"--top {top}: expected a number from 1 on")


def _wants_stdout(files: dict[str, str | None]) -> bool:
    """Whether one of the options' files is standard output, which only one of them can have."""
    to_stdout = [option for option, file in files.items() if file == "-"]
    if len(to_stdout) > 1:
        raise UsageError(f"{' - and '.join(to_stdout)} -: only one of them can have standard output")
    return bool(to_stdout)


def _write(found: Benchmark, json: str | None, trace: str | None, save_profile: str | None) -> None:
    if found.profile is not None and trace is not None:
        write_text(trace, json_module.dumps(found.trace()))
    if save_profile is not None:
        write_text(save_profile, found.saved_profile())
    if json is not None:
        write_text(json, found.to_json())
