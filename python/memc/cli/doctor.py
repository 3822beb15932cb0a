# SPDX-License-Identifier: Apache-2.0
"""memc doctor: what is installed, what is missing, and what to type."""

from __future__ import annotations

import json as json_module

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from memc.installation import Finding, examine, is_sound, to_dict

from . import shared_flags
from .console import set_up_logging, stdout_console, write_text

COLOURS = {"ok": "green", "missing": "yellow", "broken": "red"}


def doctor(
    json: shared_flags.Json = None,
    quiet: shared_flags.Quiet = False,
    verbose: shared_flags.Verbose = 0,
    no_color: shared_flags.NoColor = False,
) -> None:
    """Tell what is installed here, what is missing and what for, and what to type. Exit code 1 if memc cannot work."""
    set_up_logging(verbose, quiet)
    found = examine()
    if json is not None:
        write_text(json, json_module.dumps(to_dict(found), indent=2))
    if json != "-" and not quiet:
        _print(stdout_console(no_color), found)
    if not is_sound(found):
        raise typer.Exit(1)


def _print(console: Console, found: list[Finding]) -> None:
    table = Table(show_header=False)
    table.add_column()
    table.add_column()
    table.add_column(overflow="fold")  # Paths are there to be copied.
    for each in found:
        state = Text(each.state if each.state == "ok" or each.needed else "not there", style=COLOURS[each.state])
        table.add_row(Text(each.name), state, Text(each.detail))
    console.print(table)
    wrong = [each for each in found if each.state != "ok" and each.remedy]
    for each in wrong:
        console.print(Text(f"for {each.purpose or 'everything'}: {each.remedy}"), soft_wrap=True)
    if not wrong:
        console.print("nothing is missing that could be installed")
