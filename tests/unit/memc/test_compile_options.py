# SPDX-License-Identifier: Apache-2.0
"""One list of compile options: signatures, flags and the pages' tables are what it says."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal, Optional, Union, get_type_hints

import pytest
import typer

import memc
from memc.cli import app
from memc.cli.flags_from_options import typed
from memc.cli.training_flags import TRAINING
from memc.compile_options import Keywords, Options, default_of
from memc.ir.checked_options import Range
from memc.ir.errors import UsageError
from memc.ir.machine import memory_bytes
from memc.passes.budget import Budget
from memc.passes.manager import PassManager
from memc.passes.offload.offload import Offload
from memc.passes.training.build_gradient import BuildGradient

DOCS = Path(__file__).resolve().parents[3] / "docs"
NAMES = [each.name for each in fields(Options)]
FLAGS = {name for each in fields(Options) for name in each.metadata["flag"].names}


def test_keywords_are_the_options() -> None:
    texts = {  # Which are read.
        "memory_budget": Union[int, str, Budget, None],
        "host_budget": Union[int, str, None],
        "alignment": Union[int, str, None],
        "workspace": Union[Literal["none", "free"], int, str],
    }
    assert get_type_hints(Keywords) == {**get_type_hints(Options), **texts}
    assert list(Keywords.__annotations__) == NAMES


@pytest.mark.parametrize("function", [memc.compile, memc.bench, memc.verify])
def test_functions_show_each_option(function: Any) -> None:
    shown = inspect.signature(function).parameters
    assert [name for name in shown if name in NAMES] == NAMES
    for each in fields(Options):
        parameter = shown[each.name]
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY and parameter.default == default_of(each)
        assert parameter.annotation == get_type_hints(Keywords)[each.name]
        assert f"\n    {each.name}: " in inspect.getdoc(function)
    assert not any(each.kind is inspect.Parameter.VAR_KEYWORD for each in shown.values())
    assert "**options" not in function.__doc__ and "\nRaises:\n    MemcError: " in inspect.getdoc(function)


def flags_of(verb: str) -> dict[str, Any]:
    """The options of a verb by each of their spellings."""
    command = typer.main.get_command(app.app).commands[verb]  # type: ignore[attr-defined]
    return {name: item for item in command.params for name in item.opts if name.startswith("-")}


TRAINING_FLAGS = {
    str(option.default) for _, _, option in TRAINING.values()
}  # Where typer has the name, in an annotation.


PRINTS = {"--plan-only", "--print-ir-after-all", "--print-ir-after-change"}


@pytest.mark.parametrize(
    ("verb", "without"),
    [
        ("compile", set[str]()),
        ("bench", {*PRINTS, "--labels", "--ignore-index", "--check-labels"}),
        (
            "verify",
            {
                *PRINTS,
                "--memory-budget",
                "--offload",
                "--offload-states",
                "--host-budget",
                "--link",
                "--profile",
                "--train",
                "--alignment",
                *TRAINING_FLAGS,
            }
            - {"--seed"},
        ),
    ],
)
def test_verbs_have_the_flags(verb: str, without: set[str]) -> None:
    found = flags_of(verb)
    assert (FLAGS | TRAINING_FLAGS) - found.keys() == without
    for each in fields(Options):
        flag = each.metadata["flag"]
        if (verb, each.name) == ("bench", "profile"):  # A switch of its own.
            continue
        for name in set(flag.names) & found.keys():
            assert found[name].help == flag.help and sorted(found[name].opts) == sorted(flag.names)
            assert flag.metavar is None or found[name].metavar == flag.metavar


def test_what_is_typed_becomes_options(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def compile(model: str, output: object, **given: Any) -> None:
        seen.update(given)
        raise UsageError("seen")

    monkeypatch.setattr("memc.driver.compile", compile)
    line = (
        "compile m.onnx --target cuda --arch sm_80 -O 3 --dim a=1 --dim b=2 --bind x=3 --disabled-pass fuse,share --workspace 1KiB "
        "--offload auto --offload-states all --host-budget 1GiB --link h200 --profile p.json "
        "--memory-budget 1MiB --alignment 512 --kernels library --precision f16 --plan-only --print-ir-after-all -p fuse "
        "--train --optimizer adam --freeze w* --seed 3 --no-dropout --check-labels --optimizer-options beta1=0.5"
    )
    assert app.main([*line.split(), "--input-shapes", "x:[1,2] y:[3]"]) == 2
    del seen["progress"]
    assert seen == {
        **{"target": "cuda", "arch": "sm_80", "opt_level": 3, "dims": {"a": 1, "b": 2}, "bind": {"x": 3}},
        **{
            "disabled_passes": ("fuse", "share"),
            "workspace": 1024,
            "memory_budget": 2**20,
            "offload": "auto",
            "offload_states": "all",
            "host_budget": 2**30,
            "link": "h200",
            "profile": "p.json",
            "alignment": 512,
        },
        **{"kernels": "library", "precision": "f16", "plan_only": True, "pass_pipeline": "fuse"},
        **{"print_ir_after_all": True, "print_ir_after_change": False, "input_shapes": {"x": (1, 2), "y": (3,)}},
        "train": BuildGradient(optimizer="adam", frozen=("w*",), seed=3, dropout=False, check_labels=True, beta1=0.5),
    }
    seen.clear()
    assert app.main(["compile", "m.onnx"]) == 2
    del seen["progress"]
    assert Options(**seen) == Options()


@pytest.mark.parametrize(
    ("hint", "type"),
    [
        (bool, bool),
        (int, int),
        (Annotated[float, Range(least=0)], float),
        (Optional[Annotated[int, Range(least=1)]], Optional[int]),
        (Optional[str], Optional[str]),
        (Literal["a", "b"], str),
        (Sequence[str], Optional[str]),
    ],
)
def test_a_new_option_needs_no_word_on_how_it_is_typed(hint: Any, type: Any) -> None:
    assert typed(hint).type == type


def cell(value: object) -> str:
    return f'`"{value}"`' if isinstance(value, str) else f"`{value}`" if value in ({}, ()) else str(value)


def test_the_page_of_the_python_api_has_the_table() -> None:
    rows = [f"| `{each.name}` | {cell(default_of(each))} | {each.metadata['doc']} |" for each in fields(Options)]
    table = "\n".join(["| option | default | |", "| --- | --- | --- |", *rows, ""])
    assert table in (DOCS / "api.md").read_text(encoding="utf-8"), f"docs/api.md: expected\n{table}"


def spelled(page: str, heading: str) -> set[str]:
    """The flags in the first column of the table below a heading."""
    text = (DOCS / page).read_text(encoding="utf-8").partition(f"\n{heading}\n")[2]
    rows = re.findall(r"^\| (`-.*?) \|", text.partition("\n## ")[0], flags=re.MULTILINE)
    return {flag for row in rows for flag in re.findall(r"`(-[-\w]+)", row)}


def test_the_pages_of_the_command_line_have_the_flags() -> None:
    told = spelled("cli.md", "## memc compile")
    assert FLAGS - told == set() and told - flags_of("compile").keys() == set()
    assert spelled("training.md", "## From the command line") == TRAINING_FLAGS


def test_bytes_are_given_as_text() -> None:
    found = Options(alignment="1KiB", workspace="1.5MiB", memory_budget="1.5GiB")  # type: ignore[arg-type]
    assert (found.alignment, found.workspace, found.budget) == (1024, 3 * 2**19, Budget(3 * 2**29))
    assert Options(memory_budget="12.5%").budget == Budget(percent=12.5)
    for given, message in (
        ({"alignment": "3KB"}, "alignment: expected a power of two of bytes, got 3000"),
        ({"alignment": "many"}, "alignment: expected a power of two of bytes, got 'many'"),
        ({"workspace": "32XB"}, "workspace: expected none, free or a number of bytes, got '32XB'"),
        ({"memory_budget": "150%"}, "memory_budget: expected a whole number or text such as 4GiB or 50%, got '150%'"),
    ):
        with pytest.raises(UsageError) as error:
            Options(**given)  # type: ignore[arg-type]
        assert str(error.value) == message
    (offload,) = PassManager.parse("offload{least-copy=64KiB host-budget=1.5MiB alignment=1KiB}").passes
    assert isinstance(offload, Offload)
    assert (offload.least_copy, offload.host_budget, offload.alignment) == (65536, 3 * 2**19, 1024)
    (shared,) = PassManager.parse("offload{host-budget=50%}").passes
    assert isinstance(shared, Offload) and shared.host_budget == int((memory_bytes() or 0) * 0.5)
