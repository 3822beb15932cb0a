# SPDX-License-Identifier: Apache-2.0
"""Passes that other packages offer, and what their faults do: a warning, an error for those who ask for the pass, and never
the end of a command that does not."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from memc.ir.errors import CheckError, PluginError, UsageError
from memc.ir.text.parser import parse
from memc.passes import registry
from memc.passes.manager import PassManager

TEXT = "func @main(%x: f32[4] {role = input}) -> f32[4] {\n  %y = exp(%x) : f32[4]\n  return %y\n}\n"

GOOD = '''
from dataclasses import dataclass
from typing import ClassVar, Literal
from memc.passes.base import Pass

def of(name, body="return None", fields=()):
    space = {"name": name, "__annotations__": {"name": ClassVar[str]}, "__module__": __name__, **dict(fields)}
    exec(f"def apply(self, module):\\n    {body}", globals(), space)
    return dataclass(frozen=True)(type(name.title(), (Pass,), space))

class Odd(BaseException):
    pass

Fine = of("fine")
Raises = of("raises", "raise KeyError('lost')")
Exits = of("exits", "raise SystemExit(0)")
Strange = of("strange", "raise Odd('two\\\\nlines')")
Breaks = of("breaks", "module.main.ops.reverse(); module.main.ops.clear()")
Ruins = of("ruins", "module.main.ops[0].results = None")
Taken = of("in-place")
Renamed = of("another-name")

@dataclass(frozen=True)
class Needs(Pass):
    """"""
    name: ClassVar[str] = "needs"
    wanted: int

@dataclass(frozen=True)
class Unread(Pass):
    name: ClassVar[str] = "unread"
    option: "NoSuchType" = None

NotAPass = 3
'''

ENTRIES = {
    "fine": "plugged:Fine",
    "raises": "plugged:Raises",
    "exits": "plugged:Exits",
    "strange": "plugged:Strange",
    "breaks": "plugged:Breaks",
    "ruins": "plugged:Ruins",
    "needs": "plugged:Needs",
    "unread": "plugged:Unread",
}

BROKEN = {
    "missing-module": ("no_such_module:Pass", "does not load: ModuleNotFoundError: No module named 'no_such_module'"),
    "missing-name": ("plugged:Nothing", "does not load: AttributeError"),
    "no-colon": ("plugged", "expected a Pass class of that name, got <module"),
    "malformed": ("!!", "does not load: "),
    "not-a-pass": ("plugged:NotAPass", "expected a Pass class of that name, got 3"),
    "renamed": ("plugged:Renamed", "expected a Pass class of that name, got <class"),
    "in-place": ("plugged:Taken", "the name is taken by memc"),
    "exit-on-load": ("leaves:Pass", "does not load: SystemExit: 3"),
    "odd-on-load": ("strange:Pass", "does not load: Odd: two lines"),
    "syntax": ("wrong_syntax:Pass", "does not load: SyntaxError"),
}


def write_package(folder: Path, name: str, entries: dict[str, str]) -> None:
    information = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [f"{entry} = {value}" for entry, value in entries.items()]
    (information / "entry_points.txt").write_text("[memc.passes]\n" + "\n".join(lines) + "\n")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    write_package(folder, "good-plugins", ENTRIES)
    write_package(folder, "bad-plugins", {name: value for name, (value, _) in BROKEN.items()})
    (folder / "plugged.py").write_text(GOOD)
    (folder / "leaves.py").write_text("import sys\nprint('noise on standard output')\nsys.exit(3)\n")
    (folder / "strange.py").write_text("class Odd(BaseException):\n    pass\nraise Odd('two\\nlines')\n")
    (folder / "wrong_syntax.py").write_text("def (:\n")
    return folder


@pytest.fixture
def plugged(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(site))
    registry.known_passes.cache_clear()
    yield
    registry.known_passes.cache_clear()
    for name in ("plugged", "leaves", "strange"):
        sys.modules.pop(name, None)


def test_what_is_broken_is_warned_of_once_and_left_out(plugged: None, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        PassManager.parse("in-place,fine")
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == len(BROKEN)
    for name, (value, why) in BROKEN.items():
        (warning,) = [text for text in warnings if text.startswith(f"pass {name!r} of package bad-plugins ({value})")]
        assert why in warning and warning.endswith("; the pass is left out") and "\n" not in warning
    assert PassManager.parse("in-place").passes[0].__module__ == "memc.passes.placement.in_place"


@pytest.mark.parametrize("name", [name for name in BROKEN if name != "in-place"])
def test_asking_for_a_broken_pass_is_an_error(plugged: None, name: str) -> None:
    with pytest.raises(UsageError) as caught:
        PassManager.parse(f"in-place,{name}")
    message = str(caught.value)
    assert message.startswith(f"pass pipeline, position 10: pass {name!r} of package bad-plugins")
    assert BROKEN[name][1] in message and "\n" not in message


@pytest.mark.parametrize(
    "name, error, says",
    [
        ("raises", PluginError, "pass raises of package good-plugins (plugged:Raises) failed: KeyError: 'lost'"),
        ("exits", PluginError, "pass exits of package good-plugins (plugged:Exits) failed: SystemExit: 0"),
        ("strange", PluginError, "pass strange of package good-plugins (plugged:Strange) failed: Odd: two lines"),
        ("breaks", CheckError, "after pass breaks: "),
        ("ruins", CheckError, "after pass ruins of package good-plugins (plugged:Ruins): invalid IR: "),
    ],
)
def test_a_pass_that_fails_is_told_by_its_package(plugged: None, name: str, error: type, says: str) -> None:
    with pytest.raises(error) as caught:
        PassManager.parse(name).run(parse(TEXT))
    assert says in str(caught.value) and "\n" not in str(caught.value)
    PassManager.parse("fine").run(parse(TEXT))


@pytest.mark.parametrize("name", ["needs", "unread"])
def test_a_pass_that_cannot_be_made(plugged: None, name: str) -> None:
    with pytest.raises(UsageError) as caught:
        PassManager.parse(f"fine,{name}")
    assert "pass pipeline, position 6: " in str(caught.value) and "\n" not in str(caught.value)


def memc(folder: Path, site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "memc.cli", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(site), "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_the_command_line(tmp_path: Path, site: Path) -> None:
    (tmp_path / "in.memir").write_text(TEXT)
    done = memc(tmp_path, site, "opt", "in.memir", "-p", "canonicalize")
    assert done.returncode == 0 and done.stdout.startswith("func @main(")
    warnings = [line for line in done.stderr.splitlines() if line.startswith("memc: warning: ")]
    assert len(warnings) == len(BROKEN) and done.stderr.count("\n") == len(BROKEN) + 1  # One module prints.
    done = memc(tmp_path, site, "opt", "in.memir", "-p", "raises", "-q")
    assert done.returncode == 3 and "Traceback" not in done.stderr
    assert "memc: error: pass raises of package good-plugins" in done.stderr
    done = memc(tmp_path, site, "opt", "--list-passes", "-q")
    assert done.returncode == 0 and "needs " in done.stdout and "exit-on-load" not in done.stdout


def test_a_package_with_damaged_metadata(tmp_path: Path) -> None:
    site = tmp_path / "site"
    information = site / "odd-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "entry_points.txt").write_text(textwrap.dedent("[memc.passes\nx = =\n\xff = \n"))
    (tmp_path / "in.memir").write_text(TEXT)
    done = memc(tmp_path, site, "opt", "in.memir", "-p", "canonicalize")
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
