# SPDX-License-Identifier: Apache-2.0
"""The flags of a compilation, which are made of the fields of `Options`: a new one is a field there (`memc/compile_options.py`).
Those of a training step are in `training_flags.py`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import Field, dataclass, fields
from typing import Annotated, Any, Optional, Union, get_args, get_origin, get_type_hints

import typer

from memc.compile_options import SIZES, Flag, Options, default_of
from memc.ir.checked_options import Alignment, Amount, hints
from memc.ir.sizes import parse_size
from memc.passes.budget import AsBudget, AsHostBytes
from memc.passes.pipelines import Workspace

from .pairs import parse_dims
from .training_flags import TRAINING, parse_training
from .values import parse_bindings, parse_shapes, size_or_share


@dataclass(frozen=True)
class Typed:
    """How a field of some type is typed on the command line."""

    type: Any
    read: Callable[[Any], Any]
    """What was typed, as the field has it. Raises UsageError."""


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name)


def _workspace(text: str) -> str | int:
    return text if text in ("none", "free") else parse_size(text)


TYPED: Mapping[Any, Typed] = {
    Mapping[str, Annotated[int, SIZES]]: Typed(Optional[list[str]], parse_dims),
    Mapping[str, Sequence[Annotated[int, SIZES]]]: Typed(Optional[str], parse_shapes),
    Mapping[str, Any]: Typed(Optional[list[str]], parse_bindings),
    Optional[Amount]: Typed(Optional[str], parse_size),
    Optional[Alignment]: Typed(Optional[str], parse_size),
    Optional[Union[Amount, AsBudget]]: Typed(Optional[str], size_or_share),
    Optional[Union[Amount, AsHostBytes]]: Typed(Optional[str], size_or_share),
    Sequence[str]: Typed(Optional[str], _names),
    Workspace: Typed(str, _workspace),
}
"""Fields that are not typed as the text or number that they are."""


def typed(hint: Any) -> Typed:
    """How a field is typed: as a number or a switch if it is one, else as text, which `Options` checks."""
    if hint in TYPED:
        return TYPED[hint]
    plain = [each for each in get_args(hint) if each is not type(None)] if type(None) in get_args(hint) else [hint]
    kind = get_args(plain[0])[0] if get_origin(plain[0]) is Annotated else plain[0]
    kind = kind if kind in (bool, int, float) else str
    return Typed(Optional[kind] if hint is not plain[0] else kind, lambda value: value)


def flags(only: Collection[str], but: Collection[str]) -> list[inspect.Parameter]:
    """A parameter for each flag that a verb has: those of the fields of Options named `only` (all, if empty) without those
    that `but` names, of fields or of a training step."""
    found = []
    for each in fields(Options):
        if each.name in but or (only and each.name not in only):
            continue
        if each.name == "train":
            found.append(_parameter("train", bool, False, _typer_option(each)))
            found += [_parameter(name, *item) for name, item in TRAINING.items() if name not in but]
            continue
        default = default_of(each)
        default = default if isinstance(default, (str, int)) else None
        found.append(_parameter(each.name, typed(hints(Options)[each.name]).type, default, _typer_option(each)))
    return found


def _typer_option(option: Field[Any]) -> Any:
    flag: Flag = option.metadata["flag"]
    return typer.Option(*flag.names, metavar=flag.metavar, help=flag.help)


def _parameter(name: str, type: Any, default: Any, option: Any) -> inspect.Parameter:
    annotation = Annotated[type, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def settings_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """What was typed, by parameter, as fields of Options; without what was not. Raises UsageError."""
    found = {}
    for name, hint in hints(Options).items():
        if name != "train" and given.get(name) is not None:
            found[name] = typed(hint).read(given[name])
    if "train" in given:
        said = {name: given.get(name) for name in TRAINING if name != "optimizer_options"}
        said["frozen"] = said.pop("freeze")
        said["check_labels"] = True if said["check_labels"] else None
        said["dropout"] = False if said.pop("no_dropout") else None
        found["train"] = parse_training(given["train"], said, given.get("optimizer_options"))
    return found


def takes_options(*only: str, but: Collection[str] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a verb flags for the options of a compilation (`only` some, or all `but` some) where it has the parameter
    `settings`, which gets what was typed as fields of Options.

    A verb without `seed` among the flags may have a parameter of that name, which is dropout's seed, too."""

    def decorate(verb: Callable[..., None]) -> Callable[..., None]:
        types = get_type_hints(verb, include_extras=True)
        own = inspect.signature(verb).parameters
        parameters: list[inspect.Parameter] = []
        for name, each in own.items():
            parameters += flags(only, but) if name == "settings" else [each.replace(annotation=types[name])]

        def run(*positional: Any, **given: Any) -> None:
            given = {**dict(zip(own, positional)), **given}
            arguments = {name: value for name, value in given.items() if name in own}
            if "seed" in own and not given.get("train"):
                given = {**given, "seed": None}
            of_options = {name: value for name, value in given.items() if name not in own or name == "seed"}
            verb(**arguments, settings=settings_of(of_options))

        run.__name__, run.__doc__ = verb.__name__, verb.__doc__
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        return run

    return decorate
