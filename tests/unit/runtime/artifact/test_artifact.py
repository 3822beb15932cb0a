# SPDX-License-Identifier: Apache-2.0
"""Artifacts and executables: results, inputs and outputs, and what is said of wrong inputs."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import tvm

from memc.ir.build import IRBuilder
from memc.ir.core import Function, Role, Value
from memc.ir.errors import UsageError
from memc.ir.evaluate import evaluate
from memc.ir.module import Module
from memc.ir.types import DType, TensorType
from memc.runtime import codegen
from memc.runtime.artifact.weight_slab import slab_entries
from memc.runtime.execute.load import load

Write = Callable[..., Path]
X = np.random.default_rng(5).normal(size=(4, 8)).astype(np.float32)


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("kernels", ["auto", "generated"])
def test_results_equal_the_reference(network: Module, plan: Callable, write: Write, level: int, kernels: str) -> None:
    executable = load(write(plan(network, level, kernels)))
    expected = evaluate(network, {"x": X})
    for found in (executable(X), executable(x=X), executable.run_numpy({"x": X})):
        assert list(found) == ["y0", "y1"]
        for name, value in found.items():
            np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-6)


def test_outputs_are_fresh_and_inputs_untouched(network: Module, plan: Callable, write: Write) -> None:
    executable = load(write(plan(network)))
    kept = X.copy()
    first = executable(X)
    before = {name: value.copy() for name, value in first.items()}
    second = executable(X + 1)
    for name in first:
        np.testing.assert_array_equal(first[name], before[name])
        assert not np.array_equal(first[name], second[name])
    np.testing.assert_array_equal(X, kept)
    first["y1"][...] = 0
    np.testing.assert_array_equal(executable(X)["y1"], before["y1"])


def test_any_layout_and_dlpack_tensors_are_accepted(network: Module, plan: Callable, write: Write) -> None:
    executable = load(write(plan(network)))
    expected = executable(X)["y0"]
    shifted = np.empty(X.nbytes + 4, np.uint8)[4:].view(np.float32).reshape(X.shape)
    shifted[...] = X
    frozen = X.copy()
    frozen.flags.writeable = False
    for given in (np.asfortranarray(X), shifted, frozen, X[::1], tvm.runtime.tensor(X)):
        np.testing.assert_array_equal(executable(given)["y0"], expected)


@pytest.mark.parametrize("dtype", [d for d in DType if d is not DType.BOOL])
def test_every_element_type_goes_in_and_out(make_module: Callable, plan: Callable, write: Write, dtype: DType) -> None:
    def body(b: IRBuilder, inputs: Sequence[Value]) -> Sequence[Value]:
        return [b.op("add", [inputs[0], inputs[0]]), b.op("equal", [inputs[0], inputs[1]])]

    module = plan(make_module({"a": (dtype, (3, 5)), "b": (dtype, (5,))}, body))
    a, b = (np.arange(n).reshape(s).astype(dtype.numpy) for n, s in ((15, (3, 5)), (5, (5,))))
    found = load(write(module))(a, b)
    assert found["y0"].dtype == dtype.numpy and found["y1"].dtype == np.bool_
    np.testing.assert_array_equal(found["y0"], a + a)
    np.testing.assert_array_equal(found["y1"], a == b)


def test_scalars_and_empty_tensors(make_module: Callable, plan: Callable, write: Write) -> None:
    def body(b: IRBuilder, inputs: Sequence[Value]) -> Sequence[Value]:
        product = b.op("matmul", [inputs[0], inputs[1]], transpose_a=False, transpose_b=False)
        total = b.op("reduce_sum", [product], axes=(0, 1), keepdims=False)
        return [product, b.op("add", [total, inputs[2]])]

    shapes = {"a": (DType.F32, (0, 6)), "b": (DType.F32, (6, 4)), "c": (DType.F32, ())}
    executable = load(write(plan(make_module(shapes, body))))
    found = executable(np.zeros((0, 6), np.float32), np.ones((6, 4), np.float32), np.float32(2.5))
    assert found["y0"].shape == (0, 4) and found["y1"].shape == ()
    assert found["y1"] == 2.5


def test_concat_with_slices_in_place_and_copied(make_module: Callable, plan: Callable, write: Write) -> None:
    def body(b: IRBuilder, inputs: Sequence[Value]) -> Sequence[Value]:
        parts = [b.op("relu", [inputs[0]]), inputs[1], b.op("exp", [inputs[0]])]
        rows = b.op("concat", parts, axis=0)
        columns = b.op("concat", [b.op("neg", [inputs[0]]), inputs[1], inputs[0]], axis=1)
        return [b.op("tanh", [rows]), rows, columns]

    module = plan(make_module({"a": (DType.F32, (2, 32)), "b": (DType.F32, (2, 32))}, body))
    rng = np.random.default_rng(2)
    a, b = (rng.normal(size=(2, 32)).astype(np.float32) for _ in range(2))
    found = load(write(module))(a, b)
    rows = np.concatenate([np.maximum(a, 0), b, np.exp(a)])
    np.testing.assert_allclose(found["y1"], rows, rtol=1e-6)
    np.testing.assert_allclose(found["y0"], np.tanh(rows), rtol=1e-5)
    np.testing.assert_array_equal(found["y2"], np.concatenate([-a, b, a], axis=1))


def test_views_of_inputs_at_an_offset(make_module: Callable, plan: Callable, write: Write) -> None:
    def body(b: IRBuilder, inputs: Sequence[Value]) -> Sequence[Value]:
        part = b.op("slice", [inputs[0]], starts=(4, 0), stops=(8, 16), steps=(1, 1))
        return [b.op("exp", [b.op("reshape", [part], shape=(64,))])]

    module = plan(make_module({"a": (DType.F32, (8, 16))}, body))
    a = np.random.default_rng(3).normal(size=(8, 16)).astype(np.float32)
    np.testing.assert_allclose(load(write(module))(a)["y0"], np.exp(a[4:].reshape(-1)), rtol=1e-6)


def test_same_ops_share_a_kernel(make_module: Callable, plan: Callable) -> None:
    def body(b: IRBuilder, inputs: Sequence[Value]) -> Sequence[Value]:
        value = inputs[0]
        for _ in range(6):
            value = b.op("transpose", [b.op("transpose", [value], perm=(1, 0))], perm=(1, 0))
            value = b.op("cumsum", [value], axis=1, exclusive=False, reverse=False)
        return [value]

    module = plan(make_module({"a": (DType.F32, (6, 6))}, body), level=0)
    compiled = codegen.build(module)
    kinds = {op.name for op in module.main.ops}
    assert compiled.kernels == len(kinds)


def test_wrong_inputs_are_told_apart(network: Module, plan: Callable, write: Write) -> None:
    executable = load(write(plan(network)))
    cases: list[tuple[tuple, dict, str]] = [
        ((), {}, "missing inputs: x: f32[4,8]"),
        ((X, X), {}, "got 2 inputs, expected 1"),
        ((), {"z": X}, "no input is called z; expected x: f32[4,8]"),
        ((X,), {"x": X}, "given twice"),
        ((X[:3],), {}, "input x: expected f32[4,8], got f32[3,8]"),
        ((X.astype(np.float64),), {}, "input x: expected f32[4,8], got f64[4,8]"),
        ((X.astype(">f4"),), {}, "input x: expected f32[4,8], got >f4[4,8]"),
        ((X.tolist()[:3],), {}, "input x: expected f32[4,8], got f32[3,8]"),
        ((object(),), {}, "expected a numpy array or a DLPack tensor, got object"),
    ]
    for args, kwargs, message in cases:
        with pytest.raises(UsageError) as caught:
            executable(*args, **kwargs)
        assert message in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="no output is called q"):
        executable.output("q")


def test_weights_of_every_type_survive(make_module: Callable, plan: Callable, write: Write) -> None:
    rng = np.random.default_rng(0)
    half = rng.normal(size=(4, 9)).astype(ml_dtypes.bfloat16)
    odd = rng.integers(0, 2, (3, 7)).astype(np.bool_)

    def body(b: IRBuilder, inputs: Sequence[Value]) -> Sequence[Value]:
        return [
            b.op("add", [b.constant(half), inputs[0]]),
            b.op("logical_not", [b.constant(odd)]),
            b.op("add", [b.constant(np.arange(40.0)), b.constant(np.float64(0.5))]),
        ]

    module = plan(make_module({"x": (DType.BF16, (4, 9))}, body), level=0)
    found = load(write(module))(np.zeros((4, 9), ml_dtypes.bfloat16))
    np.testing.assert_array_equal(found["y0"].astype(np.float32), half.astype(np.float32))
    np.testing.assert_array_equal(found["y1"], ~odd)
    np.testing.assert_array_equal(found["y2"], np.arange(40.0) + 0.5)


def test_calls_from_several_threads(network: Module, plan: Callable, write: Write) -> None:
    executable = load(write(plan(network)))
    inputs = [np.full_like(X, n / 10) for n in range(4)]
    expected = [executable(x) for x in inputs]

    def run(n: int) -> bool:
        return all(np.array_equal(executable(inputs[n])["y0"], expected[n]["y0"]) for _ in range(100))

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(run, range(4)))


def test_code_is_unloaded_with_its_last_executable(network: Module, plan: Callable, write: Write) -> None:
    def mapped() -> int:
        return Path("/proc/self/maps").read_text().count("model.so")

    path = write(plan(network))
    gc.collect()
    before = mapped()
    executable = load(path)
    session = executable.session()
    expected = executable(X)
    del executable
    found = session(X)
    assert mapped() > before
    del session
    gc.collect()
    assert mapped() == before
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name])


def test_weights_and_constants_of_one_name_are_told_apart() -> None:
    weight = Value("constant.0", TensorType(DType.F32, (2,)), role=Role.WEIGHT)
    odd = Value("__metadata__", TensorType(DType.F32, (2,)), role=Role.WEIGHT)
    function = Function(params=[weight, odd])
    IRBuilder(Module([function]), function, function.ops).constant(np.ones(2, np.float32))
    function.ops[0].result.name = "0"
    names = [entry.name for entry in slab_entries(function, 64)]
    assert len(set(names)) == 3 and "constant.0" in names and "__metadata__" not in names
