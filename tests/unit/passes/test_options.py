# SPDX-License-Identifier: Apache-2.0
"""Every option of every pass is checked when the pass is made. Passes and options are found by reflection, so that a new one
cannot be forgotten."""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal, Optional, Union, get_args, get_origin

import numpy as np
import pytest

from memc.ir.checked_options import Checked, OneOf, PowerOfTwo, Range, hints
from memc.ir.durations import Seconds
from memc.ir.errors import UsageError
from memc.ir.module import Module
from memc.passes.base import Pass
from memc.passes.budget import Budget, HostBytes
from memc.passes.manager import PassManager
from memc.passes.order.reorder import Reorder
from memc.passes.recompute.rematerialize import Rematerialize
from memc.passes.registry import PASSES
from memc.passes.training.build_gradient import BuildGradient
from memc.passes.training.optimizers import Optimizer

KINDS: tuple[type[Checked], ...] = (*PASSES, Budget, Optimizer)

FREE_TEXT = {
    ("build-gradient", "output"),
    ("rematerialize", "profile"),
    ("offload", "profile"),
    ("offload", "link"),
    ("host-states", "profile"),
    ("host-states", "link"),
}
"""Text that names something of the user's: any is right."""


def name_of(kind: type[Checked]) -> str:
    return getattr(kind, "name", kind.__name__)


OPTIONS = [(kind, name) for kind in KINDS for name in hints(kind)]


def parts(hint: Any) -> Iterator[Any]:
    """An annotation's alternatives without None, each with its rules around it."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        for inner in get_args(hint):
            yield from () if inner is type(None) else parts(inner)
    else:
        yield hint


NEGATIVE = {("build-gradient", "ignore_index")}
"""Where numbers below zero make sense."""


def plain(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def is_number(hint: Any) -> bool:
    base = plain(hint)
    return isinstance(base, type) and issubclass(base, (int, float)) and base is not bool


def refused(kind: type[Checked], /, **options: Any) -> str:
    """The message, which is one line and names the option."""
    with pytest.raises(UsageError) as caught:
        kind(**options)
    message = str(caught.value)
    (name,) = options
    assert "\n" not in message and len(message) < 700
    assert name in message or name.replace("_", " ") in message, message
    assert "expected" in message and "got" in message
    return message


@pytest.mark.parametrize("kind, name", OPTIONS, ids=lambda item: item if isinstance(item, str) else name_of(item))
def test_every_option_refuses_what_it_does_not_take(kind: type[Checked], name: str) -> None:
    hint = hints(kind)[name]
    alternatives = list(parts(hint))
    key = (name_of(kind), name)
    for wrong in (object(), b"x", {"a": 1}, 1j, np.zeros(3), lambda: None, [3], ("a", None), float("nan"), -math.inf):
        refused(kind, **{name: wrong})
    if key not in FREE_TEXT and not any(get_origin(plain(a)) is tuple for a in alternatives):
        refused(kind, **{name: "no such choice"})
    if not any(plain(a) is bool for a in alternatives):
        refused(kind, **{name: True})
    if key not in FREE_TEXT:
        refused(kind, **{name: ""})
    if any(is_number(a) for a in alternatives):
        for wrong in (math.inf, np.float32("nan"), 10**400):
            refused(kind, **{name: wrong})
        refused(kind, **{name: -0.5})
        for wrong in (-1, np.int64(-2)) if key not in NEGATIVE else ():
            refused(kind, **{name: wrong})
    elif not any(isinstance(plain(a), type) and issubclass(plain(a), Budget) for a in alternatives):
        refused(kind, **{name: 1.5})
    if not any(a is None for a in alternatives) and type(None) not in get_args(hint):
        refused(kind, **{name: None})


@pytest.mark.parametrize("kind, name", OPTIONS, ids=lambda item: item if isinstance(item, str) else name_of(item))
def test_every_option_is_of_a_type_that_is_checked(kind: type[Checked], name: str) -> None:
    """A type that the check does not know would take anything."""
    for hint in parts(hints(kind)[name]):
        base = plain(hint)
        if get_origin(base) is Literal:
            continue
        if get_origin(base) is tuple:
            assert get_args(base) == (str, ...)
            continue
        assert base in (bool, int, float, str, Seconds, Budget, HostBytes), f"{kind.__name__}.{name}: {base}"
        rules = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
        if base is int or base is float:  # No number is right whatever it is.
            known = any(isinstance(rule, (Range, PowerOfTwo)) for rule in rules)
            assert known or (name_of(kind), name) == ("build-gradient", "loss_scale"), f"{kind.__name__}.{name}"
        if base is str and not any(isinstance(rule, OneOf) for rule in rules):
            assert (name_of(kind), name) in FREE_TEXT | {("build-gradient", "loss_scale")}, f"{kind.__name__}.{name}"


@pytest.mark.parametrize("kind", KINDS, ids=name_of)
def test_defaults_are_taken_as_they_are(kind: type[Checked]) -> None:
    made = kind()
    for field in dataclasses.fields(kind):
        assert getattr(made, field.name) == field.default
    assert kind() == made


@pytest.mark.parametrize("kind", PASSES, ids=name_of)
def test_choices_are_refused_from_every_side(kind: type[Pass]) -> None:
    for name, hint in hints(kind).items():
        if get_origin(hint) is not Literal:
            continue
        choice = str(get_args(hint)[-1])
        for wrong in (choice.upper(), choice + "s"):
            message = refused(kind, **{name: wrong})
            assert f"did you mean {choice}?" in message or wrong.lower() == choice[:-1]
            for known in get_args(hint):
                assert str(known) in message
            with pytest.raises(UsageError, match="did you mean"):
                dataclasses.replace(kind(), **{name: wrong})
            option = f"{kind.name}{{{name.replace('_', '-')}={wrong}}}"
            with pytest.raises(UsageError, match=rf"pass pipeline, position {len(kind.name) + len(name) + 3}: option"):
                PassManager.parse(option)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"optimizer": "Adam"}, "build-gradient: optimizer: expected one of none, sgd, adam, adamw, rmsprop, adagrad, adadelta, adamax, nadam, radam, adafactor, lion, adamw8bit, got 'Adam'; did you mean adam?"),
        ({"optimizer": "lbfgs"}, "got 'lbfgs'"),
        ({"loss": "cross-entropy"}, "did you mean softmax-cross-entropy?"),
        ({"mirror": "foo"}, "mirror: expected one of none, cheap, min-cut, sublinear, got 'foo'"),
        ({"momentum": 1.5}, "momentum: expected a number from 0 to below 1, got 1.5"),
        ({"frozen": "b1"}, "frozen: expected a list of names, got 'b1'"),
        ({"frozen": ["b1", 3]}, "frozen: expected a list of names, got ['b1', 3]"),
        ({"dropout": "false"}, "dropout: expected true or false, got 'false'"),
        ({"dropout": 0}, "dropout: expected true or false, got 0"),
        ({"loss_scale": "dynamical"}, "expected dynamic or a positive number that f32 has, got 'dynamical'; did you mean dynamic?"),
        ({"loss_scale": 1e39}, "expected dynamic or a positive number that f32 has"),
        ({"optimizer": "adam", "epsilon": 0.0}, "epsilon: expected a number from 1.17549e-38 to 3.40282e+38, got 0.0"),
        ({"clip_norm": 0.0}, "clip_norm: expected a number from"),
        ({"clip_norm": "1"}, "clip_norm: expected a number, got '1'"),
        ({"accumulate": 2.0}, "accumulate: expected a whole number"),
    ],
)  # fmt: skip
def test_messages(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        BuildGradient(**options)
    assert message in str(caught.value)


def test_numbers_of_numpy_and_lists_are_taken() -> None:
    made = BuildGradient(
        momentum=np.float32(0.5), accumulate=np.int64(2), frozen=["b1"], dropout=np.bool_(True), clip_norm=3
    )
    same = BuildGradient(momentum=0.5, accumulate=2, frozen=("b1",), clip_norm=3.0)
    assert made == same and str(made) == str(same)
    assert type(made.momentum) is float and type(made.accumulate) is int and type(made.dropout) is bool
    assert BuildGradient(loss_scale=1024).loss_scale == 1024


def test_types_with_a_text_form_take_text() -> None:
    assert Rematerialize(budget="50%").budget == Budget(percent=50.0)  # type: ignore[arg-type]
    assert Reorder(time_limit="500ms").time_limit == 0.5  # type: ignore[arg-type]
    assert str(Reorder(time_limit=2)) == "reorder{time-limit=2s}"  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="budget: expected a share from 0% to 100%, got '150%'"):
        Rematerialize(budget="150%")  # type: ignore[arg-type]


@dataclasses.dataclass(frozen=True)
class Own(Pass):
    """A pass of a third party, with a check of its own that does not call the base's."""

    name: ClassVar[str] = "own"
    mode: Literal["fast", "slow"] = "fast"
    limit: Optional[Annotated[int, Range(least=1)]] = None

    def __post_init__(self) -> None:
        if self.limit == 13:
            raise UsageError("own: limit: not 13")

    def apply(self, module: Module) -> None:
        pass


@dataclasses.dataclass(frozen=True)
class Derived(Own):
    name: ClassVar[str] = "derived"
    extra: float = 0.0


@pytest.mark.parametrize("kind", [Own, Derived])
def test_a_check_of_a_subclass_does_not_replace_the_fields(kind: type[Own]) -> None:
    for options in ({"mode": "Fast"}, {"limit": 0}, {"limit": 1.5}, {"limit": 13}):
        with pytest.raises(UsageError, match="own: |derived: "):
            kind(**options)  # type: ignore[arg-type]
    assert kind("slow", np.int64(3)) == kind("slow", 3)  # type: ignore[arg-type]


def test_options_that_do_not_go_together_have_a_position() -> None:
    with pytest.raises(UsageError, match="pass pipeline, position 10: optimizer adam: has no option momentum"):
        PassManager.parse("in-place,build-gradient{optimizer=adam momentum=0.9}")
    with pytest.raises(UsageError, match="pass pipeline, position 1: rematerialize: expected solver=exact beside"):
        PassManager.parse("rematerialize{time-limit=2s}")
    with pytest.raises(
        UsageError, match="position 25: option 'momentum' of build-gradient: expected a finite number, got 'nan'"
    ):
        PassManager.parse("build-gradient{momentum=nan}")
