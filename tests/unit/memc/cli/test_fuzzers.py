# SPDX-License-Identifier: Apache-2.0
"""A few cases of each fuzzer of text, and that the fuzzers see what is wrong."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[4] / "benchmarks"


@pytest.fixture
def fuzzers(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import importlib

    return importlib.import_module


@pytest.mark.parametrize(("name", "count"), [("fuzz_ir", 60), ("fuzz_plans", 60), ("fuzz_cli", 25)])
def test_some_cases(fuzzers: Any, name: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, fuzzing = fuzzers(name), fuzzers("fuzzing")
    if name == "fuzz_ir":
        monkeypatch.setattr(module, "GRAPHS", 4)
    for seed in range(1, count + 1):
        case = fuzzing.run_case(module.check, seed, tmp_path / str(seed))
        assert not case.found, f"{name}, seed {seed}: {case.found}"


def test_which_options_are_numbers(fuzzers: Any) -> None:
    found = fuzzers("fuzz_cli").numbers()
    assert {
        ("compile", "opt_level"),
        ("verify", "seed"),
        ("verify", "rtol"),
        ("bench", "threads"),
        ("plan", "threads"),
    } <= found
    assert found.isdisjoint({("compile", "dims"), ("compile", "output"), ("run", "quiet"), ("plan", "time_limit")})


def test_the_pairwise_checker_sees_faults(fuzzers: Any) -> None:
    plans = fuzzers("fuzz_plans")
    lives = [("a", 0, 2, 64), ("b", 1, 3, 64), ("c", 2, 4, 64)]
    good = {"offsets": {"a": 0, "b": 64, "c": 0}, "peak": 128, "lower_bound": 128}
    assert plans.faults_of(good, lives, 64) == []
    assert plans.faults_of(good | {"offsets": {"a": 0, "b": 32, "c": 0}}, lives, 1) != []
    assert plans.faults_of(good | {"offsets": {"a": 0, "b": 72, "c": 0}, "peak": 136}, lives, 64) != []
    assert plans.faults_of(good | {"peak": 120}, lives, 64) != []
    assert plans.faults_of(good | {"lower_bound": 129}, lives, 64) != []
    graph = plans.draw_graph(random.Random(3))
    order = list(range(len(graph["ops"])))
    assert plans.order_faults(graph, order) == [] and plans.order_faults(graph, order[:-1]) != []


def test_what_a_user_must_not_see(fuzzers: Any) -> None:
    fuzzing = fuzzers("fuzzing")
    line = "memc: error: model.memir: expected something else\n"
    assert fuzzing.wrong_with(fuzzing.Done(3, "", line)) is None
    for bad in (fuzzing.Done(70, "", line), fuzzing.Done(3, "", ""), fuzzing.Done(2, "", line + line)):
        assert fuzzing.wrong_with(bad) is not None
    assert fuzzing.wrong_with(fuzzing.Done(1, "", "Traceback (most recent call last):\n" + line)) is not None
