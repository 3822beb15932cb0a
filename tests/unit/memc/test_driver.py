# SPDX-License-Identifier: Apache-2.0
"""Options of `memc.compile` that are wrong are refused by name, before anything is done."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

import memc
from memc.compile_options import Options
from memc.ir.core import Role
from memc.runtime.artifact.write import precision_of


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    return onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y) { y = Exp(x) }'
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dim": {"batch": 1}}, "no option `dim`; options are target, arch"),
        ({"opt_level": "2"}, "opt_level: expected a whole number, got '2'"),
        ({"memory_budget": "1GiX"}, "memory_budget: expected a whole number or text such as 4GiB or 50%, got '1GiX'"),
        ({"disabled_passes": "fuse"}, "disabled_passes: expected a list of names, got 'fuse'"),
        ({"dims": {"batch": "2"}}, "dims: `batch`: expected a whole number, got '2'"),
        ({"precision": "f8"}, "precision: expected one of f32, tf32, f16, bf16, got 'f8'"),
        ({"precision": "tf32"}, "precision tf32: expected target cuda, got llvm"),
        ({"precision": "tf32", "target": "cuda", "kernels": "generated"}, "generated kernels compute in f32"),
        ({"dims": [("batch", 2)]}, "dims: expected a dict by name, got [('batch', 2)]"),
        ({"dims": {"batch": 2.0}}, "dims: `batch`: expected a whole number, got 2.0"),
        ({"input_shapes": {"x": 4}}, "input_shapes: `x`: expected a list of whole numbers, got 4"),
        ({"input_shapes": {"x": (4.5,)}}, "input_shapes: `x`: expected a list of whole numbers, got (4.5,)"),
        ({"bind": 3}, "bind: expected a dict by name, got 3"),
        ({"workspace": 1.5}, "workspace: expected none, free or a number of bytes, got 1.5"),
        ({"workspace": None}, "workspace: expected none, free or a number of bytes, got None"),
        ({"target": "cuda", "arch": 90}, "arch: expected text, got 90"),
        ({"mcpu": 3}, "mcpu: expected text, got 3"),
        ({"pass_pipeline": 3}, "pass_pipeline: expected text, got 3"),
        ({"train": True}, "train: expected a BuildGradient, such as memc.BuildGradient(), got True"),
        ({"mcpu": "abacus"}, "mcpu: LLVM knows no CPU 'abacus'"),
    ],
)
def test_wrong_options(model: onnx.ModelProto, options: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(memc.MemcError) as caught:
        memc.compile(model, tmp_path / "m.memc", **options)
    assert words in str(caught.value) and caught.value.exit_code == 2
    assert not list(tmp_path.iterdir())


def test_paths_and_inputs_of_a_wrong_kind(model: onnx.ModelProto, tmp_path: Path) -> None:
    wrong: Any = 3
    with pytest.raises(memc.MemcError, match="output: expected the path of a folder, got 3"):
        memc.compile(model, wrong)
    with pytest.raises(memc.MemcError, match="expected the path of an artifact, got 3"):
        memc.load(wrong)
    executable = memc.compile(model, tmp_path / "m.memc").load()
    with pytest.raises(memc.MemcError, match="inputs: expected a dict of arrays by name, got int"):
        executable.run_numpy(wrong)
    with pytest.raises(memc.MemcError, match="inputs: expected a dict of arrays by name, got int"):
        memc.run(tmp_path / "m.memc", wrong)


def test_wrong_options_of_verify(model: onnx.ModelProto, tmp_path: Path) -> None:
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(memc.MemcError, match="no option `dim`; options are target, arch"):
        memc.verify(tmp_path / "m.onnx", dim={"n": 1})
    with pytest.raises(memc.MemcError, match="dims: expected a dict by name, got 3"):
        memc.verify(tmp_path / "m.onnx", dims=3)


def test_whole_numbers_of_numpy() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[n,4] x) => (float[n,4] y) { y = Exp(x) }'
    )
    two = np.int64(2)
    options: dict[str, Any] = {"dims": {"n": two}, "opt_level": two, "workspace": 32 * two, "memory_budget": 512 * two}
    report = memc.compile(model, **options).report
    assert '"n": 2' in report.to_json() and report.peak_bytes <= 1024
    assert memc.compile(model, input_shapes={"x": [two, 4]}).load().inputs[0].shape == (2, 4)


def test_a_precision_is_written_down(tmp_path: Path) -> None:
    product = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[4,8] x, float[8,4] z) => (float[4,4] y) { y = MatMul(x, z) }'
    )
    for precision in ("f32", "tf32", "f16", "bf16"):
        done = memc.compile(product, tmp_path / precision, target="cuda", precision=precision, plan_only=True)
        (call,) = [op for op in done.module.main.ops if op.plan.library_kernel is not None]
        assert call.plan.precision == ("tf32" if precision == "tf32" else None)
        assert precision == precision_of(done.module.main)


def test_a_given_pipeline_is_lowered_once(tmp_path: Path) -> None:
    """Before a gradient, whether `train` makes it or the pipeline."""
    text = (
        "func @main(%x: f32[4,8] {role = input}, %w: f32[8,3] {role = weight}) -> f32[4,3] {\n"
        "  %y = matmul(%x, %w) {transpose_a = false, transpose_b = false} : f32[4,3]\n  return %y\n}\n"
    )
    rest = "materialize-returns,canonicalize,decompose,assign-addresses"
    options: dict[str, Any] = {"precision": "bf16", "plan_only": True}
    both = []
    for chosen in ({"train": memc.BuildGradient(), "pass_pipeline": rest}, {"pass_pipeline": f"build-gradient,{rest}"}):
        module = memc.parse(text)
        module.weights["w"] = np.ones((8, 3), np.float32)
        done = memc.compile(module, **options, **chosen)
        assert [p.type.dtype.value for p in done.module.main.params_of(Role.STATE)] == ["f32"]
        both.append([(op.name, op.result.type.dtype.value) for op in done.module.main.ops])
    assert both[0] == both[1] and ("matmul", "f32") in both[0] and ("cast", "bf16") in both[0]


def test_a_budget_missed_at_a_low_level_says_so(model: onnx.ModelProto) -> None:
    for level, says in ((0, True), (1, True), (2, False)):
        with pytest.raises(memc.MemcError) as caught:
            memc.compile(model, opt_level=level, memory_budget=1, plan_only=True)
        assert caught.value.exit_code == 4 and ("-O2 may need less" in str(caught.value)) is says


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_a_budget_of_exactly_the_peak_is_kept(level: int) -> None:
    two = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[64] x) => (float[64] y) { a = Exp(x) b = Sin(a) y = Mul(a, b) }'
    )
    options: dict[str, Any] = {"opt_level": level, "plan_only": True}
    peak = memc.compile(two, **options).report.peak_bytes
    assert memc.compile(two, memory_budget=peak, **options).report.peak_bytes == peak
    with pytest.raises(memc.MemcError, match=f"least reachable peak is {peak} bytes") as caught:
        memc.compile(two, memory_budget=peak - 1, **options)
    assert caught.value.exit_code == 4


WRONG: dict[str, tuple[Any, ...]] = {
    "target": ("CUDA", "", None, 3, True),
    "arch": (90, "sm90", b"sm_90", ["sm_90"], "sm_90"),  # The last: without target cuda.
    "mcpu": (3, "x y", b"native", False),
    "opt_level": ("2", 4, -1, True, 2.0, float("nan"), None, 10**30),
    "dims": ([("n", 2)], {"n": "2"}, {"n": 2.0}, {"n": True}, {"n": -1}, {"n": 2**31}, {3: 3}, "n=2", None),
    "input_shapes": ({"x": 4}, {"x": "4"}, {"x": (4.5,)}, {"x": (-1,)}, {"x": np.zeros((1, 1))}, [4], None),
    "bind": (3, ["x"], {3: 3}, None),
    "offload_states": (True, "All", "some", "", 3),
    "max_size": (-1, 1.5, "9", True, [3]),
    "alignment": (0, 96, -64, 64.0, "many", "3KB", True, 2**63, 10**30),
    "kernels": ("Auto", "", None, 1),
    "precision": ("F16", "fp16", None, 16),
    "workspace": (-1, 1.5, "lots", None, True, float("inf"), 2**70),
    "pass_pipeline": (3, b"fuse", ["fuse"]),
    "disabled_passes": ("fuse", None, [3], {"fuse": 1}),
    "train": (True, "sgd", {}, memc.BuildGradient),
    "memory_budget": (-1, 1.5, "1GiX", True, float("nan"), 2**70),
    "offload": ("Auto", "", None, 1),
    "host_budget": (-1, 1.5, "1GiX", True, float("nan"), 2**70),
    "link": (3, b"h200", ["h200"]),
    "profile": (3, b"p.json", ["p.json"], "p.json"),  # The last: without a budget.
    "plan_only": (1, "yes", None),
    "print_ir_after_all": (1, None),
    "print_ir_after_change": ("", 0),
}


@pytest.mark.parametrize("name", [item.name for item in dataclasses.fields(Options)])
def test_every_option_refuses_what_it_does_not_take(model: onnx.ModelProto, name: str) -> None:
    """A new option has to say here what it refuses."""
    for wrong in (object(), 1j, *WRONG[name]):
        for make in (lambda **o: Options(**o), lambda **o: memc.compile(model, **o)):
            with pytest.raises(memc.MemcError) as caught:
                make(**{name: wrong})
            message = str(caught.value)
            assert caught.value.exit_code == 2 and "\n" not in message and len(message) < 700, message
            assert name in message or name.replace("opt_level", "optimization level") in message, message
    with pytest.raises(memc.MemcError):
        dataclasses.replace(Options(), **{name: object()})


def test_options_give_the_nearest_name(model: onnx.ModelProto) -> None:
    for options, near in (
        ({"precison": "f16"}, "did you mean precision?"),
        ({"precision": "fp16"}, "did you mean f16?"),
        ({"kernels": "Library"}, "did you mean library?"),
        ({"workspace": "Free"}, "did you mean free?"),
        ({"target": "CUDA"}, "did you mean cuda?"),
    ):
        with pytest.raises(memc.MemcError) as caught:
            memc.compile(model, **options)  # type: ignore[arg-type]
        assert near in str(caught.value)


def test_progress_names_stages_and_passes_in_their_order(model: onnx.ModelProto, tmp_path: Path) -> None:
    said: list[str] = []
    compilation = memc.compile(model, tmp_path / "model.memc", progress=said.append)
    reached = [text for text in said if " -- " in text]
    said = [text for text in said if text not in reached]
    assert all(text.partition(" -- ")[0] in said for text in reached)
    passes = [text for text in said if text.startswith("passes: ")]
    assert [text for text in said if text not in passes] == ["import", "passes", "codegen", "write"]
    assert said.index("passes") < said.index(passes[0]) and said.index(passes[-1]) < said.index("codegen")
    names = [name.partition("{")[0] for name, _ in compilation.report.pass_seconds][: len(passes)]
    assert passes == [f"passes: {name} ({n} of {len(passes)})" for n, name in enumerate(names, 1)] and len(passes) > 5
