# SPDX-License-Identifier: Apache-2.0
"""memc opt: run passes over IR text or an ONNX model and print the IR."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Optional

import typer

from memc import driver
from memc.compile_options import Options
from memc.frontend.memir import STDIN, read_text, verified
from memc.frontend.sources import MEMIR, format_of
from memc.ir.errors import InvalidError, MemcError, UsageError
from memc.ir.module import Module
from memc.passes.manager import PassManager

from . import shared_flags
from .console import error_line, print_times, set_up_logging, write_text
from .flags_from_options import takes_options

SEPARATOR = "// -----"


@takes_options(
    *("dims", "input_shapes", "bind", "pass_pipeline"),
    *("print_ir_after_all", "print_ir_after_change"),
)
def opt(
    file: Annotated[
        Optional[str], typer.Argument(metavar="FILE", help=".memir text, .onnx or a .json graph; - for text on stdin.")
    ] = None,
    output: Annotated[str, typer.Option("-o", "--output", help="Where the IR goes; - for stdout.")] = "-",
    *,
    settings: dict[str, Any],
    split_input_file: Annotated[
        bool, typer.Option("--split-input-file", help=f"Treat the parts between `{SEPARATOR}` lines one by one.")
    ] = False,
    verify_each: Annotated[bool, typer.Option(help="Verify the IR after each pass.")] = True,
    stop_after: Annotated[
        Optional[int], typer.Option("--stop-after", metavar="N", min=0, help="Run only the first N passes.")
    ] = None,
    print_pass_times: shared_flags.PassTimes = False,
    list_passes: Annotated[bool, typer.Option("--list-passes", help="List the passes and their options.")] = False,
    list_ops: Annotated[bool, typer.Option("--list-ops", help="List the registered ops.")] = False,
    quiet: shared_flags.Quiet = False,
    verbose: shared_flags.Verbose = 0,
) -> None:
    """Run passes over IR text, or import an ONNX model or a dataflow graph and print it as text."""
    set_up_logging(verbose, quiet)
    if list_passes:
        _list_passes()
        return
    if list_ops:
        _list_ops()
        return
    if file is None:
        raise UsageError("missing FILE: give .memir text, an .onnx model, or - for standard input")
    chosen = Options(**settings)
    manager = PassManager.parse(chosen.pass_pipeline or "")
    manager.verify_each = verify_each
    manager.print_ir_after_all = chosen.print_ir_after_all
    manager.print_ir_after_change = chosen.print_ir_after_change
    manager.stop_after = stop_after

    def process(module: Module) -> str:
        manager.run(module)
        if print_pass_times:
            print_times([*manager.timings, *manager.checking.items()])
        return str(module).rstrip("\n")

    if format_of(file) not in (None, MEMIR):
        write_text(output, process(verified(driver.load_module(file, chosen), file)))
        return
    worst = _process_text(file, output, process, split_input_file)
    if worst:
        raise typer.Exit(worst)


def _process_text(file: str, output: str, process: Callable[[Module], str], split: bool) -> int:
    """Print what becomes of IR text, or of each of its parts, and return the exit code of the first part with an error; the
    error of a text that is not split is raised."""
    text, name = read_text(file), "<stdin>" if file == STDIN else file
    printed, worst, line = [], 0, 0
    for part in text.split(f"\n{SEPARATOR}\n") if split else [text]:
        try:
            module = _parse(part, name, line)
            if not module.functions and not split:
                raise InvalidError(f"{name}: expected a function such as `func @main() -> () {{ return }}`, got none")
            printed.append(process(module))
        except MemcError as error:
            if not split:
                raise
            error_line(str(error))
            worst = worst or error.exit_code
        line += part.count("\n") + 2
    if printed:
        write_text(output, f"\n{SEPARATOR}\n".join(printed))
    return worst


def _parse(text: str, name: str, line: int) -> Module:
    from memc.ir.text.parser import parse

    # Blank lines in front keep the line numbers of a later part those of the file.
    return verified(parse("\n" * line + text, name), name)


def _list_passes() -> None:
    import dataclasses

    from memc.passes.registry import known_passes

    for name, kind in sorted(known_passes().items()):
        settings = " ".join(f"{f.name.replace('_', '-')}={f.default}" for f in dataclasses.fields(kind))
        summary = next(iter((kind.__doc__ or "").strip().splitlines()), "")
        print(f"{name:24} {summary}" + (f" [{settings}]" if settings else ""))


def _list_ops() -> None:
    import memc.ir.ops  # noqa: F401
    from memc.ir.ops.shared.op_def import registered

    for definition in registered():
        print(f"{definition.name:24} {definition.doc.splitlines()[0]}")
