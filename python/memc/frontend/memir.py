# SPDX-License-Identifier: Apache-2.0
"""Modules that users write: read from text, and verified before anything works on them.

Passes and code generation rely on valid IR. What is wrong with a module as it was given is the giver's mistake, an
InvalidError; what is wrong with it after a pass is that pass's.
"""

from __future__ import annotations

import sys
from pathlib import Path

from memc.ir.errors import CheckError, InvalidError, UsageError
from memc.ir.files import read_bytes
from memc.ir.module import Module
from memc.ir.text.parser import parse
from memc.ir.verify.copy_races import check_copy_races
from memc.ir.verify.kernel_races import check_kernel_races
from memc.ir.verify.memory_plan import check_plan, has_placements
from memc.ir.verify.structure import verify

STDIN = "-"


def read_text(path: str | Path) -> str:
    """The text of a file, or of standard input for `-`. Raises InvalidError if the file cannot be read or is no
    UTF-8, UsageError for a closed standard input."""
    name = "<stdin>" if str(path) == STDIN else str(path)
    data = _standard_input() if str(path) == STDIN else read_bytes(path)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidError(f"{name}: expected UTF-8 text, got {error.reason} at byte {error.start}") from None


def _standard_input() -> bytes:
    if sys.stdin is None:
        raise UsageError("<stdin>: cannot read: standard input is closed")
    return sys.stdin.buffer.read()


def read_module(path: str | Path) -> Module:
    """The module in a .memir file, verified, with a function @main. Raises UsageError and InvalidError."""
    name = str(path)
    module = verified(parse(read_text(path), name), name)
    require_main(module, name)
    return module


def verified(module: Module, source: str) -> Module:
    """The module itself. Raises InvalidError unless it is valid IR in which no placements of live values overlap and no
    threads of a joint kernel race, nor copies between spaces with other ops.

    `source` names it in messages. Placements may be missing, in part or all.
    """
    try:
        verify(module)
        if has_placements(module):
            check_plan(module, partial=True)
        check_kernel_races(module)
        check_copy_races(module)
    except CheckError as error:
        raise InvalidError(f"{source}: {error}") from None
    except InvalidError as error:
        raise InvalidError(f"{source}: {error}") from None
    return module


def require_main(module: Module, source: str) -> None:
    """Raise InvalidError unless the module has a function @main."""
    names = [function.name for function in module.functions]
    if "main" not in names:
        found = ", ".join(f"@{name}" for name in names[:5]) or "no function"
        raise InvalidError(f"{source}: expected a function @main, where execution begins, got {found}")
