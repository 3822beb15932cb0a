# SPDX-License-Identifier: Apache-2.0
"""Completions, in the shells themselves where they are installed, and the man page."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from memc.cli.app import VERBS
from memc.cli.commands import Flag, Verb
from memc.cli.completion_scripts import SHELLS
from memc.cli.man_page import EXIT_CODES, man_page

ODD = [
    Verb(
        "draw",
        "Don't: draw [all].",
        ("SOURCE",),
        (
            Flag(("-k", "--kind"), "Of 'lines': a `b` \\ c [d].", "KIND", ("thin", "thick")),
            Flag(("--to",), "A file.", "FILE", is_file=True),
            Flag(("-q",), ".starts with a period", None),
        ),
    )
]
"""What quoting might get wrong."""


def words(shell: str, script: str, line: str, tmp_path: Path) -> list[str]:
    """What a shell completes the last word of a line to."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    path = tmp_path / f"memc.{shell}"
    path.write_text(script)
    if shell == "bash":
        parts = re.findall(r"[^\s=]+|=", line) + ([""] if line.endswith(" ") else [])
        array = " ".join(f"'{part}'" for part in parts)
        run = f"source {path}; COMP_WORDS=({array}); COMP_CWORD={len(parts) - 1}; _memc; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    else:
        run = f"source {path}; complete -C '{line}'"
    done = subprocess.run([shell, "-c", run], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return sorted({each.split("\t")[0] for each in done.stdout.splitlines() if each})


@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_shells_complete(memc, shell: str, tmp_path: Path) -> None:
    script = memc("completion", shell).out
    (tmp_path / "net.onnx").touch()

    def of(line: str) -> list[str]:
        return words(shell, script, line, tmp_path)

    assert set(of("memc ")) >= set(VERBS)
    assert of("memc co") == ["compile", "completion"]
    assert of("memc compile --target ") == ["cuda", "llvm"]
    assert "--memory-budget" in of("memc compile --mem") and "--find-batch" not in of("memc compile --f")
    assert of("memc report --svg net") == ["net.onnx"]
    assert of("memc compile -O 2 --kernels=gen")[-1].endswith("generated")


@pytest.mark.parametrize("shell", SHELLS)
def test_odd_help_is_quoted(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    path = tmp_path / "script"
    path.write_text("".join(f"{line}\n" for line in SHELLS[shell](ODD)))
    done = subprocess.run([shell, "-n", str(path)], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    if shell != "zsh":
        assert words(shell, path.read_text(), "memc draw -k th", tmp_path) == ["thick", "thin"]


def test_another_shell(memc) -> None:
    result = memc("completion", "bsh")
    assert (result.code, result.err) == (
        2,
        "memc: error: shell: expected one of bash, zsh, fish, got 'bsh'; did you mean bash?\n",
    )


def shown(page: str) -> str:
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    done = subprocess.run(["groff", "-man", "-Tascii", "-ww", "-P-cbou"], input=page, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_man_page(memc) -> None:
    text = shown(memc("man").out)
    for verb in VERBS:
        assert f"memc {verb}" in text
    assert re.search(r"--target TARGET\n\s+llvm \(CPU\) or cuda\.", text)


def test_odd_help_on_the_man_page() -> None:
    text = shown(man_page(ODD, "1"))
    assert "Of 'lines': a `b` \\ c [d]." in text and ".starts with a period" in text


def test_exit_codes_are_those_of_the_page() -> None:
    page = (Path(__file__).parents[4] / "docs/cli.md").read_text()
    rows = dict(re.findall(r"^\| (\d+) \| ([^|(]+?)(?: \([^|]*)? \|$", page, re.MULTILINE))
    assert {int(code) for code in rows} == set(EXIT_CODES)
