# SPDX-License-Identifier: Apache-2.0
"""The command line as a whole."""

from __future__ import annotations

import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import typer

from memc import driver
from memc.cli import app
from memc.ir.errors import BudgetError, CheckError, InvalidError, UnsupportedError, UsageError

MODEL = str(Path(__file__).resolve().parents[3] / "data/models/resnet18.onnx")


def test_version(memc) -> None:
    result = memc("--version")
    assert (result.code, result.out, result.err) == (0, f"memc {version('memc')}\n", "")


def test_no_arguments_give_help_and_a_usage_error(memc) -> None:
    result = memc()
    assert result.code == 2 and result.out == ""
    assert result.err.startswith("Usage: memc") and "error" not in result.err


@pytest.mark.parametrize("verb", ["compile", "run", "verify", "opt"])
def test_help(memc, verb: str) -> None:
    result = memc(verb, "--help")
    assert result.code == 0 and result.out.startswith(f"Usage: memc {verb} [OPTIONS]") and result.err == ""
    assert verb in memc("--help").out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["frobnicate"], "No such command 'frobnicate'."),
        (["compile"], "Missing argument 'MODEL'."),
        (["compile", "m.onnx", "--opt-lvel", "2"], "no option --opt-lvel; did you mean --opt-level?"),
        (
            ["compile", "m.onnx", "--batch", "2"],
            "no option --batch; an open dimension is bound by --dim batch=N; options:",
        ),
        (
            ["plan", "m.onnx", "--seq", "2"],
            "no option --seq; an open dimension is bound by --dim seq=N; options: memc plan",
        ),
        (["run", "m.memc", "--batch", "2"], "no option --batch; options: memc run --help"),
        (
            ["verify", "m.onnx", "--print-pass-times"],
            "no option --print-pass-times (of memc compile, opt); options: memc verify --help",
        ),
        (["compile", "m.onnx", "--reorder"], "no option --reorder (of memc plan); options: memc compile --help"),
        (["run", "a.memc", "--seed", "x"], "Invalid value for '--seed'"),
    ],
)
def test_usage(memc, arguments: list[str], message: str) -> None:
    result = memc(*arguments)
    assert result.code == 2 and result.out == ""
    assert result.err.startswith(f"memc: error: {message}") and result.err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CheckError("what"), 1),
        (UsageError("what"), 2),
        (InvalidError("what"), 3),
        (UnsupportedError("what"), 3),
        (BudgetError("what"), 4),
        (MemoryError(), 4),
    ],
)
def test_exit_codes(memc, model: str, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise error

    monkeypatch.setattr(driver, "compile", fail)
    result = memc("compile", model)
    assert result.code == code and result.err.startswith("memc: error: ") and result.err.count("\n") == 1


def test_interrupted(memc, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(driver, "compile", interrupt)
    result = memc("compile", model)
    assert (result.code, result.out, result.err) == (130, "", "memc: error: interrupted\n")


INTERRUPTED = """
import os, signal, sys

class AtImport:
    def find_spec(self, name, path, target=None):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, AtImport())
from memc.cli import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize("arguments", [["typer", "--version"], ["numpy", "run", "--help"], ["onnx", "compile", MODEL]])
def test_interrupted_while_libraries_load(arguments: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, *arguments], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "memc: error: interrupted\n")


def test_interrupts_are_ordinary_once_they_are_loaded(memc) -> None:
    before = signal.getsignal(signal.SIGINT)
    assert memc("--version").code == 0 and signal.getsignal(signal.SIGINT) is before


def test_a_bug_shows_its_traceback(memc, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "compile", lambda *args, **kwargs: {}["bug"])
    result = memc("compile", model)
    assert result.code == 70 and "Traceback" in result.err
    assert result.err.splitlines()[-1].startswith("memc: error: internal error: KeyError: 'bug'; please report")


@pytest.mark.parametrize("module", ["memc", "memc.cli"])
def test_as_a_module(module: str) -> None:
    done = subprocess.run([sys.executable, "-m", module, "opt", "-"], input="func", capture_output=True, text=True)
    assert done.returncode == 3 and done.stdout == ""
    assert done.stderr.startswith("memc: error: <stdin>:1:")


@pytest.mark.parametrize("reader", ["head -n 1", "true"])
@pytest.mark.parametrize("lines", [1, 20000])
def test_a_closed_pipe_is_no_error(tmp_path: Path, reader: str, lines: int) -> None:
    path = tmp_path / "long.memir"
    body = "".join(f"  %v{n + 1} = neg(%v{n}) : f32[1]\n" for n in range(lines))
    path.write_text(f"func @main(%v0: f32[1] {{role = input}}) -> f32[1] {{\n{body}  return %v{lines}\n}}\n")
    command = f"{sys.executable} -m memc opt {path} | {reader}; echo ${{PIPESTATUS[0]}} >&2"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.stderr == "0\n" and done.stdout.startswith("" if reader == "true" else "func @main(")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_standard_output() -> None:
    command = f"{sys.executable} -m memc opt --list-ops > /dev/full"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "memc: error: standard output: cannot write: No space left on device\n"


def loaded_by(arguments: list[str]) -> set[str]:
    """The modules that a command has loaded when it is done."""
    script = (
        f"import sys\nfrom memc.cli import main\nassert main({arguments!r}) == 0\nprint(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    assert "memc.cli.app" in loaded
    return loaded


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["estimate", "--help"], ["estimate", MODEL, "--dim", "batch=2", "-q"]]
)
def test_a_verb_loads_no_more_than_it_needs(arguments: list[str]) -> None:
    """The compiler's passes, TVM and PyTorch take a second and more to load."""
    loaded = loaded_by(arguments)
    assert not loaded & {"memc.driver", "memc.passes", "memc.passes.base", "memc.ir.ops", "tvm", "torch"}
    if arguments[0].startswith("--"):
        assert not loaded & {"numpy", "memc.cli.estimate"}


def test_running_an_artifact_loads_no_compiler(memc, tmp_path: Path) -> None:
    (tmp_path / "one.memir").write_text(
        "func @main(%x: f32[4] {role = input}) -> f32[4] {\n  %y = neg(%x) : f32[4]\n  return %y\n}\n"
    )
    assert memc("compile", "one.memir", "-q").code == 0
    loaded = loaded_by(["run", str(tmp_path / "one.memc"), "--input", "x=1", "-q"])
    assert "memc.runtime.execute.executable" in loaded
    assert not loaded & {"memc.driver", "memc.passes.base", "memc.ir.ops", "memc.frontend.sources", "onnx"}


def test_a_report_of_a_problem_loads_no_estimator(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("id,lower,upper,size\na,0,2,64\n")
    loaded = loaded_by(["report", str(tmp_path / "p.csv"), "-o", str(tmp_path / "p.html"), "-q"])
    assert "memc.picture.page" in loaded
    assert not loaded & {"memc.estimation", "memc.frontend.torch.importer", "memc.frontend.onnx", "tvm", "torch"}


def test_all_verbs_are_there(capsys: pytest.CaptureFixture[str]) -> None:
    """In the help, in the order of work, and as commands with their options."""
    assert app.main(["--help"]) == 0
    lines = capsys.readouterr().out.split("Commands:\n")[1].splitlines()
    assert [line.split()[0] for line in lines if line.strip()] == [*app.VERBS]
    command: Any = typer.main.get_command(app.app)
    for name, (_, about) in app.VERBS.items():
        assert command.commands[name].name == name and command.commands[name].get_short_help_str() == about
    assert app.main(["estimatee"]) == 2
    assert "Did you mean 'estimate'?" in capsys.readouterr().err
