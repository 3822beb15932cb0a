# SPDX-License-Identifier: Apache-2.0
"""What a policy is: what it answers of each value, when ops wait for copies out, and what comes back when.

| name | which values leave | ops wait | what comes back early |
| --- | --- | --- | --- |
| `vdnn-all`, `vdnn-conv` (Rhu et al. 2016) | inputs of every layer, of convolutions | after each layer whose copy runs | what the next layer with a copied input needs, at most one convolution ahead |
| `superneurons` (Wang et al. 2018) | results of convolutions, the least recently used first, when room is needed; others are recomputed from them | until there is room | what the next convolution needs |
| `dymem` (Yang and Cheng 2020) | inputs of convolutions, pools and others when they are read last | at the end of the forward pass, or when room is needed | what following layers need, at most two of which are convolutions |
| `largest-first` | the largest first, until the budget is kept | `AHEAD` layers later | `AHEAD` layers earlier |
| `all` (as PyTorch's `save_on_cpu`) | all | at each copy | nothing |
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .layers import CHECKPOINTS, Kind, LayeredProblem


class Answer(enum.Enum):
    """What becomes of a value between the forward and the backward pass."""

    SAVE = "save"
    RECOMPUTE = "recompute"
    OFFLOAD = "offload"


class Waits(enum.Enum):
    """When ops wait for a copy out that still runs, unless room is needed before."""

    COPY = "copy"
    """At once."""
    LAYER = "layer"
    """At the end of the layer in which it began, as for copies in."""
    LATER = "later"
    """`AHEAD` layers later."""
    PASS = "pass"
    """At the end of the forward pass."""


class Fetches(enum.Enum):
    """What comes back before it is needed, chosen at the start of each layer of the backward pass."""

    NOTHING = "nothing"
    NEXT = "next"
    """What the nearest layer needs of which something is missing, up to the next of `LONG`."""
    NEXT_CONV = "next conv"
    """What the next convolution needs."""
    CONVS = "convs"
    """What layers need before the third of `LONG`, this one counted, as far as there is room."""
    EARLY = "early"
    """What the layer needs that is `AHEAD` layers ahead, as far as there is room."""


LONG = (Kind.CONV, Kind.DENSE)
"""Layers that bound how far ahead values come back. The papers name convolutions; matrix products are the same to transformers."""

AHEAD = 2
"""Layers by which copies of `Waits.LATER` and `Fetches.EARLY` lie apart from what needs them."""


@dataclass(frozen=True)
class Policy:
    """A policy of copies and recomputation."""

    name: str
    answer: Callable[[LayeredProblem, int], Answer]
    """Of each value."""
    waits: Waits
    fetches: Fetches
    evicts: bool = False
    """Whether values leave only when room is needed, the least recently used first."""


def save(_problem: LayeredProblem, _value: int) -> Answer:
    """Nothing leaves."""
    return Answer.SAVE


def offload_saved(problem: LayeredProblem, value: int) -> Answer:
    """Whatever waits for the backward pass leaves."""
    leaves = problem.is_saved(value) and problem.problem.movable[value]
    return Answer.OFFLOAD if leaves else Answer.SAVE


def is_read_forward(problem: LayeredProblem, value: int) -> bool:
    """Whether the forward pass reads the value: of its last layer's results it does not."""
    return problem.last_forward(value) != problem.maker[value]


def offload_inputs(*kinds: Kind) -> Callable[[LayeredProblem, int], Answer]:
    """What layers of some kinds read in the forward pass leaves, if it waits for the backward pass."""

    def answer(problem: LayeredProblem, value: int) -> Answer:
        reading = (op for op in problem.readers[value] if op < problem.boundary)
        if any(problem.layers[problem.layer_of[op]].kind in kinds for op in reading):
            return offload_saved(problem, value)
        return Answer.SAVE

    return answer


def offload_chosen(chosen: frozenset[int]) -> Callable[[LayeredProblem, int], Answer]:
    """Given values leave."""

    def answer(_problem: LayeredProblem, value: int) -> Answer:
        return Answer.OFFLOAD if value in chosen else Answer.SAVE

    return answer


def offload_convolved(problem: LayeredProblem, value: int) -> Answer:
    """Results of convolutions may leave."""
    maker = problem.maker[value]
    made_by = problem.layers[problem.layer_of[maker]].kind
    may_leave = maker < problem.boundary and made_by is Kind.CONV and problem.problem.movable[value]
    return Answer.OFFLOAD if may_leave else Answer.SAVE


def recompute_cheap(problem: LayeredProblem, value: int) -> Answer:
    """Results of convolutions may leave, those of cheaper layers are recomputed from them."""
    maker = problem.maker[value]
    kind = problem.layers[problem.layer_of[maker]].kind
    if maker >= problem.boundary or kind in CHECKPOINTS or not problem.may_recompute(value):
        return offload_convolved(problem, value)
    return Answer.RECOMPUTE if is_read_forward(problem, value) else Answer.SAVE


VDNN_ALL = Policy("vdnn-all", offload_inputs(*Kind), Waits.LAYER, Fetches.NEXT)
VDNN_CONV = Policy("vdnn-conv", offload_inputs(Kind.CONV), Waits.LAYER, Fetches.NEXT)
NONE = Policy("none", save, Waits.PASS, Fetches.NOTHING)
SUPERNEURONS = Policy("superneurons", recompute_cheap, Waits.PASS, Fetches.NEXT_CONV, evicts=True)
SUPERNEURONS_COPIES = Policy(
    "superneurons, copies alone", offload_convolved, Waits.PASS, Fetches.NEXT_CONV, evicts=True
)
DYMEM = Policy("dymem", offload_inputs(Kind.CONV, Kind.POOL, Kind.OTHER), Waits.PASS, Fetches.CONVS)
ALL = Policy("all", offload_saved, Waits.COPY, Fetches.NOTHING)
LARGEST_FIRST = Policy("largest-first", save, Waits.LATER, Fetches.EARLY)

POLICIES: Mapping[str, tuple[Policy, ...]] = {
    "vdnn-all": (VDNN_ALL,),
    "vdnn-conv": (VDNN_CONV,),
    "vdnn-dynamic": (NONE, VDNN_CONV, VDNN_ALL),
    "superneurons": (SUPERNEURONS_COPIES, SUPERNEURONS),
    "dymem": (DYMEM,),
    "largest-first": (LARGEST_FIRST,),
    "all": (ALL,),
}
"""What each name tries, one after another, until one keeps the budget."""
