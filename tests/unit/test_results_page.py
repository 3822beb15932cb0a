# SPDX-License-Identifier: Apache-2.0
"""docs/results.md is what scripts/results_page.py makes of benchmarks/results/, and pages that it cannot read are refused."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts" / "results_page.py"))


def test_the_page_is_up_to_date(script: dict[str, Any]) -> None:
    shown = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert shown == script["page"](), "run python scripts/results_page.py"


def test_a_result_is_its_title_headline_and_commands(script: dict[str, Any]) -> None:
    text = "# Title\n\n<!-- headline -->\n- 3 of 3, see [x](x.md) and [y](https://y.org).\n<!-- end of headline -->\n\nProse.\n\n"
    result = script["read_result"]("title", text + "    python benchmarks/title.py --all   # minutes\n\n| a |\n")
    assert result.title == "Title"
    assert result.headline == "- 3 of 3, see [x](../benchmarks/results/x.md) and [y](https://y.org)."
    assert result.commands == ("python benchmarks/title.py --all",)


@pytest.mark.parametrize(
    "text, message",
    [
        ("# Title\n\n    python benchmarks/title.py\n", "title.md: expected a title and, below it, the headline"),
        ("# Title\n\n<!-- headline -->\n- 3.\n<!-- end of headline -->\n", "title.md: expected its command"),
    ],
)
def test_what_a_result_lacks_is_named(script: dict[str, Any], text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        script["read_result"]("title", text)


def test_a_result_without_a_subject_is_named(script: dict[str, Any], tmp_path: Path) -> None:
    folder = shutil.copytree(ROOT / "benchmarks" / "results", tmp_path / "results")
    (folder / "novel.md").write_text("# Novel\n")
    with pytest.raises(ValueError, match="differ in novel$"):
        script["page"](folder)
