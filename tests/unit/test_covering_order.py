# SPDX-License-Identifier: Apache-2.0
"""The order of the compile sweep in which a first part has every pair of values."""

from __future__ import annotations

import importlib
import itertools
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def order() -> ModuleType:
    sys.path.insert(0, str(BENCHMARKS))
    return importlib.import_module("covering_order")


CASES = list(itertools.product("abcdef", (1, 2, 3, 7), ("f32", "f16"), ("cpu", "gpu")))


def test_the_first_cases_have_every_pair(order: ModuleType) -> None:
    ordered = order.covering_order(CASES, 2)
    assert sorted(ordered) == sorted(CASES)
    every = {pair for case in CASES for pair in order.combinations_of(case, 2)}
    assert {
        pair for case in ordered[:30] for pair in order.combinations_of(case, 2)
    } == every  # At least 6 * 4 are needed.


def test_pairs_that_are_done_count(order: ModuleType) -> None:
    """What is left has one pair that is new, so the one case with it comes first, and the rest stay as they were."""
    last = ("f", 7, "f16", "gpu")
    done = [case for case in CASES if (case[0], case[1]) != ("f", 7)]
    left = [case for case in CASES if case not in done]
    assert order.covering_order([*CASES[:3], *left], 2, done) == [left[0], *CASES[:3], *left[1:]]
    assert left[-1] == last


def test_no_cases(order: ModuleType) -> None:
    assert order.covering_order([], 2) == []
