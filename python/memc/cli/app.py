# SPDX-License-Identifier: Apache-2.0
"""The command line as a whole: its verbs, and errors as one line and an exit code.

Exit codes: 0 ok, 1 a check failed, 2 usage, 3 unsupported or invalid model, 4 over the memory budget, 70 internal,
130 interrupted.
"""

from __future__ import annotations

import difflib
import errno
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from memc.ir.errors import DeviceMemoryError, MemcError, UsageError

from .console import error_line, set_up_streams
from .interrupts import leaving_at_once

VERBS = {
    "compile": ("compile.compile_model", "Compile a model into an artifact."),
    "run": ("run.run", "Run an artifact once."),
    "verify": ("verify.verify", "Compare with a reference."),
    "bench": ("bench.bench_model", "Measure how fast a model runs."),
    "estimate": ("estimate.estimate", "Tell how much GPU memory a job takes."),
    "plan": ("plan.plan", "Plan memory: addresses and order."),
    "report": ("report.report", "Draw a plan: a page that shows every byte."),
    "opt": ("opt.opt", "Run passes and print the IR."),
    "doctor": ("doctor.doctor", "Tell what is installed, and what is missing."),
    "completion": ("completion.completion", "Completions for bash, zsh and fish."),
    "man": ("completion.man", "Print the man page."),
}
"""Of each verb its module with its function, and its line in the help. A module is imported when its verb is asked for: most load the
whole compiler."""


class _Commands(dict[str, Any]):
    """The verbs by name, each made when it is first taken."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(VERBS))

    def __getitem__(self, name: str) -> Any:
        made = super().__getitem__(name)
        if made is None:
            module, _, function = VERBS[name][0].partition(".")
            with leaving_at_once():  # Seconds, for some.
                place = importlib.import_module(f"{__package__}.{module}")
            alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
            kind = getattr(place, "COMMAND", None)
            alone.command(name, short_help=VERBS[name][1], cls=kind)(getattr(place, function))
            made = self[name] = typer.main.get_command(alone)
        return made

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default

    def items(self) -> Any:
        return [(name, self[name]) for name in self]

    def values(self) -> Any:
        return [self[name] for name in self]


class _Verbs(TyperGroup):
    """The command `memc`, which loads what the verb asked for needs."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Commands()

    def list_commands(self, ctx: Any) -> list[str]:
        return list(VERBS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in VERBS.items()])


app = typer.Typer(
    name="memc",
    cls=_Verbs,
    help="A memory-optimizing compiler for deep-learning models.",
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

INTERNAL = 70

INTERRUPTED = 130

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
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = app(args=given, prog_name="memc", standalone_mode=False)
        if code == INTERRUPTED:  # Which the parser of arguments makes of KeyboardInterrupt.
            error_line("interrupted")
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
        return INTERRUPTED
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
            error_line(_unknown_option(error, given) or " ".join(message().split()))
            return int(getattr(error, "exit_code", 2))
        if isinstance(error, MemoryError):
            error_line(f"out of memory on this machine{f': {error}' if str(error) else ''}")
            return DeviceMemoryError.exit_code
        traceback.print_exc()
        error_line(
            f"internal error: {type(error).__name__}: {error}; please report this with the command and the model"
        )
        return INTERNAL


def _unknown_option(error: Exception, arguments: Sequence[str]) -> str | None:
    """What to say of an option that there is not; None for other errors."""
    name = getattr(error, "option_name", None)
    context = getattr(error, "ctx", None)
    if name is None or context is None:
        return None
    known = _options_of(context.command)
    word = name.lstrip("-")
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.75)  # Less would take `arch` for `batch`.
    verbs = getattr(context.parent.command, "commands", {}) if context.parent is not None and not near else {}
    others = [verb for verb, command in verbs.items() if word in _options_of(command)]
    script = next((each for each in arguments if each.endswith(".py")), None)
    if near:
        hint = f"; did you mean --{near[0]}?"
    elif script is not None and "world-size" in known:
        hint = f"; those of the script come after two dashes: memc estimate {script} -- {name} ..."
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
