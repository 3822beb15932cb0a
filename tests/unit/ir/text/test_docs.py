# SPDX-License-Identifier: Apache-2.0
"""docs/memir.md: its modules are valid, its Python runs, its messages are the ones that appear."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from memc.ir.errors import InvalidError
from memc.ir.text.difference import difference
from memc.ir.text.parser import parse
from memc.ir.verify.structure import verify

PAGE = (Path(__file__).parents[4] / "docs" / "memir.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", blocks("memir"))
def test_modules_are_valid_and_round_trip(text: str) -> None:
    module = parse(text)
    verify(module)
    assert difference(module, parse(str(module))) is None


@pytest.mark.parametrize("text", blocks("python"))
def test_python_runs(text: str) -> None:
    exec(compile(text, "docs/memir.md", "exec"), {})


@pytest.mark.parametrize("text", blocks("memir-error"))
def test_messages(text: str) -> None:
    source, message = text.split("---\n")
    with pytest.raises(InvalidError) as caught:
        verify(parse(source))
    assert str(caught.value) == message.rstrip("\n")


def test_there_are_blocks_of_every_kind() -> None:
    assert len(blocks("memir")) >= 6 and len(blocks("python")) >= 1 and len(blocks("memir-error")) >= 2
