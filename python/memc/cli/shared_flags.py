# SPDX-License-Identifier: Apache-2.0
"""Flags that several verbs share, besides those of a compilation."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

CudaGraph = Annotated[
    bool, typer.Option("--cuda-graph/--no-cuda-graph", help="On CUDA, launch each run as one graph (default).")
]
Json = Annotated[Optional[str], typer.Option("--json", metavar="FILE", help="Write the results as JSON; - for stdout.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Errors only.")]
Verbose = Annotated[int, typer.Option("-v", "--verbose", count=True, help="More log output (repeatable).")]
NoColor = Annotated[bool, typer.Option("--no-color", help="No colour in the output.")]
PassTimes = Annotated[bool, typer.Option("--print-pass-times", help="Print the seconds of each pass (stderr).")]
Rtol = Annotated[float, typer.Option("--rtol", help="Relative tolerance, per element.")]
Atol = Annotated[float, typer.Option("--atol", help="Absolute tolerance, per element.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of generated inputs.")]
