# SPDX-License-Identifier: Apache-2.0
"""memc plan: addresses for tensors, and an order for graphs, from files."""

from __future__ import annotations

import json
from typing import Annotated, Any, Optional

import typer

from memc.ir.errors import UsageError
from memc.ir.sizes import parse_size
from memc.planning import CapacityError, Plan
from memc.planning import plan as make_plan
from memc.planning.csv_file import plan_csv
from memc.report.terminal_tables import print_plan
from memc.solvers.order import order_solver_names
from memc.solvers.placement import solver_names

from . import shared_flags
from .console import progress, set_up_logging, stdout_console, write_text
from .flags_from_options import takes_options
from .values import parse_seconds, size_or_share

Capacity = Annotated[
    Optional[list[str]],
    typer.Option(
        "--capacity",
        metavar="SIZE",
        help="4GiB, or 50% of all tensors' bytes; NAME=SIZE for one space (repeatable).",
    ),
]
Alignment = Annotated[Optional[str], typer.Option("--alignment", metavar="SIZE", help="Of every offset.")]


@takes_options("dims", "input_shapes", "bind")
def plan(
    file: Annotated[
        Optional[str], typer.Argument(metavar="FILE", help="A .csv problem, a .json[.gz] graph, .memir or .onnx.")
    ] = None,
    output: Annotated[
        Optional[str], typer.Option("-o", "--output", "--csv", metavar="FILE", help="Offsets as CSV; - for stdout.")
    ] = None,
    capacity: Capacity = None,
    alignment: Alignment = None,
    reorder: Annotated[bool, typer.Option("--reorder", help="Choose the order of a graph's ops, too.")] = False,
    solver: Annotated[str, typer.Option("--solver", help="Of addresses.")] = "auto",
    order_solver: Annotated[
        Optional[str], typer.Option("--order-solver", help="Of the order, with --reorder; auto by default.")
    ] = None,
    time_limit: Annotated[
        Optional[str], typer.Option("--time-limit", metavar="TIME", help="For the search: 2s, 500ms or 1.5m.")
    ] = None,
    threads: Annotated[Optional[int], typer.Option("--threads", metavar="N", min=1, help="For the search.")] = None,
    *,
    settings: dict[str, Any],
    full: Annotated[bool, typer.Option("--full", help="Order and offsets in the JSON.")] = False,
    json_path: shared_flags.Json = None,
    list_solvers: Annotated[bool, typer.Option("--list-solvers", help="List the solvers.")] = False,
    no_color: shared_flags.NoColor = False,
    quiet: shared_flags.Quiet = False,
    verbose: shared_flags.Verbose = 0,
) -> None:
    """Plan memory: give every tensor of a file an address so that the peak is low."""
    set_up_logging(verbose, quiet)
    if list_solvers:
        print(f"addresses: {', '.join(solver_names())}\norder: {', '.join(order_solver_names())}")
        return
    if file is None:
        raise UsageError("missing FILE: give a .csv problem, a .json graph, .memir text or an .onnx model")
    if order_solver is not None and not reorder:
        raise UsageError("--order-solver: expected --reorder with it, without which the order is kept")
    _require_files(output, json_path, full)
    with progress(quiet) as stage:
        stage("plan")
        result = _planned(
            file,
            json_path,
            capacity=_capacity(capacity or []),
            alignment=None if alignment is None else parse_size(alignment),
            reorder=reorder,
            solver=solver,
            order_solver=order_solver or "auto",
            time_limit=None if time_limit is None else parse_seconds(time_limit, "--time-limit"),
            threads=threads,
            **settings,
        )
    if output is not None:
        write_text(output, plan_csv(result.tensors, result.offsets))
    if json_path is not None:
        write_text(json_path, json.dumps(result.to_dict(full=full)))
    if "-" not in (output, json_path) and not quiet:
        print_plan(stdout_console(no_color), result)


def _planned(file: str, json_path: str | None, **arguments: Any) -> Plan:
    """The plan. What does not fit is written as JSON, and raised."""
    try:
        return make_plan(file, **arguments)
    except CapacityError as error:
        if json_path is not None:
            write_text(json_path, json.dumps(error.to_dict()))
        raise


def _require_files(output: str | None, json_path: str | None, full: bool) -> None:
    if json_path == "-" and output == "-":
        raise UsageError("--json and --csv: expected one of them on standard output, got both")
    if full and json_path is None:
        raise UsageError("--full: expected --json FILE with it, to which it adds order and offsets")


def _capacity(items: list[str]) -> int | str | dict[str, int | str] | None:
    if len(items) == 1 and "=" not in items[0]:
        return size_or_share(items[0])
    sizes: dict[str, int | str] = {}
    for item in items:
        name, found, size = item.rpartition("=")
        if not found or not name or name in sizes:
            raise UsageError(f"--capacity {item}: expected NAME=SIZE, once for each space")
        sizes[name] = size_or_share(size)
    return sizes or None
