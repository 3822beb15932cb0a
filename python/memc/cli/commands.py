# SPDX-License-Identifier: Apache-2.0
"""The verbs with their arguments and options, as completions and the man page tell of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from memc.compile_options import Options
from memc.ir.checked_options import hints
from memc.passes.training.losses import LABEL_KINDS, LOSSES
from memc.passes.training.mirror import POLICIES
from memc.passes.training.optimizers import OPTIMIZERS
from memc.solvers.order import order_solver_names
from memc.solvers.placement import solver_names


@dataclass(frozen=True)
class Flag:
    """An option of a verb."""

    names: tuple[str, ...]
    """Short ones first."""
    help: str
    metavar: str | None
    """Of its value; None for a switch."""
    choices: tuple[str, ...] = ()
    """What its value may be; empty where that cannot be listed."""
    is_file: bool = False


@dataclass(frozen=True)
class Verb:
    """A command of memc."""

    name: str
    help: str
    arguments: tuple[str, ...]
    flags: tuple[Flag, ...]


FILES = ("FILE", "NAME|FILE", "OTHER", "PATH", "[NAME=]FILE", "FOLDER")
"""Metavars of values that name files."""


def verbs(commands: Mapping[str, Any]) -> list[Verb]:
    """The verbs. `commands`: of each, its click command; all of them are loaded, which takes seconds."""
    choices = _choices()
    return [_verb(name, command, choices) for name, command in commands.items()]


def _verb(name: str, command: Any, choices: Mapping[str, Sequence[str]]) -> Verb:
    arguments, flags = [], []
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            arguments.append(parameter.metavar or parameter.name.upper())
        elif not getattr(parameter, "hidden", False):
            flags.append(_flag(parameter, choices))
    flags.append(Flag(("--help",), "Show this message and exit.", None))
    return Verb(name, _sentences(command.help or ""), tuple(arguments), tuple(flags))


def _flag(parameter: Any, choices: Mapping[str, Sequence[str]]) -> Flag:
    names = tuple(
        sorted((*parameter.opts, *parameter.secondary_opts), key=lambda name: (name.startswith("--"), len(name)))
    )
    if parameter.is_flag or parameter.count:
        return Flag(names, _sentences(parameter.help or ""), None)
    metavar = parameter.metavar or parameter.name.upper()
    given = tuple(choices.get(parameter.name, ()))
    is_file = metavar in FILES or (parameter.name == "output" and not given)
    return Flag(names, _sentences(parameter.help or ""), metavar, given, is_file)


def _sentences(text: str) -> str:
    return " ".join(text.split())


def _choices() -> dict[str, Sequence[str]]:
    """Of parameters by name: the values that there are."""
    found: dict[str, Sequence[str]] = {
        "loss": tuple(LOSSES),
        "labels": tuple(LABEL_KINDS),
        "optimizer": tuple(OPTIMIZERS),
        "mirror": tuple(POLICIES),
        "solver": tuple(solver_names()),
        "order_solver": tuple(order_solver_names()),
        "opt_level": ("0", "1", "2", "3"),
    }
    for name, hint in hints(Options).items():
        literal = _literal(hint)
        if literal:
            found[name] = literal
    return found


def _literal(hint: Any) -> tuple[str, ...]:
    """The texts that an annotation takes, if it is of such alone, or of them among others."""
    if get_origin(hint) is Literal:
        return tuple(value for value in get_args(hint) if isinstance(value, str))
    if get_origin(hint) in (Union, Annotated):
        return next(filter(None, map(_literal, get_args(hint))), ())
    return ()
