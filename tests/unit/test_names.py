# SPDX-License-Identifier: Apache-2.0
"""Names agree: a pass is the class, the file and the text of one name, and the files that pages and comments name are there."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from memc.passes.base import Pass
from memc.passes.manager import PassManager
from memc.passes.pipelines import pipeline
from memc.passes.registry import PASSES

ROOT = Path(__file__).resolve().parents[2]

FOLDERS = ("ir", "passes", "runtime", "python", "cpp", "docs", "scripts", "examples", "benchmarks", "tests")

TEXTS = {".py", ".cc", ".h", ".cu", ".cuh", ".inc", ".md", ".lark", ".sh"}

NAMED = re.compile(r"`((?:[\w-]+/)*[\w-]+\.(?:py|cc|h|cu|cuh|lark|sh))`")
"""A file's name between backticks, with or without folders."""

ELSEWHERE = {"my_solver.cc", "my_pass.py"}
"""Files that a page tells the reader to write."""


def files() -> list[Path]:
    """The repository's files, relative to its root, without what is built."""
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if "__pycache__" not in path.parts]
    return sorted(path.relative_to(ROOT) for path in [*ROOT.glob("*.*"), *found] if path.is_file())


def missing(text: str, there: list[str]) -> Iterator[str]:
    """The files that `text` names in backticks and `there`, paths that begin with /, has nowhere."""
    for name in NAMED.findall(text):
        path = "/" + name.replace("memc/", "", 1) if name.startswith("memc/") else "/" + name
        if path.rpartition("/")[2] not in ELSEWHERE and not any(other.endswith(path) for other in there):
            yield name


@pytest.mark.parametrize("kind", PASSES, ids=lambda kind: kind.name)
def test_a_pass_is_the_file_of_its_name(kind: type[Pass]) -> None:
    words = kind.name.split("-")
    assert kind.__name__ == "".join(word.capitalize() for word in words)
    path = Path(inspect.getfile(kind)).relative_to(ROOT)
    assert path.name == "_".join(words) + ".py"
    assert path.parts[0] == "passes" and len(path.parts) == 3, f"{path}: expected passes/SUBJECT/FILE"


def test_files_named_like_no_pass_define_none() -> None:
    known = {Path(inspect.getfile(kind)).relative_to(ROOT) for kind in PASSES}
    for path in (path for path in files() if path.parts[0] == "passes" and path.suffix == ".py"):
        defines = re.search(
            r"^class [A-Z]\w+\((?:\w+, )*Pass\):", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE
        )
        assert (defines is not None) == (path in known), path


@pytest.mark.parametrize("level", [0, 1, 2])
def test_the_page_of_passes_has_the_levels_pipelines(level: int) -> None:
    page = (ROOT / "docs" / "passes.md").read_text(encoding="utf-8")
    [shown] = re.findall(rf"^\| `-O{level}` \| `([^`]+)` \|$", page, re.MULTILINE)
    of_any_target = re.sub(r"\b(target|library|alignment)=\w+ ?", "", pipeline(level))
    assert PassManager.parse(shown).passes == PassManager.parse(of_any_target).passes


def test_files_named_in_pages_and_comments_are_there() -> None:
    paths = files()
    there = ["/" + path.as_posix() for path in paths]
    read = [path for path in paths if path.suffix in TEXTS and path.name not in ("test_names.py", "CHANGELOG.md")]
    found = [f"{path}: {name}" for path in read for name in missing((ROOT / path).read_text(encoding="utf-8"), there)]
    assert found == []


def test_paths_in_scripts_are_there() -> None:
    found = {
        f"{script.name}: {path}"
        for script in sorted((ROOT / "scripts").glob("*.sh"))
        for path in re.findall(rf"(?<![\w/.-])(?:{'|'.join(FOLDERS)})/[\w/.-]*\w", script.read_text(encoding="utf-8"))
        if not (ROOT / path).exists()
    }
    assert found <= {"nightly.sh: benchmarks/fuzz_"}, "the last names a fuzzer by a variable"


def test_the_check_sees_a_missing_file() -> None:
    there = ["/ir/ops/conv.py", "/python/memc/driver.py"]
    text = "`conv.py`, `ops/conv.py`, `memc/driver.py`, `ops/gone.py` and `onv.py`"
    assert list(missing(text, there)) == ["ops/gone.py", "onv.py"]
