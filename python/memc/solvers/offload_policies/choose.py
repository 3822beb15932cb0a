# SPDX-License-Identifier: Apache-2.0
"""The schedules of a named policy, of which a budget takes the first that keeps it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from memc.solvers.offload import Schedule

from .layers import Kind, LayeredProblem
from .policy import LARGEST_FIRST, POLICIES, Answer, offload_chosen, offload_inputs
from .simulate import simulate

PolicyName = Literal["vdnn-all", "vdnn-conv", "vdnn-dynamic", "superneurons", "dymem", "largest-first", "all"]
"""The names of `POLICIES`."""


def schedules(problem: LayeredProblem, name: PolicyName, limit: int) -> Iterator[Schedule]:
    """What a policy of `POLICIES` tries within `limit` bytes, one after another."""
    if name == LARGEST_FIRST.name:
        yield from _largest_first(problem, limit)
        return
    for policy in POLICIES[name]:
        yield simulate(problem, policy, limit)


def _largest_first(problem: LayeredProblem, limit: int) -> Iterator[Schedule]:
    """Copies of ever more values, the largest first: with about as few as keep the limit, then with all."""
    sizes, leaves = problem.problem.ops.sizes, offload_inputs(*Kind)
    may_leave = [v for v in range(len(sizes)) if leaves(problem, v) is Answer.OFFLOAD]
    ranked = sorted(may_leave, key=lambda v: (-sizes[v], v))

    def leaving(count: int) -> Schedule:
        policy = replace(LARGEST_FIRST, answer=offload_chosen(frozenset(ranked[:count])))
        return simulate(problem, policy, limit)

    low, high = 0, len(ranked)  # Fewer do not keep the limit, as far as that is known; so many are enough, if any are.
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if leaving(middle).peak <= limit else (middle + 1, high)
    for count in dict.fromkeys((high, min(len(ranked), high + high // 8 + 1), len(ranked))):
        yield leaving(count)
