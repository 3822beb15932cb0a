# SPDX-License-Identifier: Apache-2.0
"""Small models with inputs and what they give: onnx's node tests, random graphs, random epilogues, random training steps.

What is expected comes from onnx's tests, from onnxruntime node by node, or from memc's numpy evaluation, never from compiled code.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rounded_states import rounded_otherwise

Arrays = dict[str, npt.NDArray[Any]]

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "conformance"))

ROUNDINGS = 6
"""Evaluations that say by how much rounding moves a training step."""
AS_ROUNDING = 1.5
"""How many times as far as in those a result may be away."""


@dataclass
class Case:
    """A model, and runs of it one after another."""

    source: Any
    """What memc.compile takes."""
    inputs: list[Arrays]
    """The inputs of each run."""
    expected: list[Arrays]
    """The outputs of each run; of a training step `loss`, and its states by name."""
    rtol: float
    atol: float
    integers: float = 0.0
    """The most by which integers may differ."""
    options: dict[str, Any] = field(default_factory=dict)
    """Options of memc.compile."""
    trains: bool = False
    rounding: list[Arrays] = field(default_factory=list)
    """Of each run, by how much rounding elsewhere moves each output; nothing where that is within the tolerances."""


def node_case(number: int) -> Case | None:
    """Test `number` of onnx's, in the order of their names; None for random ops, of which each run draws other numbers. Raises
    IndexError past the last."""
    import backend

    from memc.ir.core import Role

    case = backend.static()[sorted(backend.static())[number]]
    module, bound = backend.import_case(case)
    if module.main.params_of(Role.STATE):
        return None
    rtol = max(case.rtol, *(backend.RTOL.get(a.dtype.name, 0.0) for a in case.expected.values()), 0.0)
    given = {name: array for name, array in case.inputs.items() if name not in bound}
    return Case(module, [given], [case.expected], rtol, case.atol)


def graph_case(seed: int) -> Case | None:
    """A random ONNX graph, with what onnxruntime gives for each node alone."""
    from random_onnx import Drawn
    from random_onnx_nodes import STEPS

    drawn = Drawn(seed, STEPS)
    if not drawn.nodes:
        return None
    half = any(item.array.dtype == np.float16 for item in drawn.items)
    tolerance = 2e-2 if half else 5e-4
    return Case(drawn.proto(), [drawn.inputs], [drawn.outputs], tolerance, tolerance / 10)


def epilogue_case(seed: int) -> Case | None:
    """A random producer with its epilogue, with memc's numpy evaluation of the import."""
    from fuzz_epilogues import magnitude
    from random_epilogues import draw, options

    import memc
    from memc.ir.evaluate import evaluate

    case, chosen = draw(seed), options(seed)
    largest = magnitude(case)
    if not np.isfinite(largest) or largest > 1e4:
        return None
    expected = evaluate(memc.import_onnx(case.model), case.inputs)
    atol = case.tolerances.relative * max(largest, 1e-3)
    return Case(case.model, [case.inputs], [dict(expected)], 0.0, atol, case.tolerances.integers, chosen)


def training_case(seed: int) -> Case | None:
    """Three steps of a random small net, with memc's numpy evaluation of the step before any pass that plans.

    Where a gradient is all rounding (of a bias that a later normalization takes away, say), Adam makes a step of full length
    of it, in whichever direction; so the steps are taken from weights that are a unit in the last place apart, too.
    """
    from random_training import draw_net

    import memc
    from memc.ir.core import Role
    from memc.ir.evaluate import evaluate

    drawn = draw_net(seed)
    module = memc.import_onnx(drawn.model, trainable=True)
    drawn.train.apply(module)
    first = {p.name: np.array(module.weights[p.name]) for p in module.main.params_of(Role.STATE)}

    def steps(states: Arrays) -> list[Arrays]:
        found: list[Arrays] = []
        for feeds in drawn.feeds:
            results = evaluate(module, {**feeds, **states})
            states = {name: np.array(results[name]) for name in states}
            found.append({"loss": np.asarray(results["loss"]), **states})
        return found

    expected = steps(first)
    others = [steps(rounded_otherwise(first, number)) for number in range(ROUNDINGS)]
    rounding = [
        {name: largest_distance(want, [other[run][name] for other in others]) for name, want in each.items()}
        for run, each in enumerate(expected)
    ]
    options = {"train": drawn.train, **drawn.options}
    return Case(drawn.model, drawn.feeds, expected, 2e-3, 2e-4, options=options, trains=True, rounding=rounding)


def largest_distance(want: npt.NDArray[Any], others: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Of each element, in f64."""
    distances = [np.abs(other.astype(np.float64) - want.astype(np.float64)) for other in others]
    return np.asarray(np.max(distances, axis=0))


KINDS: dict[str, Callable[[int], Case | None]] = {
    "nodes": node_case,
    "graphs": graph_case,
    "epilogues": epilogue_case,
    "training": training_case,
}


def node_count() -> int:
    import backend

    return len(backend.static())


def difference(found: Arrays, case: Case, run: int) -> str:
    """What differs first from what is expected of a run, in words; empty if nothing does."""
    rounding = case.rounding[run] if case.rounding else {}
    for name, want in case.expected[run].items():
        got = np.asarray(found[name])
        if got.dtype != want.dtype or got.shape != want.shape:
            return f"{name}: expected {want.dtype}{list(want.shape)}, got {got.dtype}{list(got.shape)}"
        whole = want.dtype.kind in "iub"
        wide = (np.float64, np.longdouble)[whole]
        a, b = got.astype(wide), want.astype(wide)
        with np.errstate(invalid="ignore"):
            allowed = (
                case.integers if whole else case.atol + case.rtol * np.abs(b) + AS_ROUNDING * rounding.get(name, 0.0)
            )
            wrong = ~((np.abs(a - b) <= allowed) | (a == b) | (np.isnan(a) & np.isnan(b)))
        if wrong.any():
            at = tuple(int(n) for n in np.argwhere(wrong)[0]) if wrong.ndim else ()
            return f"{name}: {int(wrong.sum())} of {wrong.size} differ; at {list(at)} expected {b[at]:.7g}, got {a[at]:.7g}"
    return ""
