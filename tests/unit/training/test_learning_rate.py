# SPDX-License-Identifier: Apache-2.0
"""Learning rates that a training step takes and refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memc.ir.errors import UsageError

from .linear_step import RATE, T, W, X, compiled


@pytest.mark.parametrize(
    "rate", [float("nan"), float("inf"), -1, -1e-9, 1e39, 10**60, np.float32("nan"), np.float64(-2), np.array(-1, np.float32)]
)  # fmt: skip
def test_a_learning_rate_that_is_none(rate: Any, tmp_path: Path) -> None:
    step = compiled()
    before = {name: array.tobytes() for name, array in step.state().items()}
    said = "learning_rate: expected a (finite )?number( from 0 to 3.40282e[+]38)?, got "
    with pytest.raises(UsageError, match=said):
        step(X, T, learning_rate=rate)
    with pytest.raises(UsageError, match=said):
        step(X, T, rate)
    with pytest.raises(UsageError, match=said):
        step.run_numpy({"x": X, "labels": T, "learning_rate": rate})
    with pytest.raises(UsageError, match=said):
        step.placed_inputs({"x": X, "labels": T, "learning_rate": rate})
    if not isinstance(rate, np.ndarray):
        with pytest.raises(UsageError, match=said):
            step.learning_rate = rate
    assert step.learning_rate == RATE
    assert {name: array.tobytes() for name, array in step.state().items()} == before


@pytest.mark.parametrize("rate", ["0.1", None, True, [0.1], {}])
def test_a_learning_rate_of_another_type(rate: Any) -> None:
    step = compiled()
    with pytest.raises(UsageError, match="learning_rate: expected a number, got"):
        step.learning_rate = rate
    with pytest.raises(UsageError, match="learning_rate"):
        step(X, T, learning_rate=rate)
    with pytest.raises(UsageError, match="learning_rate"):
        step(X, T, learning_rate=np.array([0.1], np.float32))


def test_learning_rates_that_are_taken() -> None:
    expected = compiled()(X, T, learning_rate=0.0), None
    for rate in (0, np.float32(0), np.int64(0), np.array(0, np.float32), -0.0):
        step = compiled()
        before = step.state()["W"].tobytes()
        assert step(X, T, learning_rate=rate) == expected[0] and step.state()["W"].tobytes() == before
        step.learning_rate = rate if not isinstance(rate, np.ndarray) else 0
        assert step.learning_rate == 0 and step(X, T) == expected[0]


def test_the_learning_rate_of_one_step_may_be_a_number() -> None:
    step, given = compiled(), compiled()
    given.learning_rate = 0.0
    assert [step(X, T), step(X, T)] == [given(X, T, learning_rate=RATE), given(X, T, learning_rate=np.float32(RATE))]
    assert [step(X, T), step(X, T)] == [given(X, T, RATE), given(X, T, np.float32(RATE))]
    with pytest.raises(UsageError, match="got 4 inputs, expected 3"):
        given(X, T, RATE, RATE)
    with pytest.raises(UsageError, match="state: expected a dict of arrays by name, got list"):
        given.load_state([W])  # type: ignore[arg-type]
