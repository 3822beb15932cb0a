# SPDX-License-Identifier: Apache-2.0
"""memc verify: compile, run, and compare with a reference."""

from __future__ import annotations

import json as json_module
from typing import Annotated, Any, Optional

import typer

from memc import driver
from memc.ir.core import Role
from memc.ir.errors import CheckError
from memc.measure import verification
from memc.options import Options

from . import options
from .compile_options import takes_options
from .console import progress, set_up_logging, write_text
from .values import parse_inputs, parse_pairs

NOT_VERIFIED = (
    *("disabled_passes", "memory_budget", "train", "alignment"),
    *("plan_only", "print_ir_after_all", "print_ir_after_change"),
)
"""Options of a compilation that this verb does not have."""


@takes_options(but=NOT_VERIFIED)
def verify(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="An .onnx model; .memir text with --against numpy.")],
    against: Annotated[
        str, typer.Option("--against", help="onnxruntime or numpy (memc's own evaluation).")
    ] = "onnxruntime",
    input: Annotated[
        Optional[list[str]],
        typer.Option("-i", "--input", metavar="NAME=VALUE", help="@file.npy, a number or JSON (default: random)."),
    ] = None,
    *,
    settings: dict[str, Any],
    all_tensors: Annotated[bool, typer.Option("--all-tensors", help="Compare every tensor inside the model.")] = False,
    rtol: Annotated[
        Optional[float], typer.Option("--rtol", help="Relative tolerance, per element (1e-3; tf32: 2e-2).")
    ] = None,
    atol: Annotated[
        Optional[float],
        typer.Option(
            "--atol",
            help="Absolute tolerance, per element (1e-5; tf32: 2e-3). f16 and bf16, without either: a relative error of "
            "each output of at most 1e-2 and 5e-2.",
        ),
    ] = None,
    seed: options.Seed = 0,
    json: options.Json = None,
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
) -> None:
    """Compile a model, run it, and compare its outputs with a reference."""
    set_up_logging(verbose, quiet)
    given = parse_pairs(input or [], "--input")
    arrays = {}
    if given:
        module = driver.load_module(model, Options(**settings))
        arrays = parse_inputs(given, {p.name: p.type for p in module.main.params_of(Role.INPUT)}, seed)
    with progress(quiet) as report_stage:
        outcome = verification.verify(
            model,
            against=against,
            inputs=arrays,
            seed=seed,
            rtol=rtol,
            atol=atol,
            all_tensors=all_tensors,
            progress=report_stage,
            **settings,
        )
    if json is not None:
        write_text(json, json_module.dumps({n: vars(d) for n, d in outcome.differences.items()}, indent=2))
    if json != "-":
        for name, difference in outcome.differences.items():
            if not quiet or not difference.matches:
                print(f"{'ok    ' if difference.matches else 'FAILED'} {name}: {difference}")
    failed = [name for name, d in outcome.differences.items() if not d.matches]
    if failed:
        raise CheckError(
            f"FAILED | {model} against {against}: {len(failed)} of {len(outcome.differences)} tensors differ"
        )
    if json != "-" and not quiet:
        print(f"PASSED | {model} against {against}: {_tensors(len(outcome.differences))} match")


def _tensors(count: int) -> str:
    return f"{count} tensor" + ("s" if count != 1 else "")
