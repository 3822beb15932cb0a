# SPDX-License-Identifier: Apache-2.0
"""Functions of which each call is one step with planned memory."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import ParamSpec, TypeVar, overload

from memc.replay.steps import Step

from .region import PlannedMemory, open_region

P = ParamSpec("P")
R = TypeVar("R")


@overload
def planned(function: Callable[P, R]) -> Callable[P, R]: ...


@overload
def planned(
    *, key: Callable[..., Hashable] | None = None, watch: int = 2, strict: bool = False
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def planned(
    function: Callable[P, R] | None = None,
    *,
    key: Callable[..., Hashable] | None = None,
    watch: int = 2,
    strict: bool = False,
) -> Callable[P, R] | Callable[[Callable[P, R]], Callable[P, R]]:
    """Makes each call of a function one step, in the region that is open, or in one that stays open from the first call on.

    A call within another step is a part of that step. Each function's steps are planned by themselves.

    Args:
        key: of the arguments of a call; calls that ask for memory in unlike sequences should have unlike keys.
        watch, strict: as in `planned_memory`, for the region that is opened.
    """

    def wrap(wrapped: Callable[P, R]) -> Callable[P, R]:
        name = object()

        @functools.wraps(wrapped)
        def step(*args: P.args, **kwargs: P.kwargs) -> R:
            region = open_region()
            if region is None:
                region = PlannedMemory(watch=watch, strict=strict).__enter__()
            if region.in_step:
                return wrapped(*args, **kwargs)
            of = None if key is None else key(*args, **kwargs)
            with Step(region, (name, of), key is not None):
                return wrapped(*args, **kwargs)

        return step

    return wrap if function is None else wrap(function)
