# SPDX-License-Identifier: Apache-2.0
"""The documentation: its Python runs, and its commands print what the pages show.

Blocks of one page run in order, in one folder with the model.onnx of examples/compile_and_run.py; Python blocks share
their names, and IR text is written to the file that its first line names. (docs/memir.md has a test of its own.)
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import onnx
import pytest

from memc.cli import main
from memc.cli.app import VERBS
from memc.frontend.onnx import context
from memc.ir import type_inference
from memc.ir.ops.shared import op_def

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(path for path in (ROOT / "docs").rglob("*.md") if path.name not in ("memir.md", "onnx_coverage.md"))
BLOCK = re.compile(
    r"^```(?P<kind>python|console|memir|toml|json|text|sh)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Command:
    """One `$ command` of a console block and the lines that follow it."""

    text: str
    output: str


def commands(block: str) -> list[Command]:
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)
    assert parts[0] == "", f"a console block starts with `$ `, not {parts[0]!r}"
    return [Command(*part.partition("\n")[::2]) for part in parts[1:]]


def run(command: str, last: int) -> tuple[int, str]:
    """Exit code and everything printed. `memc` runs in this process unless a shell is needed."""
    if command == "echo $?":
        return 0, f"{last}\n"
    words = shlex.split(command)
    if words[0] == "memc" and not re.search(r"[<>|;&*]", command.replace(">=", "")):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            code = main(words[1:])
        return code, printed.getvalue()
    paths = [str(Path(sys.executable).parent), os.environ["PATH"]]
    environment = {**os.environ, "PATH": os.pathsep.join(paths)}
    done = subprocess.run(
        command, shell=True, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120
    )
    return done.returncode, done.stdout


def comparable(text: str) -> list[str]:
    """Lines without what depends on the machine: floats, the CPU's name, columns' widths."""
    text = re.sub(r"-?\d+\.\d*(e[-+]?\d+)?|\d+e[-+]?\d+", "#", text)
    text = re.sub(r"(relative error|expected|got) 0(?=[;,]|$)", r"\1 #", text, flags=re.MULTILINE)
    text = re.sub(r"-mcpu=[\w.-]+", "-mcpu=CPU", text)
    text = re.sub(r"worst at \[[\d, ]*\]", "worst at []", text)
    text = re.sub(r"[1-9]\d* of (\d+) elements differ", r"some of \1 elements differ", text)
    text = re.sub(r"[─━]+", "─", text)
    return [" ".join(line.split()) for line in text.rstrip().splitlines()]


def assert_same(shown: str, printed: str, command: str) -> None:
    """Line by line; a line `...` on the page stands for any number of lines."""
    pattern = "\n".join(r"(.*\n)*?.*" if line == "..." else re.escape(line) for line in comparable(shown))
    actual = "\n".join(comparable(printed))
    assert re.fullmatch(pattern, actual), f"$ {command}\nthe page shows\n{shown}\nbut it prints\n{printed}"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # A page may register ops and importers of its own.
    monkeypatch.setattr(op_def, "_REGISTRY", dict(op_def._REGISTRY))
    monkeypatch.setattr(type_inference, "_RULES", dict(type_inference._RULES))
    monkeypatch.setattr(context, "_IMPORTERS", dict(context._IMPORTERS))
    build = runpy.run_path(str(ROOT / "examples" / "compile_and_run.py"))["build_model"]
    onnx.save(build(), "model.onnx")
    names: dict[str, Any] = {"__name__": "__main__"}
    code = 0
    for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
        if block["kind"] == "python":
            exec(compile(block["text"], page.name, "exec"), names)
        elif block["kind"] == "memir":
            Path(block["text"].splitlines()[0].removeprefix("// ")).write_text(block["text"])
        elif block["kind"] == "console":
            for command in commands(block["text"]):
                code, printed = run(command.text, code)
                assert_same(command.output, printed, command.text)


def test_pages_have_blocks() -> None:
    kinds = [match["kind"] for page in PAGES for match in BLOCK.finditer(page.read_text(encoding="utf-8"))]
    assert kinds.count("python") >= 10 and kinds.count("console") >= 10


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda path: path.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_readme_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(runpy.run_path(str(ROOT / "examples" / "compile_and_run.py"))["build_model"](), "model.onnx")
    blocks = [b["text"] for b in BLOCK.finditer((ROOT / "README.md").read_text()) if b["kind"] == "python"]
    assert blocks
    for text in blocks:
        exec(compile(text, "README.md", "exec"), {})


def test_pictures_are_small_drawings_that_pages_show() -> None:
    pictures = sorted((ROOT / "docs/images").iterdir())
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").rglob("*.md"))
    assert pictures
    for picture in pictures:
        root = ElementTree.parse(picture).getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg" and len(root) > 10
        assert picture.stat().st_size < 100_000 and f"images/{picture.name})" in pages


def test_the_page_of_the_command_line_lists_the_verbs() -> None:
    text = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
    listed = re.findall(r"^    memc (\w+) ", text.split("\n\n")[1], re.MULTILINE)
    assert sorted(listed) == sorted(VERBS)
    assert set(VERBS) <= set(re.findall(r"memc (\w+)", "\n".join(re.findall(r"^## (.*)$", text, re.MULTILINE))))
