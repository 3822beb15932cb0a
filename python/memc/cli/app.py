# SPDX-License-Identifier: Apache-2.0
"""The command line as a whole: its verbs, and errors as one line and an exit code.

Exit codes: 0 ok, 1 a check failed, 2 usage, 3 unsupported or invalid model, 4 over the memory budget, 70 internal.
"""

from __future__ import annotations

import difflib
import errno
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import typer

from memc.ir.errors import DeviceMemoryError, MemcError, UsageError

from . import bench as bench_verb
from . import compile as compile_verb
from . import estimate as estimate_verb
from . import opt as opt_verb
from . import plan as plan_verb
from . import run as run_verb
from . import verify as verify_verb
from .console import error_line, set_up_streams

app = typer.Typer(
    name="memc",
    help="A memory-optimizing compiler for deep-learning models.",
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("compile", short_help="Compile a model into an artifact.")(compile_verb.compile_model)
app.command("run", short_help="Run an artifact once.")(run_verb.run)
app.command("verify", short_help="Compare with a reference.")(verify_verb.verify)
app.command("bench", short_help="Measure how fast a model runs.")(bench_verb.bench_model)
app.command("estimate", short_help="Tell how much GPU memory a job takes.")(estimate_verb.estimate)
app.command("plan", short_help="Plan memory: addresses and order.")(plan_verb.plan)
app.command("opt", short_help="Run passes and print the IR.")(opt_verb.opt)

INTERNAL = 70

PATH_ERRORS = frozenset(
    {
        *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM, errno.EROFS, errno.ELOOP, errno.EEXIST),
        *(errno.ENAMETOOLONG, errno.ENOTEMPTY, errno.ENXIO, errno.ENODEV, errno.EINVAL, errno.EFBIG),
    }
)
"""What is wrong with a path that was typed, wherever it is first used."""


@app.callback()
def _memc(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", is_eager=True, help="Print the version and exit."),
) -> None:
    if version:
        from importlib.metadata import version as installed

        print(f"memc {installed('memc')}")
        raise typer.Exit()
    if context.invoked_subcommand is None:
        print(context.get_help(), file=sys.stderr)
        raise typer.Exit(2)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. A user's mistake gives one line on stderr, never a traceback."""
    set_up_streams()
    try:
        code = app(args=list(sys.argv[1:] if arguments is None else arguments), prog_name="memc", standalone_mode=False)
        sys.stdout.flush()  # Here, where an error can still be told.
        return code if isinstance(code, int) else 0
    except UsageError as error:
        error_line(" ".join(str(error).split("\n")))  # It may quote what was typed.
        return error.exit_code
    except MemcError as error:
        error_line(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        error_line("interrupted")
        return 130
    except BrokenPipeError:
        _drop_output()
        return 0
    except SystemExit as error:
        if not isinstance(error.__context__, BrokenPipeError):  # Which the parser of arguments turns into an exit.
            raise
        _drop_output()
        return 0
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EBADF, errno.EIO):
            _drop_output()
            error_line(f"{error.filename or 'standard output'}: cannot write: {error.strerror}")
            return UsageError.exit_code
        if isinstance(error, OSError) and error.filename is not None and error.errno in PATH_ERRORS:
            error_line(f"{error.filename}: cannot be used: {error.strerror}")
            return UsageError.exit_code
        message = getattr(error, "format_message", None)
        if message is not None:
            error_line(_unknown_option(error) or " ".join(message().split()))
            return int(getattr(error, "exit_code", 2))
        if isinstance(error, MemoryError):
            error_line(f"out of memory on this machine{f': {error}' if str(error) else ''}")
            return DeviceMemoryError.exit_code
        traceback.print_exc()
        error_line(
            f"internal error: {type(error).__name__}: {error}; please report this with the command and the model"
        )
        return INTERNAL


def _unknown_option(error: Exception) -> str | None:
    """What to say of an option that there is not; None for other errors."""
    name = getattr(error, "option_name", None)
    context = getattr(error, "ctx", None)
    if name is None or context is None:
        return None
    known = _options_of(context.command)
    word = name.lstrip("-")
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.75)  # Less would take `arch` for `batch`.
    verbs = getattr(context.parent.command, "commands", {}) if context.parent is not None else {}
    others = [verb for verb, command in verbs.items() if word in _options_of(command)]
    if near:
        hint = f"; did you mean --{near[0]}?"
    elif others:
        hint = f" (of memc {', '.join(others)})"
    else:
        hint = f"; an open dimension is bound by --dim {word}=N" if "dim" in known else ""
    return f"no option {name}{hint}; options: memc {context.info_name} --help"


def _options_of(command: Any) -> list[str]:
    """The names of a verb's options, without the dashes."""
    return [each[2:] for parameter in command.params for each in parameter.opts if each.startswith("--")]


def _drop_output() -> None:
    """The reader (a pager, head) went away, or the disk is full: what is left to flush has nowhere to go."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
