# SPDX-License-Identifier: Apache-2.0
"""memc report: pictures of plans, as a page and as files for others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from memc.ir.errors import UsageError
from memc.picture.outputs import write_kind, write_page
from memc.picture.sources import read_subject

from . import shared_flags
from .console import progress, set_up_logging
from .flags_from_options import takes_options

NOT_DRAWN = ("plan_only", "print_ir_after_all", "print_ir_after_change")
"""Options of a compilation that this verb does not have: it only plans."""

Output = Annotated[
    Optional[str],
    typer.Option("-o", "--output", metavar="FILE", help="The page (default: SOURCE's name, .html)."),
]
Diff = Annotated[
    Optional[str],
    typer.Option("--diff", metavar="OTHER", help="Another plan, below on the same axis, and what differs."),
]
Title = Annotated[Optional[str], typer.Option("--title", metavar="TEXT", help="Of the page (default: SOURCE's name).")]
Device = Annotated[
    Optional[int], typer.Option("--device", metavar="N", min=0, help="Of a memory snapshot with several.")
]
OpTimes = Annotated[
    Optional[str],
    typer.Option("--op-times", metavar="FILE", help="Measured times of ops, of memc bench --save-profile."),
]
Svg = Annotated[Optional[str], typer.Option("--svg", metavar="FILE", help="Write addresses over time as SVG.")]
Png = Annotated[
    Optional[str], typer.Option("--png", metavar="FILE", help="Write addresses over time as PNG; needs memc[report].")
]
Snapshot = Annotated[
    Optional[str],
    typer.Option("--snapshot", metavar="FILE", help="Write a memory snapshot that PyTorch's viewer shows."),
]
Onnx = Annotated[
    Optional[str],
    typer.Option(
        "--onnx", metavar="FILE", help="Write the .onnx model with the plan in its nodes' metadata, for Netron."
    ),
]


@takes_options(but=NOT_DRAWN)
def report(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="An artifact, an .onnx or .pt2 model, .memir text, a .csv problem, a .json graph, or PyTorch's .pickle.",
        ),
    ],
    output: Output = None,
    diff: Diff = None,
    title: Title = None,
    device: Device = None,
    op_times: OpTimes = None,
    svg: Svg = None,
    png: Png = None,
    snapshot: Snapshot = None,
    onnx: Onnx = None,
    *,
    settings: dict[str, Any],
    quiet: shared_flags.Quiet = False,
    verbose: shared_flags.Verbose = 0,
) -> None:
    """Draw a plan: one page, which opens without a network, that shows where every byte lies and why."""
    set_up_logging(verbose, quiet)
    kinds = {".svg": svg, ".png": png, ".pickle": snapshot, ".onnx": onnx}
    others = {kind: file for kind, file in kinds.items() if file is not None}
    page = output or (None if others and diff is None else f"{_stem(source)}.html")
    _require(source, page, others)
    with progress(quiet) as stage:
        subject = read_subject(source, title=title, device=device, op_times=op_times, progress=stage, options=settings)
        other = None if diff is None else read_subject(diff, progress=stage, options=settings).picture
        stage("draw")
        for kind, file in others.items():
            write_kind(kind, file, subject)
        if page is not None:
            write_page(page, subject.picture, other)
    if not quiet:
        for file in filter(None, (*others.values(), page)):
            print(f"wrote {file}")


def _stem(source: str) -> str:
    """The source's name without folders and ending."""
    name = Path(source).name
    return name.removesuffix(".gz").rpartition(".")[0] or name or "report"


def _require(source: str, page: str | None, others: dict[str, str]) -> None:
    """Raise UsageError for files that would be written over one another, or over the source."""
    files = [*others.values(), *([] if page is None else [page])]
    if "-" in files:
        raise UsageError("a report is written to files: expected a name, got -")
    places = [Path(file).resolve() for file in files]
    if len(set(places)) < len(places):
        raise UsageError(f"{' and '.join(files)}: expected files that differ")
    if Path(source).resolve() in places:
        raise UsageError(f"{source}: is read, and cannot be written to; choose another name")
