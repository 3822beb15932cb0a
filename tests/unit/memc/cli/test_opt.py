# SPDX-License-Identifier: Apache-2.0
"""memc opt: text in, text out. (What passes do is tested in tests/golden.)"""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

IN_PLACE = """\
func @main(%x: f32[16] {role = input}) -> (f32[1] {name = "y"}) {
  %a = exp(%x) : f32[16]
  %b = neg(%a) plan {in_place = 0} : f32[16] alias %a[0]
  %c = reduce_sum(%b) {axes = [0], keepdims = true} : f32[1]
  return %c
}
"""


def test_round_trip(memc, text: str) -> None:
    result = memc("opt", text)
    assert (result.code, result.out, result.err) == (0, Path(text).read_text(), "")


def test_passes_to_a_file_and_from_stdin(memc, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    result = memc("opt", text, "-p", "in-place", "-o", "out.memir")
    assert (result.code, result.out) == (0, "") and Path("out.memir").read_text() == IN_PLACE
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(Path(text).read_bytes())))
    assert memc("opt", "-", "--pass-pipeline", "in-place").out == IN_PLACE


def test_imports_onnx(memc, model: str) -> None:
    result = memc("opt", model, "--dim", "batch=7")
    assert result.code == 0 and result.out.startswith("func @main(%x: f32[7,4] {role = input}")
    assert 'loc("matmul")' in result.out and '-> (f32[7,3] {name = "y"})' in result.out
    result = memc("opt", model, "--input-shapes", "x:[2,4]", "--bind", "x=[[1,1,1,1],[1,1,1,1]]", "-p", "canonicalize")
    assert result.code == 0 and "role = input" not in result.out


def test_dumps(memc, text: str) -> None:
    result = memc("opt", text, "-p", "canonicalize,in-place", "--print-ir-after-all", "-o", "out.memir")
    banners = [line for line in result.err.splitlines() if line.startswith("//")]
    assert banners == [
        "// -----// IR Dump After Canonicalize (canonicalize) //----- //",
        "// -----// IR Dump After InPlace (in-place) //----- //",
    ]
    result = memc("opt", text, "-p", "canonicalize,in-place", "--print-ir-after-change")
    assert result.err == f"// -----// IR Dump After InPlace (in-place) //----- //\n{IN_PLACE}\n"
    assert result.out == IN_PLACE
    times = memc("opt", text, "-p", "canonicalize,in-place", "--print-pass-times", "-o", "out.memir").err.splitlines()
    told = ["canonicalize", "in-place", "peaks before passes", "verification"]
    assert [line.split(maxsplit=2)[1:] for line in times] == [["s", name] for name in told]


def test_stop_after(memc, text: str) -> None:
    both = "in-place,assign-addresses"
    assert memc("opt", text, "-p", both, "--stop-after", "0").out == Path(text).read_text()
    assert memc("opt", text, "-p", both, "--stop-after", "1").out == IN_PLACE
    assert "@arena[0]" in memc("opt", text, "-p", both, "--stop-after", "2").out
    assert memc("opt", text, "-p", both, "--stop-after", "-1").code == 2


def test_split_input(memc, text: str) -> None:
    good = Path(text).read_text()
    Path("parts.memir").write_text(f"{good}// -----\nfunc @main(\n// -----\n{good}")
    result = memc("opt", "parts.memir", "--split-input-file")
    assert result.code == 3 and result.out == f"{good}// -----\n{good}"
    assert result.err.startswith("memc: error: parts.memir:8:")


def test_lists(memc) -> None:
    passes = memc("opt", "--list-passes").out.splitlines()
    names = [line.split()[0] for line in passes]
    assert names == sorted(names)
    assert {"assign-addresses", "canonicalize", "decompose", "fuse", "in-place", "materialize-returns", "share"} <= set(
        names
    )
    assert any(line.startswith("share ") and "strategy=color" in line for line in passes)
    ops = memc("opt", "--list-ops").out.splitlines()
    assert [line.split()[0] for line in ops] == sorted(line.split()[0] for line in ops)
    assert {"conv", "matmul", "softmax", "reshape"} <= {line.split()[0] for line in ops}
    assert all(len(line.split(maxsplit=1)) == 2 for line in ops)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "missing FILE: give .memir text, an .onnx model, or - for standard input"),
        (["none.memir"], 3, "none.memir: cannot read: No such file or directory"),
        (["latin.memir"], 3, "latin.memir: expected UTF-8 text, got unexpected end of data at byte 6"),
        (
            ["small.memir", "-p", "in-place{"],
            2,
            "pass pipeline, position 10: expected '}' after the options of in-place",
        ),
        (["small.memir", "-p", "share{strategy=blue}"], 2, "pass pipeline, position 16: option 'strategy' of share: "),
        (
            ["small.memir", "-p", "in-place{alignment=x}"],
            2,
            "pass pipeline, position 20: option 'alignment' of in-place",
        ),
        (
            ["small.memir", "-p", "assign-addresses{solver=magic}"],
            2,
            "pass pipeline, position 25: option 'solver' of assign-addresses: expected one of auto, best-fit, first-fit, ",
        ),
        (["small.memir", "-o", "nowhere/x"], 2, "nowhere/x: cannot write: No such file or directory"),
        (["bad.memir"], 3, "bad.memir:2:8: expected a registered op, got rellu; did you mean relu?"),
    ],
)
def test_errors(memc, text: str, arguments: list[str], code: int, message: str) -> None:
    Path("latin.memir").write_bytes(b"// caf\xe9")
    Path("bad.memir").write_text(
        "func @main(%x: f32[2] {role = input}) -> f32[2] {\n  %0 = rellu(%x) : f32[2]\n  return %0\n}\n"
    )
    result = memc("opt", *arguments)
    assert result.code == code and result.out == "" and result.err.startswith(f"memc: error: {message}")


def test_a_pipeline_that_trains_keeps_weights_as_states(memc, model):
    result = memc("opt", model, "--dim", "batch=2", "-p", "build-gradient{loss=mse}")
    assert result.code == 0
    assert "%w: f32[4,3] {role = state}" in result.out and "%one: f32[1] {role = state}" in result.out
