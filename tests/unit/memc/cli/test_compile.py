# SPDX-License-Identifier: Apache-2.0
"""memc compile: the summary, JSON, options and errors."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from memc.runtime.codegen import schedule_cpu


def test_summary_and_artifact(memc, model: str) -> None:
    result = memc("compile", model, "--dim", "batch=2")
    assert result.code == 0 and result.err == ""
    lines = result.out.splitlines()
    assert lines[0].startswith("tiny.onnx: llvm -mcpu=") and "-O2" in lines[0]
    assert lines[-1] == "wrote tiny.memc"
    cells = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines if line.startswith("│")]
    rows = {cell[0]: cell[1:] for cell in cells}
    # matmul, relu and add each have 2x3 f32, rounded up to 64 bytes; the last is the output.
    assert rows["unoptimized"] == ["128 B", "128 B"]
    # They run in place over the output.
    assert rows["arena"][0] == rows["lower bound"][0] == "0 B" and rows["gap"][0] == "0.00 %"
    # 48 bytes of w, and the constant.
    assert rows["weights"][0] == "128 B"
    assert rows["inputs and outputs"][0] == "56 B" and rows["peak"][0] == "184 B"
    assert sorted(os.listdir("tiny.memc")) == ["model.memir", "model.so", "plan.json", "weights.safetensors"]


def test_json_alone_on_stdout(memc, model: str) -> None:
    result = memc("compile", model, "--dim", "batch=2", "--json", "-", "-o", "out.memc")
    report = json.loads(result.out)
    assert result.code == 0
    assert report["io_bytes"] == 56 and report["dims"] == {"batch": 2} and report["opt_level"] == 2
    assert report["peak_bytes"] == report["arena_bytes"] + report["weights_bytes"] + report["io_bytes"]
    plan = json.loads(Path("out.memc/plan.json").read_text())
    assert plan["spaces"][0]["bytes"] == report["arena_bytes"]
    # The file was written before the time that it took was known.
    assert {**plan["report"], "seconds": None} == {**report, "seconds": None}


def test_quiet(memc, model: str) -> None:
    result = memc("compile", model, "--dim", "batch=2", "-q", "--json", "report.json")
    assert (result.code, result.out, result.err) == (0, "", "")
    assert json.loads(Path("report.json").read_text())["weights_bytes"] == 128


def test_an_open_batch_is_one_and_says_so(memc, model: str) -> None:
    result = memc("compile", model, "--plan-only", "-o", "-")
    assert result.code == 0 and "%x: f32[1,4]" in result.out
    assert result.err.startswith("memc: warning: ") and "`x`" in result.err and result.err.count("\n") == 1


@pytest.mark.parametrize("arguments", [["--dim", "batch=5"], ["--input-shapes", "x:[5,4]"]])
def test_plan_only_writes_text(memc, model: str, arguments: list[str]) -> None:
    result = memc("compile", model, *arguments, "--plan-only", "-q", "-o", "planned.memir")
    assert (result.code, result.out) == (0, "")
    text = Path("planned.memir").read_text()
    assert text.startswith("func @main(%x: f32[5,4]") and text.endswith("}\n") and not text.endswith("\n\n")
    assert memc("opt", "planned.memir").out == text


def test_levels(memc, model: str) -> None:
    arenas = []
    for level in ("-O0", "-O1", "--opt-level=2", "-O3"):
        result = memc("compile", model, "--dim", "batch=100", "--plan-only", "--json", "-", level)
        arenas.append(json.loads(result.out)["arena_bytes"])
    # 100x3 f32 are 1216 bytes rounded up; two of the three results are in the arena at -O0, none in place.
    assert arenas[0] >= 2 * 1216 and arenas[1] == arenas[2] == arenas[3] == 0


def test_disabled_pass_and_pass_times(memc, model: str) -> None:
    result = memc(
        "compile",
        model,
        "--dim",
        "batch=2",
        "--plan-only",
        "-o",
        "-",
        "-q",
        "--disabled-pass",
        "fuse,fuse-library,in-place",
    )
    assert result.code == 0 and "fused" not in result.out and "in_place" not in result.out
    result = memc("compile", model, "--dim", "batch=2", "--plan-only", "-q", "--print-pass-times", "-p", "canonicalize")
    told = ["canonicalize", "peaks before passes", "verification"]
    assert result.code == 0
    assert [line.split(maxsplit=2)[1:] for line in result.err.splitlines()] == [["s", name] for name in told]


def test_budget(memc, model: str) -> None:
    arguments = ["compile", model, "--dim", "batch=2", "--plan-only", "-q", "--memory-budget"]
    assert memc(*arguments, "184").code == 0
    result = memc(*arguments, "183")
    assert result.code == 4
    assert result.err == (
        "memc: error: memory budget of 183 bytes (183 B) cannot be met: the least reachable peak is 184 bytes "
        "(184 B: arena 0, weights 128, inputs and outputs 56)\n"
    )


REPEATED = """\
func @main(%x: f32[64,4] {role = input}) -> (f32[] {name = "y"}) {
  %a = exp(%x) : f32[64,4]
  %v = reshape(%a) {shape = [4, 64]} : f32[4,64]
  %b = transpose(%v) {perm = [1, 0]} : f32[64,4]
  %c = sin(%b) : f32[64,4]
  %d = transpose(%c) {perm = [1, 0]} : f32[4,64]
  %e = mul(%d, %v) : f32[4,64]
  %y = reduce_sum(%e) {axes = [0, 1], keepdims = false} : f32[]
  return %y
}
"""


def test_what_recomputation_costs(memc) -> None:
    """exp runs twice. All live bytes are 1 KiB results; what an op costs is its start and the bytes that it moves."""
    Path("model.memir").write_text(REPEATED)
    moved = [2048, 2048, 2048, 2048, 3072, 1028]
    seconds = [1e-6 + nbytes / 15e9 for nbytes in moved]
    arguments = ("compile", "model.memir", "--plan-only", "-p", "rematerialize{budget=2KiB},in-place,assign-addresses")
    result = memc(*arguments, "--json", "report.json")
    report = json.loads(Path("report.json").read_text())
    assert report["recomputation"] == {
        "ops": 1,
        "added_percent": pytest.approx(100 * seconds[0] / sum(seconds), abs=1e-3),
        "arena_bytes_without": 3072,
        "peak_bytes_without": 3072 + 1024 + 4,
    }
    assert (report["arena_bytes"], report["peak_bytes"]) == (2048, 2048 + 1024 + 4)
    rows = [" ".join(line.replace("│", " ").split()) for line in result.out.splitlines()]
    at = rows.index("peak 3,076 B 3.00 KiB")
    assert rows[at + 1 : at + 3] == ["peak, no recomputation 4,100 B 4.00 KiB", "ops recomputed 1 16.67 % more time"]


def test_no_word_of_recomputation_without_a_budget(memc, model: str) -> None:
    result = memc("compile", model, "--dim", "batch=2", "--plan-only", "--json", "report.json")
    assert json.loads(Path("report.json").read_text())["recomputation"] is None
    assert "recomputed" not in result.out
    result = memc("compile", model, "--dim", "batch=2", "--plan-only", "--memory-budget", "184")
    assert "ops recomputed 0 0.00 % more time" in " ".join(result.out.replace("│", " ").split())


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--dim", "bach=2"], 2, "dims: the model has no `bach`; there are: `batch`"),
        (["--dim", "batch"], 2, "--dim batch: expected NAME=VALUE"),
        (["--dim", "batch=-1"], 2, "--dim batch=-1: expected a whole number from 0 to 2147483647"),
        (["--dim", "batch=1", "--dim", "batch=2"], 2, "--dim batch=2: `batch` is given twice"),
        (["--input-shapes", "x[1]"], 2, '--input-shapes: expected "name:[1,3,224,224] other:[1,2]", got `x[1]`'),
        (["-O4"], 2, "optimization level: expected 0 to 3, got 4"),
        (["--target", "rocm"], 2, "target: expected one of llvm, cuda, got 'rocm'"),
        (["--arch", "sm_90"], 2, "arch 'sm_90': only target cuda has GPU architectures"),
        (["--kernels", "fast"], 2, "kernels: expected one of auto, library, generated, got 'fast'"),
        (["--alignment", "0"], 2, "alignment: expected a power of two of bytes, got 0"),
        (["--alignment", "96"], 2, "alignment: expected a power of two of bytes, got 96"),
        (["--alignment", "32"], 2, "alignment: expected at least 64, which kernels rely on, got 32"),
        (["--memory-budget", "4GoB"], 2, "size `4GoB`: expected a number of bytes with an optional unit"),
        (["--disabled-pass", "fuze"], 2, "disabled pass `fuze`: expected one of assign-addresses,"),
        (["--plan-only", "--json", "-", "-o", "-"], 2, "--json - and --output -: only one of them can have standard"),
        (["-p", "fuze"], 2, "pass pipeline, position 1: unknown pass 'fuze' (did you mean 'fuse'?)"),
        (["-p", "decompose", "--dim", "batch=2"], 2, "%m has no place in the arena: end the pipeline with assign-"),
        (["--bind", "x=hello"], 2, "value `hello`: expected @file.npy, a number, true, false or a JSON list"),
        (["--json", "/nowhere/x.json", "--dim", "batch=1"], 2, "/nowhere/x.json: cannot write: No such file"),
    ],
)
def test_errors(memc, model: str, arguments: list[str], code: int, message: str) -> None:
    result = memc("compile", model, *arguments)
    assert result.code == code and result.out == ""
    assert f"memc: error: {message}" in result.err and "Traceback" not in result.err


def test_bad_models(memc) -> None:
    result = memc("compile", "nothing.onnx")
    assert (result.code, result.err) == (3, "memc: error: invalid: `nothing.onnx`: no such file\n")
    Path("junk.onnx").write_bytes(b"junk" * 9)
    result = memc("compile", "junk.onnx")
    assert result.code == 3 and result.err.startswith("memc: error: invalid: `junk.onnx`: not an ONNX model")
    Path("weights.memir").write_text(
        "func @main(%w: f32[2] {role = weight}) -> f32[2] {\n  %0 = neg(%w) : f32[2]\n  return %0\n}\n"
    )
    result = memc("compile", "weights.memir")
    assert result.code == 2 and "no data for weight `%w`" in result.err
    Path("foreign.memir").write_text(
        'func @main(%x: f32[2] {role = input}) -> f32[2] {\n  %0 = "a.b"(%x) : f32[2]\n  return %0\n}\n'
    )
    result = memc("compile", "foreign.memir")
    assert result.code == 3 and "op a.b is not registered" in result.err
    assert [name for name in os.listdir() if name.endswith(".memc") or name.startswith(".")] == []


def test_nothing_but_an_artifact_is_replaced(memc, model: str) -> None:
    Path("notes.txt").write_text("mine")
    result = memc("compile", model, "--dim", "batch=1", "-o", "notes.txt")
    assert result.code == 2 and "exists and is not an artifact" in result.err
    assert Path("notes.txt").read_text() == "mine"
    for batch in (1, 3):
        assert memc("compile", model, "--dim", f"batch={batch}", "-q", "-o", "a.memc").code == 0
    assert json.loads(Path("a.memc/plan.json").read_text())["inputs"][0]["shape"] == [3, 4]


def test_training_options_that_do_not_fit(memc, model):
    train = ("compile", model, "--dim", "batch=2", "--train", "--plan-only", "-q")
    for options, message in [
        (
            ("--optimizer-options", "momemtum=1"),
            "--optimizer-options 'momemtum=1': optimizer has no option 'momemtum' (did",
        ),
        (
            ("--optimizer-options", "momentum=x"),
            "--optimizer-options 'momentum=x': option 'momentum' of optimizer: expected",
        ),
        (("--optimizer-options", "loss=mse"), "--optimizer-options 'loss=mse': optimizer has no option 'loss'"),
        (("--optimizer-options", "momentum=1},x{"), "expected NAME=VALUE pairs, got braces"),
        (("--optimizer-options", "beta1=0.5"), "optimizer sgd: has no option beta1"),
        (("--freeze", "*"), "nothing to train: result `y` depends on no weight that is not frozen"),
        (("--seed", "-1"), "seed: expected a whole number from 0 to 2147483647, got -1"),
    ]:
        result = memc(*train, *options)
        assert result.code == 2 and message in result.err and result.err.count("\n") == 1
    for option in (["--no-dropout"], ["--seed", "1"], ["--clip-norm", "1"]):
        result = memc("compile", model, "--dim", "batch=2", *option)
        assert result.code == 2 and "need --train" in result.err


def test_training_options_reach_the_step(memc, model):
    result = memc(
        *("compile", model, "--dim", "batch=2", "--train", "--plan-only", "-q", "-o", "-", "--loss", "mse"),
        *("--optimizer-options", "momentum=0.9 nesterov weight-decay=1e-4", "--freeze", "one", "--accumulate", "2"),
    )
    assert result.code == 0 and "%w.momentum: f32[4,3] {role = state}" in result.out
    assert "%one: f32[1] {role = state}" not in result.out and "%x: f32[4,4] {role = input}" in result.out


def test_workspace(memc, model: str) -> None:
    """A size is bytes for `select-workspace`; what is neither a word nor a size is refused."""
    result = memc("compile", model, "--dim", "batch=2", "--plan-only", "--workspace", "4KiB", "--json", "-")
    assert result.code == 0
    report = json.loads(result.out)
    assert "select-workspace{beyond=4096}" in report["pipeline"] and report["workspace_bytes"] == 0
    result = memc("compile", model, "--dim", "batch=2", "--plan-only", "--workspace", "all")
    assert result.code == 2 and "size `all`: expected a number of bytes" in result.err


def test_the_summary_says_what_a_training_step_minimizes(memc, tmp_path: Path) -> None:
    lead = "func @main(%x: f32[4,3] {role = input}, %w: f32[3,5] {role = weight})"
    product = "  %z = matmul(%x, %w) {transpose_a = false, transpose_b = false} : f32[4,5]\n"
    soft = product + "  %y = softmax(%z) {axis = 1} : f32[4,5]\n  return %y\n"
    own = product + "  %y = reduce_mean(%z) {axes = [0, 1], keepdims = false} : f32[]\n  return %y\n"
    gate = product + "  %y = sigmoid(%z) : f32[4,5]\n  return %y\n"
    scores = "softmax-cross-entropy, of %z, the scores before softmax, which the loss applies itself"
    for kind, body, options, message in [
        ("f32[4,5]", soft, [], scores),
        ("f32[4,5]", soft, ["--labels", "probabilities"], scores),
        ("f32[4,5]", soft, ["--loss", "mse"], "mse, of the result %y\n"),
        ("f32[4,5]", gate, ["--loss", "bce"], "bce, of %z, the scores before sigmoid, which the loss applies itself"),
        ("f32[]", own, [], "output, the result %y is the loss"),
        ("f32[]", own, ["--loss", "output"], "output, the result %y is the loss"),
    ]:
        path = tmp_path / "step.memir"
        path.write_text(f"{lead} -> {kind} {{\n{body}}}\n")
        result = memc("compile", str(path), "--train", "--plan-only", *options)
        assert result.code == 0, result.err
        assert f"loss: {message}" in result.out
        result = memc("compile", str(path), "--train", "--plan-only", "--json", "-", *options)
        assert json.loads(result.out)["training"]["loss"] == message.partition(",")[0]


def test_options_of_labels_reach_the_step(memc, model: str) -> None:
    train = ("compile", model, "--dim", "batch=2", "--train", "--plan-only")
    result = memc(*train, "--ignore-index", "1", "--check-labels", "--json", "-")
    labels = json.loads(result.out)["labels"]
    assert labels == [{"input": "labels", "classes": 3, "ignore_index": 1}]
    text = memc(*train, "-q", "-o", "-", "--check-labels", "-O", "0").out
    assert '{name = "labels.outside"}' in text
    for options, message in [
        (["--labels", "names"], "--labels names: expected one of classes, probabilities"),
        (["--loss", "mse", "--ignore-index", "1"], "loss mse has no label to ignore"),
        (["--ignore-index", str(2**63)], "ignore_index: expected a whole number of 64 bits"),
    ]:
        result = memc(*train, *options)
        assert result.code == 2 and message in result.err and result.err.count("\n") == 1


@pytest.mark.parametrize(("failing", "done"), [(1, "using a plain, slower one"), (2, "compiling again without fusing")])
def test_kernels_that_do_not_compile(memc, model: str, monkeypatch, failing: int, done: str) -> None:
    """The command succeeds, and says on stderr of which ops it made other kernels."""
    for name in ("schedule", "schedule_plainly")[:failing]:
        real = getattr(schedule_cpu, name)

        def scheduled(func, real=real):
            if 'sblock("reduced")' in func.script() and 'sblock("result")' in func.script():
                raise RuntimeError("refused")
            return real(func)

        monkeypatch.setattr(schedule_cpu, name, scheduled)
    result = memc("compile", model, "--dim", "batch=2", "--kernels", "generated")
    assert result.code == 0
    (line,) = result.err.splitlines()
    assert line.startswith("memc: warning: matmul + relu + add (") and "(refused)" in line or ": refused; " in line
    assert done in line and "memc: error" not in result.err
    assert memc("verify", model, "--dim", "batch=2", "--kernels", "generated").code == 0
