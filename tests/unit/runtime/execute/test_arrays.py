# SPDX-License-Identifier: Apache-2.0
"""Arrays of every kind where they come in: weights, bound inputs, files, runs, states. Right values or one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
import tvm_ffi

import memc
from memc.cli import main
from memc.ir.errors import MemcError, UsageError
from memc.ir.evaluate import evaluate
from memc.runtime.execute.training import TrainingStep

TEXT = """\
func @main(%x: f32[4,6] {role = input}, %w: f32[4,6] {role = weight}) -> (f32[4,6] {name = "y"}) {
  %y = mul(%x, %w) : f32[4,6]
  return %y
}
"""
W = np.arange(24, dtype=np.float32).reshape(4, 6) - 7

SAME: dict[str, Callable[[np.ndarray], Any]] = {
    "columns first": np.asfortranarray,
    "reversed": lambda a: a[::-1].copy()[::-1],
    "every second": lambda a: np.repeat(a, 2, axis=1)[:, ::2],
    "read-only": lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
    "misaligned": lambda a: np.frombuffer(b"x" + a.tobytes(), a.dtype, offset=1).reshape(a.shape),
    "records' view": lambda a: a.view(np.recarray),
}
"""Arrays of the same values, in other places."""

WRONG: dict[str, Any] = {
    "masked": np.ma.masked_array(W, W > 3),
    "f64": W.astype("f8"),
    "long double": W.astype("g"),
    "bf16": W.astype(ml_dtypes.bfloat16),
    "complex": W + 0j,
    "objects": W.astype(object),
    "texts": W.astype("U4"),
    "bytes": W.astype("S4"),
    "times": W.astype("M8[s]"),
    "records": np.zeros(W.shape, [("a", "<f4")]),
    "records the other way": np.zeros(W.shape, [("a", ">f4")]),
    "number": np.float32(3),
    "no axes": np.array(3, np.float32),
    "ragged": [[1.0], [2.0, 3.0]],
    "none": None,
}


def module(weight: Any = W) -> memc.Module:
    made = memc.parse(TEXT)
    made.weights["w"] = weight
    return made


def one_line(error: MemcError) -> bool:
    return "\n" not in str(error)


@pytest.mark.parametrize("kind", [*SAME, "the other byte order", "no strides"])
def test_weights(kind: str) -> None:
    given = {**SAME, "the other byte order": lambda a: a.astype(">f4"), "no strides": lambda a: a[:1, :1] + 0 * a}
    weight = np.broadcast_to(np.float32(2), W.shape) if kind == "no strides" else given[kind](W)
    expected = W * np.asarray(weight).astype(np.float32)
    np.testing.assert_array_equal(evaluate(module(weight), {"x": W})["y"], expected)
    np.testing.assert_array_equal(memc.compile(module(weight)).load()(W)["y"], expected)


@pytest.mark.parametrize("kind", SAME)
def test_inputs(kind: str) -> None:
    executable = memc.compile(module()).load()
    given = SAME[kind](W + 1)
    expected = (W + 1) * W
    np.testing.assert_array_equal(executable(given)["y"], expected)
    np.testing.assert_array_equal(executable.run_numpy({"x": given})["y"], expected)
    np.testing.assert_array_equal(executable(**executable.placed_inputs({"x": given}))["y"], expected)
    zero_strided = np.broadcast_to(np.float32(2), W.shape)
    np.testing.assert_array_equal(executable(zero_strided)["y"], 2 * W)


@pytest.mark.parametrize("offset", [0, 4, 16, 32])
def test_dlpack_inputs_are_used_in_place_only_if_aligned(offset: int) -> None:
    executable = memc.compile(module()).load()
    raw = np.zeros(W.nbytes + 128, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    array = raw[start : start + W.nbytes].view(np.float32).reshape(W.shape)
    array[...] = W + 1
    given = tvm_ffi.from_dlpack(array)
    assert given.data_ptr() % 64 == offset
    (spec,) = executable.inputs
    used, own = executable.placing.in_place(spec, given), executable.placing.tensor(spec, given)
    assert (used is None) == (offset != 0)
    assert own.data_ptr() % 64 == 0 and (own.data_ptr() == given.data_ptr()) == (offset == 0)
    np.testing.assert_array_equal(executable(given)["y"], (W + 1) * W)


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_inputs(kind: str) -> None:
    executable = memc.compile(module()).load()
    for call in (executable, lambda a: executable.run_numpy({"x": a}), lambda a: executable.placed_inputs({"x": a})):
        with pytest.raises(UsageError, match="input x") as caught:
            call(WRONG[kind])
        assert one_line(caught.value)


def test_inputs_of_the_other_byte_order_are_refused() -> None:
    executable = memc.compile(module()).load()
    for call in (executable, lambda a: executable.run_numpy({"x": a}), lambda a: executable.placed_inputs({"x": a})):
        with pytest.raises(UsageError, match=r"input x: expected f32\[4,6\], got >f4\[4,6\]"):
            call(W.astype(">f4"))


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_weights(kind: str) -> None:
    with pytest.raises(MemcError) as caught:
        memc.compile(module(WRONG[kind]))
    assert one_line(caught.value) and "w" in str(caught.value)


def model() -> onnx.ModelProto:
    """y = x + b."""
    infos = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, W.shape) for name in "xby"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Add", ["x", "b"], ["y"])], "g", infos[:2], infos[2:])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("bound", [W.astype(">f4"), W.astype(">f8"), W.astype(">i2"), W.astype("<f2"), W.tolist()])
def test_bound_inputs(bound: Any) -> None:
    found = memc.compile(model(), bind={"b": bound}).load()(W)["y"]
    np.testing.assert_array_equal(found, 2 * W)


@pytest.mark.parametrize("kind", [k for k in WRONG if k not in ("f64", "long double", "bf16", "number", "no axes")])
def test_wrong_bound_inputs(kind: str) -> None:
    with pytest.raises(UsageError, match="bind: input `b`") as caught:
        memc.compile(model(), bind={"b": WRONG[kind]})
    assert one_line(caught.value)


def test_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    memc.compile(module(), tmp_path / "m.memc")
    for number, array in enumerate([W, W.astype(">f4"), np.asfortranarray(W), np.asfortranarray(W.astype(">f4"))]):
        np.save(tmp_path / "x.npy", array)
        given = ["--input", f"x=@{tmp_path / 'x.npy'}", "--output", str(tmp_path / f"{number}.npy")]
        assert main(["run", str(tmp_path / "m.memc"), *given]) == 0
        np.testing.assert_array_equal(np.load(tmp_path / f"{number}.npy"), W * W)
        np.save(tmp_path / "e.npy", (W * W).astype(">f4"))
        assert main(["run", str(tmp_path / "m.memc"), *given, "--expected", f"y=@{tmp_path / 'e.npy'}"]) == 0
    capsys.readouterr()
    contents = [a for k, a in WRONG.items() if k not in ("masked", "ragged", "none")]
    for array in [*contents, b"", b"PK\x03\x04 no archive", b"\x93NUMPY\x01\x00"]:
        if isinstance(array, bytes):
            (tmp_path / "x.npy").write_bytes(array)
        else:
            np.save(tmp_path / "x.npy", array)
        assert main(["run", str(tmp_path / "m.memc"), "--input", f"x=@{tmp_path / 'x.npy'}"]) in (2, 3)
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and ("x.npy" in said or "`x`" in said)


@pytest.mark.parametrize("kind", [*WRONG, "the other byte order"])
def test_wrong_states(kind: str) -> None:
    step = memc.compile(module(), train=memc.BuildGradient(loss="mse")).load()
    assert isinstance(step, TrainingStep)
    before = step.state()["w"]
    given = W.astype(">f4") if kind == "the other byte order" else WRONG[kind]
    with pytest.raises(UsageError, match=r"state w: f32\[4,6\]") as caught:
        step.load_state({"w": given})
    assert one_line(caught.value)
    np.testing.assert_array_equal(step.state()["w"], before)


@pytest.mark.parametrize("kind", SAME)
def test_states(kind: str) -> None:
    step = memc.compile(module(), train=memc.BuildGradient(loss="mse")).load()
    assert isinstance(step, TrainingStep)
    step.load_state({"w": SAME[kind](W + 2)})
    np.testing.assert_array_equal(step.state()["w"], W + 2)


class Shared:
    """A tensor of another framework: nothing but what DLPack asks for."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **keywords: Any) -> Any:
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


STRIDED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "columns first": np.asfortranarray,
    "channels last": lambda a: a.transpose(1, 0).copy().transpose(1, 0),
    "every second": lambda a: np.repeat(a, 2, axis=1)[:, ::2],
    "reversed": lambda a: a[::-1].copy()[::-1],
    "repeated": lambda a: np.broadcast_to(a[:1], a.shape).copy()[:, :1].repeat(6, 1)[::-1, ::-1],
}


@pytest.mark.parametrize("kind", STRIDED)
def test_strided_tensors_are_copied(kind: str) -> None:
    executable = memc.compile(module()).load()
    array = STRIDED[kind](W + 1)
    assert not array.flags.c_contiguous
    np.testing.assert_array_equal(executable(Shared(array))["y"], array * W)
    np.testing.assert_array_equal(executable(tvm_ffi.from_dlpack(array))["y"], array * W)
    before = array.copy()
    with pytest.raises(UsageError, match=r"input x: expected f32\[4,6\], got f32\[6,4\]"):
        executable(Shared(array.T))
    np.testing.assert_array_equal(array, before)


def test_lists_are_inputs() -> None:
    executable = memc.compile(module()).load()
    np.testing.assert_array_equal(executable((W + 1).tolist())["y"], (W + 1) * W)
    np.testing.assert_array_equal(executable(x=[tuple(row) for row in W.astype(int).tolist()])["y"], W * W)
    np.testing.assert_array_equal(executable.run_numpy({"x": (W + 1).tolist()})["y"], (W + 1) * W)
    np.testing.assert_array_equal(executable(**executable.placed_inputs({"x": W.tolist()}))["y"], W * W)
    for wrong, said in [
        ([1.0, 2.0], r"expected f32\[4,6\], got f32\[2\]"),
        (3.0, r"expected f32\[4,6\], got f32\[\]"),
        ([["a"] * 6] * 4, "expected numbers, got list"),
        ([[1e300] * 6] * 4, "expected numbers that f32 holds, got 1e\\+300"),
    ]:
        with pytest.raises(UsageError, match=f"input x.*{said}"):
            executable(wrong)


@pytest.mark.parametrize(
    ("dtype", "value", "said"),
    [
        ("i8", [1, -128], ""),
        ("i8", [1, 128], "got 128"),
        ("i64", [2**53 + 1, 3], ""),
        ("i64", [1.5, 3], "got 1.5"),
        ("u8", [0, -1], "got -1"),
        ("bool", [True, False], ""),
        ("bool", [0, 1], ""),
        ("bool", [0, 2], "got 2"),
        ("f16", [1, 2.5], ""),
        ("f16", [1, 1e6], "got 1000000"),
    ],
)
def test_lists_of_every_type(dtype: str, value: list[Any], said: str) -> None:
    text = f"func @main(%x: {dtype}[2] {{role = input}}) -> {dtype}[2] {{ %y = copy(%x) : {dtype}[2] return %y }}"
    executable = memc.compile(memc.parse(text)).load()
    if said:
        with pytest.raises(UsageError, match=f"expected numbers that {dtype} holds, {said}"):
            executable(value)
    else:
        (result,) = executable(value).values()
        assert result.tolist() == value


class Negated(Shared):
    """As PyTorch's tensors with the negative bit, which say with `is_neg` that the numbers are those in memory negated."""

    def is_neg(self) -> bool:
        return True

    def resolve_neg(self) -> Shared:
        return Shared(-self.array)


class Unreadable(Shared):
    """As a tensor without memory in PyTorch, whose message has the frames of its C++ code."""

    def __dlpack__(self, **keywords: Any) -> Any:
        raise RuntimeError(
            "Cannot pack tensors on meta\nException raised from torchDeviceToDLDevice at DLConvertor.cpp:156"
        )


def test_tensors_with_the_negative_bit() -> None:
    executable = memc.compile(module()).load()
    np.testing.assert_array_equal(executable(Negated(W))["y"], -W * W)


def test_the_frames_of_a_framework_are_not_told() -> None:
    executable = memc.compile(module()).load()
    with pytest.raises(UsageError, match=r"cannot be read through DLPack: Cannot pack tensors on meta$"):
        executable(Unreadable(W))
