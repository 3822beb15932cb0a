# SPDX-License-Identifier: Apache-2.0
"""How far the results of one training step are from those of another; `training_step.py` tells what counts as zero, and why."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Arrays = dict[str, Array]

TOLERANCE = 1e-4
CHANCE = 2
"""What lies between two errors that are nothing but rounding."""
ZERO = 1e-10
"""Of the norm of the largest tensor: less in f64 is zero."""


@dataclass
class Step:
    """What one step gives: tensors by name."""

    loss: float
    gradients: Arrays
    weights: Arrays
    """After the step."""
    statistics: Arrays
    """After the step."""
    facts: dict[str, float] = field(default_factory=dict)


def norm(a: Array) -> float:
    return float(np.linalg.norm(a.reshape(-1).astype(np.float64, copy=False)))


def distances(found: Arrays, expected: Arrays, names: Iterable[str]) -> dict[str, float]:
    """Norms of the differences; infinite for a tensor that was not found."""
    return {n: norm(found[n] - expected[n]) if n in found else np.inf for n in names}


def worst(found: Arrays, expected: Arrays, names: Iterable[str]) -> float:
    """The largest relative error among the tensors `names`."""
    return max((d / norm(expected[n]) for n, d in distances(found, expected, names).items()), default=0.0)


def together(found: Arrays, expected: Arrays) -> float:
    """The relative error of all tensors as one vector."""
    of_all = sum(d**2 for d in distances(found, expected, expected).values())
    return float(np.sqrt(of_all / sum(norm(a) ** 2 for a in expected.values())))


def in_f32(mine: Arrays, narrow: Arrays, truth: Arrays, names: Collection[str]) -> dict[str, Any]:
    """The largest relative error of a tensor, of memc and of PyTorch, and the names where memc's is `TOLERANCE` or more
    and above `CHANCE` times PyTorch's."""
    here, there = ({n: d / norm(truth[n]) for n, d in distances(s, truth, names).items()} for s in (mine, narrow))
    far = sorted(n for n, error in here.items() if error >= TOLERANCE and error > CHANCE * there[n])
    return {"memc": max(here.values()), "torch": max(there.values()), "far": far}


def zeros(truth: Arrays) -> set[str]:
    """The tensors that are zero but for rounding."""
    norms = {n: norm(a) for n, a in truth.items()}
    return {n for n, size in norms.items() if size <= ZERO * max(norms.values())}


def zero_error(found: Arrays, expected: Arrays, names: Iterable[str]) -> float:
    """The largest distance among the tensors `names`, over the norm of the largest tensor."""
    largest = max(map(norm, expected.values()), default=1.0)
    return max((d / largest for d in distances(found, expected, names).values()), default=0.0)


@dataclass
class Truth:
    """PyTorch's step in f64, and which of its tensors have no direction."""

    step: Step
    no_gradient: set[str] = field(init=False)
    no_mean: set[str] = field(init=False)

    def __post_init__(self) -> None:
        self.no_gradient, self.no_mean = zeros(self.step.gradients), zeros(self.step.statistics)

    @property
    def gradients(self) -> set[str]:
        """Names of those that have a direction."""
        return self.step.gradients.keys() - self.no_gradient

    def single(self, mine: Step, narrow: Step) -> dict[str, Any]:
        """`in_f32` of the gradients."""
        return in_f32(mine.gradients, narrow.gradients, self.step.gradients, self.gradients)

    def forward(self, mine: Step, narrow: Step) -> dict[str, Any]:
        """`in_f32` of the loss and the running statistics."""
        results = [{**step.statistics, "loss": np.array(step.loss)} for step in (mine, narrow, self.step)]
        return in_f32(*results, results[-1].keys() - self.no_mean)

    def errors(self, found: Step, expected: Step) -> dict[str, float]:
        """The largest relative error of each kind of result."""
        of_gradients = zero_error(found.gradients, expected.gradients, self.no_gradient)
        moved = self.step.statistics.keys() - self.no_mean
        return {
            "loss": abs(found.loss - expected.loss) / abs(expected.loss),
            "gradients": worst(found.gradients, expected.gradients, self.gradients),
            "weights": update_error(found, expected, self.no_gradient),
            "statistics": worst(found.statistics, expected.statistics, moved),
            "zeros": max(of_gradients, zero_error(found.statistics, expected.statistics, self.no_mean)),
        }


def update_error(found: Step, expected: Step, no_gradient: set[str]) -> float:
    """The largest relative error of the updated weights, without weights of zero that have no gradient and stay zero."""
    still = {n for n in no_gradient if norm(expected.weights[n]) <= 1e-6 * norm(np.ones_like(expected.weights[n]))}
    return worst(found.weights, expected.weights, expected.weights.keys() - still)
