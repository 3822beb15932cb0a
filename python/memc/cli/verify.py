# SPDX-License-Identifier: Apache-2.0
"""memc verify: compile, run, and compare with a reference."""

from __future__ import annotations

import json as json_module
from collections import Counter
from typing import Annotated, Any, Optional

import typer

from memc import driver
from memc.compile_options import Options
from memc.ir.core import Role
from memc.ir.errors import CheckError
from memc.measure import verification

from . import shared_flags
from .console import progress, set_up_logging, write_text
from .flags_from_options import takes_options
from .pairs import parse_pairs
from .values import parse_inputs

NOT_VERIFIED = (
    *("memory_budget", "offload", "offload_states", "host_budget", "link", "profile", "train", "alignment"),
    *("plan_only", "print_ir_after_all", "print_ir_after_change"),
)
"""Options of a compilation that this verb does not have."""


@takes_options(but=NOT_VERIFIED)
def verify(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="An .onnx model; .pt2 or .memir with --against numpy.")],
    against: Annotated[
        str, typer.Option("--against", help="onnxruntime, onnx (its reference) or numpy (memc's own evaluation).")
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
            help="Absolute tolerance, per element (1e-5; tf32: 2e-3). f16, 8-bit and bf16, without either: a relative error "
            "of each output of at most 1e-2, 2e-2 and 5e-2.",
        ),
    ] = None,
    seed: shared_flags.Seed = 0,
    json: shared_flags.Json = None,
    quiet: shared_flags.Quiet = False,
    verbose: shared_flags.Verbose = 0,
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
        found = {name: _as_json(each) for name, each in outcome.judgements.items()}
        write_text(json, json_module.dumps(found, indent=2))
    _conclude(outcome, f"{model} against {against} ({outcome.tolerances})", against, quiet, silent=json == "-")


def _conclude(outcome: verification.Verification, what: str, against: str, quiet: bool, silent: bool) -> None:
    """Print what was found of each tensor and of `what`; with `quiet` what differs alone, with `silent` nothing. Raises
    CheckError if a tensor differs."""
    found = outcome.judgements
    if not silent:
        for note in outcome.notes:
            print(f"note   {note}")
        for name, each in found.items():
            if not quiet or not each.difference.matches:
                print(_line(name, each, against))
    failed = [name for name, each in found.items() if not each.difference.matches]
    if failed:
        raise CheckError(f"FAILED | {what}: {len(failed)} of {len(found)} tensors differ")
    if not silent and not quiet:
        others = Counter(each.against for each in found.values() if each.against != against)
        also = "".join(f", {count} of them against {name}" for name, count in others.items())
        print(f"PASSED | {what}: {_tensors(len(found))} match{also}")


def _line(name: str, found: verification.Judgement, against: str) -> str:
    """What is said of one tensor."""
    said = f"{'ok    ' if found.difference.matches else 'FAILED'} {name}: {found.difference}"
    said += f" | against {found.against}" if found.against != against else ""
    return said + (f" | {found.note}" if found.note else "")


def _as_json(found: verification.Judgement) -> dict[str, Any]:
    return {**vars(found.difference), "against": found.against, "note": found.note}


def _tensors(count: int) -> str:
    return f"{count} tensor" + ("s" if count != 1 else "")
