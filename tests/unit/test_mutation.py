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
    chosen = module_of("mutation_tests")
    texts = chosen.test_texts()

    def tests(path: str) -> Any:
        return chosen.tests_of(path, texts)

    own = tests("ir/verify/memory_plan.py").pytest
    assert own[0] == "tests/unit/ir/verify/test_memory_plan.py" and 1 < len(own) <= chosen.MOST
    in_pipelines = tests("passes/launches/join_rows.py")
    assert in_pipelines.pytest[0] == "tests/unit/runtime/codegen/test_row_fusion.py"
    assert in_pipelines.golden == ("tests/golden/passes/join-rows.memir",)
    golden = tests("passes/placement/in_place.py").golden
    assert golden[0] == "tests/golden/passes/in-place.memir" and "tests/golden/passes/reorder.memir" in golden
    assert "tests/unit/passes/recompute/test_rematerialize.py" in tests("passes/budget.py").pytest
    of_importers = tests("passes/rewrite/delay_relu.py")
    assert of_importers.pytest == ("tests/unit/passes/rewrite/test_recognize.py",)
    assert of_importers.golden == ("tests/golden/passes/recognize.memir",)
    assert tests("runtime/codegen/integers.py").pytest[1:] == chosen.VALUES["integers"][1:]
    assert all((ROOT / path).exists() for files in chosen.VALUES.values() for path in files)
    assert all((ROOT / f"runtime/codegen/{name}.py").exists() for name in chosen.VALUES)
    every = [p for path in chosen.sources(["passes"]) for p in (*tests(path).pytest, *tests(path).golden)]
    # What speaks of the repository as a whole fails in a copy of the package.
    assert every and not any(p.startswith("tests/unit/test_") for p in every)
    assert chosen.module_of("python/memc/driver.py") == "memc.driver"
    assert chosen.module_of("ir/__init__.py") == "memc.ir"


def test_a_file_without_tests_that_is_not_imported_has_its_folders(module_of: Any) -> None:
    chosen = module_of("mutation_tests")
    texts = {"tests/unit/ir/verify/test_aliases.py": "", "tests/unit/ir/test_core.py": "", "tests/golden/a.memir": ""}
    found = chosen.tests_of("ir/verify/error_location.py", texts)
    assert found == chosen.Tests(("tests/unit/ir/verify/test_aliases.py",), ())


def test_files_whose_tests_fail_without_a_fault_are_not_tried(
    module_of: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    mutation = module_of("mutation")
    one, other = mutation.Tests(("a.py",), ()), mutation.Tests((), ("b.memir",))
    assert mutation.Tests(("a.py",), ("b.memir",)).parts() == [one, other]
    assert mutation._limit("x.py", {one: 2.0, other: 3.0}, 300.0) == {"x.py": 40.0}
    assert mutation._limit("x.py", {one: 2.0, other: 300.0}, 300.0) == {"x.py": 300.0}
    assert mutation._limit("x.py", {one: 2.0, other: None}, 300.0) == {}
    assert "x.py: without a fault, b.memir fails" in capsys.readouterr().out


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
