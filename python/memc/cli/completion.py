# SPDX-License-Identifier: Apache-2.0
"""memc completion and memc man: what shells and man(1) are to know of the commands."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated, Any

import typer

from memc.ir.checked_options import require_one_of

from .commands import Verb, verbs
from .completion_scripts import SHELLS
from .man_page import man_page


def completion(
    context: typer.Context,
    shell: Annotated[str, typer.Argument(metavar="SHELL", help=f"{', '.join(SHELLS)}.")],
) -> None:
    """Print the completion script of a shell, to be put where it looks for such."""
    require_one_of(shell, SHELLS, "shell")
    sys.stdout.write("".join(f"{line}\n" for line in SHELLS[shell](_verbs(context))))


def man(context: typer.Context) -> None:
    """Print the man page: memc man | man -l -"""
    sys.stdout.write(man_page(_verbs(context), version("memc")))


def _verbs(context: typer.Context) -> list[Verb]:
    parent: Any = context.parent
    return verbs(parent.command.commands)
