# SPDX-License-Identifier: Apache-2.0
"""memc run: run an artifact on arrays from files."""

from __future__ import annotations

import json as json_module
import sys
from typing import Annotated, Optional, TextIO

import numpy as np
import typer

from memc.ir.core import Array
from memc.ir.errors import CheckError, UsageError
from memc.ir.sizes import format_size
from memc.measure.compare import compare

from . import shared_flags
from .console import set_up_logging, write_text
from .pairs import parse_pairs
from .values import load_array, outputs_target, parse_tensor, require_known


def run(
    artifact: Annotated[str, typer.Argument(metavar="ARTIFACT", help="A folder that `memc compile` wrote.")],
    input: Annotated[
        Optional[list[str]],
        typer.Option("-i", "--input", metavar="NAME=VALUE", help="@file.npy, 2x3xf32=1, a number, JSON, or random."),
    ] = None,
    output: Annotated[
        Optional[list[str]], typer.Option("--output", metavar="[NAME=]FILE", help="Save an output as .npy.")
    ] = None,
    expected: Annotated[
        Optional[list[str]], typer.Option("--expected", metavar="NAME=@FILE", help="Compare an output with an array.")
    ] = None,
    rtol: shared_flags.Rtol = 1e-3,
    atol: shared_flags.Atol = 1e-5,
    seed: shared_flags.Seed = 0,
    print_statistics: Annotated[bool, typer.Option("--print-statistics", help="Print memory by space.")] = False,
    cuda_graph: shared_flags.CudaGraph = True,
    json: shared_flags.Json = None,
    quiet: shared_flags.Quiet = False,
    verbose: shared_flags.Verbose = 0,
) -> None:
    """Run an artifact once."""
    from memc.runtime.execute.load import load

    set_up_logging(verbose, quiet)
    executable = load(artifact, cuda_graph=cuda_graph)
    given = parse_pairs(input or [], "--input")
    specs = {spec.name: spec for spec in executable.inputs}
    require_known(given, specs)
    missing = [str(spec) for name, spec in specs.items() if name not in given]
    if missing:
        raise UsageError(f"missing inputs: {'; '.join(missing)} (give --input NAME=@file.npy or NAME=random)")
    arrays = {
        name: parse_tensor(text, specs[name].type, name, seed + position)
        for position, (name, text) in enumerate(given.items())
    }
    names = [spec.name for spec in executable.outputs]
    targets = outputs_target(output or [], names)
    results = {name: np.asarray(value) for name, value in executable.run_numpy(arrays).items()}
    for name, path in targets.items():
        try:
            np.save(path, results[name])
        except OSError as error:
            raise UsageError(f"{path}: cannot write: {error.strerror}") from None
    if json is not None:
        write_text(json, json_module.dumps({name: value.tolist() for name, value in results.items()}))
    elif not quiet:
        for name, value in results.items():
            print(f"{name}: {executable.output(name).type} {_excerpt(value)}")
    # With --json - standard output is for the JSON alone.
    notes = sys.stderr if json == "-" else sys.stdout
    if print_statistics:
        for space, nbytes in executable.statistics().items():
            print(f"{space}: {nbytes:,} B" + (f" ({format_size(nbytes)})" if nbytes >= 1024 else ""), file=notes)
    _check(results, expected or [], rtol, atol, notes)


def _excerpt(value: Array) -> str:
    return np.array2string(value, threshold=8, edgeitems=2, precision=6).replace("\n", "")


def _check(results: dict[str, Array], expected: list[str], rtol: float, atol: float, notes: TextIO) -> None:
    failures = 0
    for name, text in parse_pairs(expected, "--expected").items():
        if name not in results:
            raise UsageError(f"--expected {name}: no such output; expected one of {', '.join(results)}")
        if not text.startswith("@"):
            raise UsageError(f"--expected {name}={text}: expected @file.npy")
        difference = compare(results[name], load_array(text[1:]), rtol=rtol, atol=atol)
        print(f"[{'SUCCESS' if difference.matches else 'FAILED'}] result {name}: {difference}", file=notes)
        failures += not difference.matches
    if failures:
        raise CheckError(f"{failures} of {len(expected)} outputs do not match")
