# SPDX-License-Identifier: Apache-2.0
"""The mutation run: which faults it makes, which tests it runs for a file, and that its verdicts are right."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

SOURCE = '''\
"""A file. 1 + 1"""
LIMIT: int = 3


def f(a: int, b: int = 0) -> int:
    """Not changed."""
    if a < LIMIT and not b:
        raise ValueError(f"expected {a + 1}")
    g(a, b)
    return max(a, b) - b
'''


@pytest.fixture
def module_of(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module


def test_each_kind_of_fault_at_its_place(module_of: Any) -> None:
    found = module_of("mutants").mutants_of(SOURCE)
    changed = {(m.line, m.kind, m.text.splitlines()[m.line - 1].strip()) for m in found}
    assert changed == {
        (2, "constant", "LIMIT: int = 4"),
        (5, "constant", "def f(a: int, b: int = 1) -> int:"),
        (7, "condition", "if (a < LIMIT or not b):"),
        (7, "condition", "if (a < LIMIT):"),
        (7, "condition", "if (not b):"),
        (7, "comparison", "if (a <= LIMIT) and not b:"),
        (7, "condition", "if a < LIMIT and b:"),
        (8, "statement", "pass"),
        (9, "statement", "pass"),
        (9, "arguments", "g(b, a)"),
        (10, "arithmetic", "return (max(a, b) + b)"),
    }
    assert len(found) == len(changed)
    for mutant in found:
        compile(mutant.text, "f.py", "exec")
        assert len(mutant.text.splitlines()) == len(SOURCE.splitlines())


def test_every_source_has_mutants_that_parse(module_of: Any) -> None:
    mutants_of, total = module_of("mutants").mutants_of, 0
    for path in sorted((ROOT / "ir/verify").glob("*.py")):
        for mutant in mutants_of(path.read_text()):
            compile(mutant.text, str(path), "exec")
            total += 1
    assert total > 500


def test_which_tests_cover_a_file(module_of: Any) -> None:
    mutation = module_of("mutation")
    texts = mutation.test_texts()
    plan = mutation.tests_of("ir/verify/memory_plan.py", texts)
    assert plan == mutation.Tests(("tests/unit/ir/verify/test_memory_plan.py",), ())
    assert mutation.tests_of("passes/launches/join_kernels.py", texts).golden == (
        "tests/golden/passes/join-kernels.memir",
    )
    named = mutation.tests_of("passes/budget.py", texts).pytest
    assert "tests/unit/passes/recompute/test_rematerialize.py" in named
    folder = mutation.tests_of("ir/verify/error_location.py", texts).pytest
    assert "tests/unit/ir/verify/test_aliases.py" in folder and all(
        p.startswith("tests/unit/ir/verify/") for p in folder
    )
    assert mutation.module_of("python/memc/driver.py") == "memc.driver"
    assert mutation.module_of("ir/__init__.py") == "memc.ir"


def test_verdicts(module_of: Any, tmp_path: Path) -> None:
    """A copy with a fault is what tests see, in pytest as in the commands that golden tests run."""
    mutation, mutants = module_of("mutation"), module_of("mutants")
    copy = mutation.Copy(tmp_path / "copy")
    test = tmp_path / "test_align.py"
    test.write_text("from memc.ir.sizes import align\n\n\ndef test() -> None:\n    assert align(65, 64) == 128\n")
    golden = tmp_path / "golden.memir"
    text = "func @main(%x: f32[4] {role = input}) -> f32[4] {\n  %y = exp(%x) : f32[4]\n  return %y\n}\n"
    golden.write_text(f"// RUN: memc opt %s | filecheck %s\n// CHECK: exp\n{text}")
    (tmp_path / "lit.cfg.py").write_text((ROOT / "tests/golden/lit.cfg.py").read_text())
    tests = mutation.Tests((str(test),), ())
    in_text = mutation.Tests((), (str(golden),))
    assert copy.passes(tests, 60) is True and copy.passes(in_text, 60) is True
    source = (ROOT / "ir/sizes.py").read_text()
    begin = source[: source.index("def align(")].count("\n") + 1
    faults = [m for m in mutants.mutants_of(source) if begin < m.line < begin + 6 and m.kind == "arithmetic"]
    assert faults
    copy.write("ir/sizes.py", faults[0].text)
    assert copy.passes(tests, 60) is False
    copy.write("ir/sizes.py", "while True:\n    pass\n")
    assert copy.passes(tests, 5) is None
    copy.write("ir/sizes.py", source)
    copy.write("ir/text/printer.py", "raise SystemExit(3)\n")
    assert copy.passes(tests, 60) is True and copy.passes(in_text, 60) is False
    trials = [mutation.Trial("ir/sizes.py", faults[0], v, 1.0) for v in ("killed", "killed", "timed out", "survived")]
    assert mutation.score(trials) == 75
    summary = mutation.summary(trials, ["ir/x.py"], "command")
    assert "| ir/sizes.py | 2 | 1 | 1 |" in summary
    assert summary.endswith("75.0 % of 4 mutants noticed: 2 killed, 1 timed out, 1 survived")
