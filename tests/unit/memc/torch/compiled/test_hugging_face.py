# SPDX-License-Identifier: Apache-2.0
"""examples/train_hugging_face.py: the commands of its guide, in small, by PyTorch and by memc."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from memc.cli import main

from .conftest import TorchSite

pytestmark = pytest.mark.phantom

ROOT = Path(__file__).resolve().parents[5]
SCRIPT = ROOT / "examples/train_hugging_face.py"
GUIDE = (ROOT / "docs/guides/hugging_face_under_a_budget.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\$ (.*)$", GUIDE, re.MULTILINE)
SMALL = "--device cpu --batch 3 --length 33 --layers 2 --width 128 --vocabulary 101 --steps 4"
BUDGET = 6_300_000


def printed(site: TorchSite, arguments: str) -> list[str]:
    script = f"""
        import runpy
        sys.argv = [{str(SCRIPT)!r}, *{shlex.split(arguments)!r}]
        runpy.run_path(sys.argv[0], run_name="__main__")
    """
    return site.run(script).splitlines()


def shown(command: str) -> list[str]:
    """What the guide shows below a command."""
    return re.split(r"^(?:\$ .*|```)$", GUIDE.split(f"$ {command}\n")[1], maxsplit=1, flags=re.MULTILINE)[
        0
    ].splitlines()


def test_losses_are_those_of_the_guide_by_pytorch_and_by_memc(site: TorchSite) -> None:
    small = [c for c in COMMANDS if "--layers" in c]
    assert len(small) == 2
    for command in small:
        lines = shown(command)
        assert len(lines) == 4 and printed(site, command.split(maxsplit=2)[2]) == lines


def test_a_budget_is_kept(site: TorchSite) -> None:
    (line,) = printed(site, f"--plan cuda {SMALL}")
    (under,) = printed(site, f"--plan cuda {SMALL} --budget {BUDGET}")
    peaks = [int(re.match(r"peak ([\d,]+) bytes of cuda, ", text)[1].replace(",", "")) for text in (line, under)]  # type: ignore[index]
    assert peaks[0] > BUDGET >= peaks[1]
    assert line.endswith(" 0.0 % of time added") and not under.endswith(" 0.0 % of time added")


def test_the_estimate_names_the_op_that_does_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    (command,) = [c for c in COMMANDS if c.startswith("memc estimate")]
    words = shlex.split(command)[1:]
    words[words.index("8GiB")] = "24MiB"
    small = [*shlex.split(SMALL)[2:], "--steps", "2"]
    assert main([str(SCRIPT) if "train_hugging" in w else w for w in words] + small) == 4
    assert "out of memory at event" in capsys.readouterr().err
