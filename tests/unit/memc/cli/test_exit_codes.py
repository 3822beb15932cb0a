# SPDX-License-Identifier: Apache-2.0
"""Usage is 2 and what cannot be read is 3, with one line that says what is wrong, whichever verb finds it."""

from __future__ import annotations

from pathlib import Path

import pytest

VERBS = ("compile", "run", "verify", "bench", "estimate", "plan", "report", "opt")
"""Those that read a file."""


@pytest.mark.parametrize("verb", VERBS)
def test_options_that_there_are_not(memc, verb: str) -> None:
    result = memc(verb, "m.onnx", "--no-such-option")
    hint = "" if verb == "run" else "an open dimension is bound by --dim no-such-option=N; "
    assert (result.code, result.out) == (2, "")
    assert result.err == f"memc: error: no option --no-such-option; {hint}options: memc {verb} --help\n"


@pytest.mark.parametrize("verb", VERBS)
def test_files_that_are_not_there(memc, verb: str) -> None:
    result = memc(verb, "none.onnx")
    others = {
        "run": "none.onnx: expected an artifact folder that `memc compile` wrote, found nothing",
        "estimate": "none.onnx: cannot read: No such file or directory",
    }
    what = others.get(verb, "invalid: `none.onnx`: no such file")
    assert (result.code, result.out, result.err) == (3, "", f"memc: error: {what}\n")
    assert not list(Path().iterdir())


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "run"])
@pytest.mark.parametrize("name", ["bad.onnx", "bad.memir", "bad.csv", "bad.json", "bad.pickle", "bad.pt2"])
def test_files_of_nonsense(memc, verb: str, name: str) -> None:
    """Of formats that the verb reads, and of others."""
    Path(name).write_bytes(b"\x80nonsense\xff\n")
    more = ("--against", "numpy") if verb == "verify" else ()  # What onnxruntime does not read is usage.
    result = memc(verb, name, *more)
    assert (result.code, result.out) == (3, "")
    assert result.err.startswith("memc: error: ") and name in result.err and result.err.count("\n") == 1
    assert [path.name for path in Path().iterdir()] == [name]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("compile MODEL --dim bach=2", 2, "dims: the model has no `bach`; there are: `batch`"),
        ("compile MODEL --dim batch=x", 2, "--dim batch=x: "),
        ("compile MODEL --dim batch=2 -O 9", 2, "optimization level: expected 0 to 3, got 9"),
        (
            "compile MODEL --dim batch=2 --memory-budget 1XB",
            2,
            "size `1XB`: expected a number of bytes with an optional unit",
        ),
        ("compile MODEL --dim batch=2 --memory-budget 1", 4, "memory budget of 1 bytes (1 B) cannot be met"),
        ("compile MODEL --input-shapes x:[2,5]", 2, "input `x`: expected shape [batch,4], got [2, 5]"),
        ("run ARTIFACT", 2, "missing inputs: "),
        ("run ARTIFACT --input z=1", 2, "--input z: no such input; expected x"),
        ("run ARTIFACT --input x=@none.npy", 2, "none.npy: cannot read as .npy: "),
        ("run ARTIFACT --input x=1 --output z=z.npy", 2, "--output z=z.npy: no output `z`; expected one of y"),
        ("verify MODEL --dim batch=2 --against torch", 2, "--against torch: "),
        ("verify MODEL --dim batch=2 --rtol -1", 2, "rtol: "),
        ("bench ARTIFACT --runs 0", 2, ""),
        ("bench ARTIFACT --min-time soon", 2, "--min-time soon: "),
        ("estimate MODEL --dim batch=2 --gpu none", 2, "gpu: "),
        ("estimate MODEL --dim batch=2 --memory much", 2, "size `much`: "),
        ("estimate MODEL --dim batch=2 --memory 50%", 2, "memory 50%: expected gpu with it"),
        ("plan p.csv --solver none", 2, ""),
        ("plan p.csv --capacity 1QB", 2, "size `1QB`: "),
        ("plan p.csv --capacity 100", 4, "p.csv: capacity of 100 bytes (100 B)"),
        ("plan p.csv --time-limit soon", 2, "--time-limit soon: "),
        ("plan p.csv --order-solver exact", 2, "--order-solver: "),
        ("report p.csv --device 1", 2, "p.csv: device 1: "),
        ("report p.csv --onnx a.onnx", 2, "an annotated model is written of an .onnx model alone"),
        ("opt p.memir -p none", 2, "pass pipeline, position 1: unknown pass 'none'"),
        ("opt p.memir -p reorder{beam-width=x}", 2, "pass pipeline, "),
        ("completion sh", 2, ""),
    ],
)
def test_what_is_wrong(memc, arguments: str, code: int, message: str, model: str, artifact: str, text: str) -> None:
    Path("p.csv").write_text("id,lower,upper,size\na,0,2,64\nb,1,3,128\n")
    Path(text).rename("p.memir")
    before = sorted(path.name for path in Path().iterdir())
    result = memc(*({"MODEL": model, "ARTIFACT": artifact}.get(word, word) for word in arguments.split()))
    assert (result.code, result.out) == (code, "")
    lines = [line for line in result.err.splitlines() if not line.startswith("memc: warning: ")]
    assert len(lines) == 1 and lines[0].startswith(f"memc: error: {message}")
    assert sorted(path.name for path in Path().iterdir()) == before
