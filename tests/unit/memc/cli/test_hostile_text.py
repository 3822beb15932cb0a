# SPDX-License-Identifier: Apache-2.0
"""IR text that is wrong, or nearly so, through every verb that reads it: one line and exit code 2 or 3, or right results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import memc as package
from memc.ir.core import Function, Op, Role, Value
from memc.ir.errors import InvalidError
from memc.ir.module import Module
from memc.ir.text.parser import parse
from memc.ir.types import DType, TensorType

HEAD = 'func @main(%x: f32[4] {role = input}) -> (f32[4] {name = "y"}) {\n'


def body(ops: str, head: str = HEAD) -> str:
    return head + "".join(f"  {line}\n" for line in ops.split("\n")) + "  return %y\n}\n"


INVALID = {
    "slice beyond": (body("%y = slice(%x) {starts = [0], stops = [4611686018427387904], steps = [1]} : f32[4]"), "stop"),
    "steps of 0": (body("%y = slice(%x) {starts = [0], stops = [4], steps = [0]} : f32[4]"), "step other than 0"),
    "alias to itself": (body("%y = neg(%x) : f32[4] alias %y[0]"), "no alias itself"),
    "alias cycle": (body("%a = neg(%x) : f32[4] alias %y[0]\n%y = neg(%a) : f32[4] alias %a[0]"), "no alias itself"),
    "alias beyond": (body("%a = neg(%x) : f32[4]\n%y = reshape(%a) {shape = [4]} : f32[4] alias %a[8]"), "16 bytes"),
    "input written": (body("%y = neg(%x) plan {in_place = 0} : f32[4] alias %x[0]"), "no write to %x"),
    "in_place": (body("%y = neg(%x) plan {in_place = 7} : f32[4]"), "one of 1 operands, got 7"),
    "no attribute": (body("%y = transpose(%x) : f32[4]"), "attribute `perm`, got None"),
    "attribute": (body('%y = transpose(%x) {perm = "zero"} : f32[4]'), "attribute `perm`, got 'zero'"),
    "no yield": (body("%y = fused(%x) region(%p: f32[4]) {\n  yield\n} : f32[4]"), "yielded values"),
    "nested": (
        body(
            "%y = fused(%x) region(%p: f32[4]) {\n%q = fused(%p) region(%r: f32[4]) {\n%s = neg(%r) : f32[4]\nyield %s\n"
            "} : f32[4]\nyield %q\n} : f32[4]"
        ),
        "a group inside a group",
    ),
    "foreign inside": (
        body('%y = fused(%x) region(%p: f32[4]) {\n%q = "magic"(%p) : f32[4]\nyield %q\n} : f32[4]'),
        "the foreign op magic",
    ),
    "overlap": (
        body("%a = neg(%x) : f32[4] @arena[0]\n%b = exp(%x) : f32[4] @arena[8]\n%y = add(%a, %b) : f32[4]"),
        "%a: expected its data at byte 8 of its space, got %b",
    ),
    "overlap in a space of its own": (
        body("%a = neg(%x) : f32[4] @s[64]\n%b = exp(%x) : f32[4] @s[64]\n%y = add(%a, %b) : f32[4]"),
        "%a: expected its data at byte 64 of its space, got %b",
    ),
    "overlap of the result": (
        body("%a = neg(%x) : f32[4] @arena[0]\n%b = exp(%a) : f32[4] @arena[64]\n%y = add(%a, %b) : f32[4] @arena[64]"),
        "expected bytes apart from operand 1",
    ),
    "overlap in part": (
        body("%a = neg(%x) : f32[4] @arena[0]\n%b = exp(%x) : f32[4]\n%c = exp(%x) : f32[4] @arena[12]\n"
             "%d = add(%a, %b) : f32[4]\n%y = add(%c, %d) : f32[4]"),
        "%a: expected its data at byte 12 of its space, got %c",
    ),
    "overlap of a workspace": (
        body("%a = neg(%x) : f32[4] @arena[0]\n%y = exp(%a) workspace(%w: u8[16] @arena[0]) : f32[4]"),
        "%w: expected bytes apart from operand 0",
    ),
    "a placed input": (body("%y = neg(%x) : f32[4]", HEAD.replace("%x: f32[4]", "%x: f32[4] @arena[0]")), "its own bytes"),
    "rank": (body("%y = neg(%x) : f32[4]").replace("f32[4]", f"f32[{','.join('1' * 40)}]"), "rank of at most 32"),
    "no main": (body("%y = neg(%x) : f32[4]").replace("@main", "@other"), "function @main, where execution begins, got @other"),
    "empty": ("", "got no function"),
    "comment": ("// nothing\n", "got no function"),
}  # fmt: skip

READERS = (
    ["opt"],
    ["opt", "-p", "canonicalize,fuse,reorder,in-place,assign-addresses"],
    ["plan", "-q"],
    ["compile", "-q"],
    ["compile", "--plan-only", "-q", "-O0"],
    ["verify", "--against", "numpy", "-q"],
    ["bench", "--runs", "1"],
)


@pytest.mark.parametrize("arguments", READERS, ids=" ".join)
@pytest.mark.parametrize("name", INVALID)
def test_invalid_text_is_the_users(memc, name: str, arguments: list[str]) -> None:
    text, message = INVALID[name]
    Path("case.memir").write_text(text)
    result = memc(*arguments, "case.memir")
    if arguments[0] == "opt" and name == "no main":  # Passes work on any function.
        assert result.code == 0 and result.out.startswith("func @other(")
        return
    assert result.code == 3 and result.out == "", result.err
    assert result.err.startswith("memc: error: case.memir") and len(result.err.splitlines()) <= 4
    assert (message in result.err.splitlines()[0]) or (arguments[0] == "opt" and "expected a function" in result.err)
    assert "after pass" not in result.err and sorted(p.name for p in Path().iterdir()) == ["case.memir"]


VALID = (
    # The bytes of %a are free once %b is there; the second placement of a returned value does no harm.
    "%a = neg(%x) : f32[4] @arena[0]\n%b = exp(%a) : f32[4] @arena[64]\n%c = neg(%b) : f32[4] @arena[0]\n"
    "%y = add(%c, %b) : f32[4]",
    "%a = neg(%x) : f32[4] @arena[0]\n%b = relu(%a) plan {in_place = 0} : f32[4] alias %a[0] @arena[0]\n%y = neg(%b) : f32[4]",
    "%a = neg(%x) : f32[4] @arena[0]\n%b = exp(%x) : f32[4]\n%y = add(%a, %b) : f32[4]",
    "%a = neg(%x) : f32[4] @buffer.0[0]\n%b = exp(%x) : f32[4] @buffer.1[0]\n%y = add(%a, %b) : f32[4]",
)


@pytest.mark.parametrize("ops", VALID)
def test_placed_text_that_is_right(memc, ops: str) -> None:
    Path("case.memir").write_text(body(ops))
    assert memc("opt", "case.memir").out == body(ops)
    assert memc("plan", "case.memir", "-q").code == 0
    assert memc("verify", "case.memir", "--against", "numpy", "-q").code == 0


def test_modules_in_python_are_verified_too() -> None:
    x = Value("x", TensorType(DType.F32, (4,)), role=Role.INPUT)
    y = Value("y", TensorType(DType.F32, (3,)))
    module = Module([Function([x], [Op("neg", [x], [y])], [y])])
    for use in (package.compile, package.plan):
        with pytest.raises(
            InvalidError, match=r"invalid IR: @main, op 0 neg, value %y: expected type f32\[4\], got f32\[3\]"
        ):
            use(module)
        with pytest.raises(InvalidError, match="expected a function @main"):
            use(Module())


def test_given_places_must_suit_the_code(memc) -> None:
    ops = "%a = neg(%x) : f32[4] @arena[4]\n%b = exp(%a) : f32[4] @arena[64]\n%y = add(%a, %b) : f32[4]"
    Path("case.memir").write_text(body(ops))
    result = memc("compile", "case.memir", "-p", "", "-q")
    assert result.code == 3 and "multiple of 64" in result.err and not Path("case.memc").exists()
    assert memc("compile", "case.memir", "-q").code == 0  # Which places them anew.


@pytest.mark.parametrize("shape", ["f32[1099511627776]", "u8[1048576,1048576,1048576]"])
def test_huge_values_are_planned_and_not_allocated(memc, shape: str) -> None:
    text = (
        f"func @main(%x: {shape} {{role = input}}) -> {shape} {{\n  %a = exp(%x) : {shape}\n  %y = neg(%a) : {shape}\n"
    )
    Path("huge.memir").write_text((text + "  return %y\n}\n").replace("exp", "abs" if shape[0] == "u" else "exp"))
    for arguments in (["opt", "-p", "canonicalize"], ["plan", "-q"], ["compile", "--plan-only", "-q"]):
        assert memc(*arguments, "huge.memir").code == 0
    for arguments in (["verify", "--against", "numpy"], ["bench", "--runs", "1", "--warmup", "0"]):
        result = memc(*arguments, "huge.memir")
        assert result.code == (3 if shape[0] == "u" and arguments[0] == "bench" else 4) and result.err.splitlines()[
            -1
        ].startswith("memc: error: ")


@pytest.mark.parametrize("alignment", [2**41, 2**63, 10**40, 0, -64, 3])
def test_alignment(memc, text: str, alignment: int) -> None:
    result = memc("compile", text, "--plan-only", "--alignment", str(alignment))
    assert result.code == 2 and str(alignment)[:40] in result.err and result.err.count("\n") == 1


def test_long_chains_take_linear_time(memc) -> None:
    links = "".join(f"%v{n + 1} = relu(%v{n}) plan {{in_place = 0}} : f32[4] alias %v0[0]\n" for n in range(6000))
    text = body(f"%v0 = neg(%x) : f32[4]\n{links}%y = neg(%v6000) : f32[4]")
    Path("chain.memir").write_text(text)
    assert memc("opt", "chain.memir").out == text
    done = memc("plan", "chain.memir", "--json", "-")
    assert done.code == 0 and json.loads(done.out)["peak"] == 64


@pytest.mark.parametrize("name", ["é→😀", 'a\\n\\u0000\\"', "\\ud800", "", "%x", "a b"])
def test_names_of_any_characters(memc, name: str) -> None:
    text = body(f'%"{name}" = exp(%x) : f32[4] loc("{name}")\n%y = neg(%"{name}") : f32[4]')
    Path("case.memir").write_text(text, encoding="utf-8")
    assert memc("opt", "case.memir", "-o", "out.memir").code == 0
    again = parse(Path("out.memir").read_text(encoding="utf-8"))
    assert again.main.ops[0].result.name == parse(text).main.ops[0].result.name
    assert memc("compile", "case.memir", "-q").code == 0
    x = np.array([1, -2, 0, 3], np.float32)
    found = package.load("case.memc").run_numpy({"x": x})["y"]
    np.testing.assert_allclose(found, -np.exp(x), rtol=1e-6)


ENVIRONMENTS = (
    {"PYTHONIOENCODING": "ascii"},
    {"LC_ALL": "C"},
    {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
)


@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=str)
def test_standard_output_in_ascii(memc, environment: dict[str, str]) -> None:
    text = body('%y = neg(%"é→😀") : f32[4]', HEAD.replace("%x", '%"é→😀"'))
    Path("case.memir").write_text(text, encoding="utf-8")
    for arguments in (["opt"], ["compile"], ["plan"], ["plan", "--csv", "-"]):
        done = subprocess.run(
            [sys.executable, "-m", "memc", arguments[0], "case.memir", *arguments[1:]],
            env={**os.environ, **environment},
            capture_output=True,
        )
        assert (done.returncode, done.stderr) == (0, b"") and done.stdout
        if arguments == ["opt"]:
            assert done.stdout.decode("utf-8") == text
    assert "é→😀" in Path("case.memc/model.memir").read_text(encoding="utf-8")


def shell(command: str) -> tuple[int, str, str]:
    done = subprocess.run(["bash", "-c", f"{sys.executable} -m memc {command}"], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def test_closed_standard_streams(memc, text: str) -> None:
    closed = "memc: error: standard output: cannot write: Bad file descriptor\n"
    for command in (f"opt {text}", "--help", f"compile {text} --plan-only", "opt --list-ops"):
        assert shell(f"{command} >&-") == (2, "", closed)
    # With nothing to write there is nothing wrong, and no file gets the place of the closed descriptors.
    assert shell(f"compile {text} -q -o a.memc <&- >&- 2>&-") == (0, "", "")
    assert shell(f"compile {text} -q -o b.memc") == (0, "", "")
    assert Path("a.memc/model.memir").read_text() == Path("b.memc/model.memir").read_text()
    assert shell("opt nosuch.memir 2>&-") == (3, "", "")
    assert shell("opt - <&-")[0] in (2, 3)
