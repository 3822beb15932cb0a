# SPDX-License-Identifier: Apache-2.0
"""Products taken part by part: the same values, never a higher peak, and no operands side by side where nobody needs them so."""

from __future__ import annotations

import copy

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from memc.frontend.onnx import import_onnx
from memc.ir.build import IRBuilder
from memc.ir.core import Function, Op, Role, Value
from memc.ir.evaluate import evaluate, evaluate_in_arena
from memc.ir.liveness import arena_bytes
from memc.ir.module import Module
from memc.ir.target import Target
from memc.ir.text.parser import parse
from memc.ir.types import DType, TensorType
from memc.ir.verify.structure import verify
from memc.passes.kernels.part_products import LEAST_DEPTH, part_products, read_parts
from memc.passes.manager import PassManager
from memc.passes.placement.alias_plan import planned_peak
from memc.passes.training.build_gradient import build_gradient
from memc.passes.training.losses import Loss
from memc.passes.training.optimizers import Optimizer

ROWS, COLUMNS = 3, 5


def products_of(op: Op) -> int:
    names = [op.name] if op.region is None else [inner.name for inner in op.region.ops]
    return names.count("matmul")


@st.composite
def sums(draw: st.DrawFn) -> Module:
    """A product, maybe part of a library call, of concats and slices whose parts are of drawn depths; other readers of them."""
    x = Value("x", TensorType(DType.F32, (8, 8)), role=Role.INPUT)
    function = Function([x])
    module = Module([function])
    b = IRBuilder(module, function, function.ops)
    turned = (draw(st.booleans()), draw(st.booleans()))
    depths = [LEAST_DEPTH * n for n in draw(st.lists(st.integers(1, 2), min_size=2, max_size=4))]
    returned, factors = [], []
    for side, width in enumerate((ROWS, COLUMNS)):
        axis = int(turned[side] != (side == 0))
        parts = []
        for depth in depths if draw(st.booleans()) else [sum(depths[:2]), *depths[2:]]:
            shape = (depth, width) if axis == 0 else (width, depth)
            small = b.op("mul", [x, b.scalar(draw(st.floats(0.5, 2)), DType.F32)])
            flat = b.op("reshape", [b.op("sin", [small])], shape=(64,))
            many = b.op("concat", [flat] * -(-depth * width // 64), axis=0)
            cut = b.op("slice", [many], starts=(0,), stops=(depth * width,), steps=(1,))
            parts.append(b.op("tanh", [b.op("reshape", [cut], shape=shape)]))
        joined = parts[0] if len(parts) == 1 else b.op("concat", parts, axis=axis)
        if draw(st.booleans()):
            joined = b.op("neg", [joined])
        elif draw(st.booleans()):
            returned.append(draw(st.sampled_from([joined, parts[-1], b.op("exp", [joined])])))
        factors.append(joined)
    value = b.op("matmul", factors, transpose_a=turned[0], transpose_b=turned[1])
    if draw(st.booleans()):
        value = b.op("add", [value, b.op("broadcast", [b.scalar(0.5, DType.F32)], shape=(COLUMNS,))])
    function.returns = list(dict.fromkeys([*returned, value]))
    function.result_names = [f"y{n}" for n in range(len(function.returns))]
    return module


@settings(deadline=None)
@given(sums())
def test_values_stay_the_same(module: Module) -> None:
    x = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    PassManager.parse("materialize-returns").run(module)
    expected = evaluate(module, {"x": x})
    peak = planned_peak(module.main, 256)
    part_products(module, module.main, 256)
    verify(module)
    assert planned_peak(module.main, 256) <= peak
    PassManager.parse("fuse,in-place,assign-addresses").run(module)
    found = evaluate_in_arena(module, {"x": x})
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-3, atol=1e-3, err_msg=name)


def gradient(part: Role, reads_all: bool = False) -> Module:
    """w - g x, of g and x side by side; x has a part of role `part`."""
    depth = LEAST_DEPTH
    params = [Value(f"g{n}", TensorType(DType.F32, (depth, 32)), role=Role.INPUT) for n in range(2)]
    params += [Value("w", TensorType(DType.F32, (32, depth)), role=Role.STATE)]
    params += [Value(f"x{n}", TensorType(DType.F32, (depth, depth)), role=Role.INPUT) for n in range(2)]
    params += [Value("v", TensorType(DType.F32, (depth, depth)), role=part)]
    function = Function(params)
    module = Module([function])
    b = IRBuilder(module, function, function.ops)
    g = b.op("concat", [b.op("tanh", [v]) for v in params[:2]], axis=0)
    x = b.op("concat", [b.op("tanh", [params[3]]), params[5]], axis=0)
    step = b.op("matmul", [g, x], transpose_a=True, transpose_b=False)
    function.returns = [b.op("assign", [params[2], b.op("add", [params[2], step])])]
    if reads_all:
        function.returns += [b.op("exp", [g]), b.op("exp", [x])]
    function.result_names = ["w", "g", "x"][: len(function.returns)]
    return module


def parted(module: Module) -> list[int]:
    module.target = Target.of("cuda")
    PassManager.parse("fuse-library").run(module)
    return [n for op in module.main.ops if (n := products_of(op))]


def test_an_update_reads_the_parts() -> None:
    module = gradient(Role.INPUT)
    assert parted(module) == [2]
    assert "concat" not in [op.name for op in module.main.ops]
    (call,) = (op for op in module.main.ops if products_of(op))
    assert call.region is not None and [op.name for op in call.region.ops[-2:]] == ["add", "assign"]


def test_parts_of_a_state_stay_where_they_are() -> None:
    assert parted(gradient(Role.STATE)) == [1]


def test_nothing_is_parted_for_operands_that_stay_side_by_side() -> None:
    assert parted(gradient(Role.INPUT, reads_all=True)) == [1]


def test_slices_read_the_parts() -> None:
    """Of parts of 4 rows: two of them, one, half of one; rows of two parts that are no whole ones keep all as it is."""
    for ranges, kept in (([(0, 8), (8, 12), (4, 6)], False), ([(0, 8), (2, 6)], True)):
        params = [Value(f"x{n}", TensorType(DType.F32, (4, 3)), role=Role.INPUT) for n in range(3)]
        function = Function(params)
        module = Module([function])
        b = IRBuilder(module, function, function.ops)
        joined = b.op("concat", [b.op("tanh", [v]) for v in params], axis=0)
        tall = b.op("reshape", [joined], shape=(6, 2, 3))
        for start, stop in ranges:
            bounds = {"starts": (start // 2, 0, 0), "stops": (stop // 2, 2, 3), "steps": (1, 1, 1)}
            function.returns.append(b.op("exp", [b.op("slice", [tall], **bounds)]))
        function.result_names = [f"y{n}" for n in range(len(ranges))]
        given = {f"x{n}": np.arange(12, dtype=np.float32).reshape(4, 3) + n for n in range(3)}
        expected = evaluate(module, given)
        read_parts(module, function)
        verify(module)
        assert (joined.op in function.ops) is kept
        assert all(len(op.operands) < 3 for op in function.ops if op.name == "concat") is not kept
        for name, value in evaluate(module, given).items():
            np.testing.assert_array_equal(value, expected[name])


CASES = {
    "what is added is the operand itself": """
func @main(%x: f32[256,128] {role = input}, %b: f32[256,256] {role = input}) -> f32[256,256] {
  %0 = tanh(%x) : f32[256,128]
  %1 = sin(%x) : f32[256,128]
  %c = concat(%0, %1) {axis = 1} : f32[256,256]
  %2 = tanh(%b) : f32[256,256]
  %p = matmul(%c, %2) {transpose_a = false, transpose_b = false} : f32[256,256]
  %3 = add(%p, %c) : f32[256,256]
  %y = exp(%3) : f32[256,256]
  return %y
}
""",
    "the same parts along either axis": """
func @main(%x: f32[256,256] {role = input}, %p: f32[512,256] {role = input}, %q: f32[256,256] {role = input}) -> (f32[256,256] {name = "y"}, f32[256,256] {name = "z"}) {
  %a = tanh(%x) : f32[256,256]
  %b = sin(%x) : f32[256,256]
  %c = cos(%x) : f32[256,256]
  %0 = concat(%a, %b, %c) {axis = 1} : f32[256,768]
  %1 = concat(%p, %q) {axis = 0} : f32[768,256]
  %y = matmul(%0, %1) {transpose_a = false, transpose_b = false} : f32[256,256]
  %2 = concat(%a, %b, %c) {axis = 0} : f32[768,256]
  %3 = reshape(%p) {shape = [256, 512]} : f32[256,512]
  %4 = concat(%3, %q) {axis = 1} : f32[256,768]
  %z = matmul(%4, %2) {transpose_a = false, transpose_b = false} : f32[256,256]
  return %y, %z
}
""",
    "slices in another order than their readers": """
func @main(%x: f32[256,8] {role = input}, %w: f32[512,4] {role = input}) -> (f32[8,4] {name = "y"}, f32[512,8] {name = "r"}, f32[1024,4] {name = "s"}) {
  %0 = tanh(%x) : f32[256,8]
  %1 = sin(%x) : f32[256,8]
  %c = concat(%0, %1) {axis = 0} : f32[512,8]
  %y = matmul(%c, %w) {transpose_a = true, transpose_b = false} : f32[8,4]
  %2 = cos(%x) : f32[256,8]
  %3 = exp(%x) : f32[256,8]
  %4 = neg(%x) : f32[256,8]
  %d = concat(%2, %3, %4) {axis = 0} : f32[768,8]
  %5 = reshape(%d) {shape = [1536, 4]} : f32[1536,4]
  %6 = slice(%d) {starts = [0, 0], stops = [512, 8], steps = [1, 1]} : f32[512,8]
  %r = exp(%6) : f32[512,8]
  %7 = slice(%5) {starts = [0, 0], stops = [1024, 4], steps = [1, 1]} : f32[1024,4]
  %s = exp(%7) : f32[1024,4]
  return %y, %r, %s
}
""",
    "a state that is updated before a slice is read": """
func @main(%s: f32[256,8] {role = state}, %x: f32[256,8] {role = input}, %w: f32[512,4] {role = input}) -> (f32[8,4] {name = "y"}, f32[256,8] {name = "s"}, f32[256,8] {name = "q"}) {
  %0 = tanh(%x) : f32[256,8]
  %1 = sin(%x) : f32[256,8]
  %c = concat(%0, %1) {axis = 0} : f32[512,8]
  %y = matmul(%c, %w) {transpose_a = true, transpose_b = false} : f32[8,4]
  %2 = cos(%x) : f32[256,8]
  %d = concat(%s, %2) {axis = 0} : f32[512,8]
  %3 = exp(%x) : f32[256,8]
  %new = assign(%s, %3) : f32[256,8]
  %4 = slice(%d) {starts = [0, 0], stops = [256, 8], steps = [1, 1]} : f32[256,8]
  %q = exp(%4) : f32[256,8]
  return %y, %new, %q
}
""",
    "a part without elements": """
func @main(%z: f32[0,8] {role = input}, %x: f32[256,8] {role = input}, %w: f32[512,4] {role = input}) -> f32[8,4] {
  %0 = tanh(%x) : f32[256,8]
  %1 = sin(%x) : f32[256,8]
  %c = concat(%z, %0, %1) {axis = 0} : f32[512,8]
  %y = matmul(%c, %w) {transpose_a = true, transpose_b = false} : f32[8,4]
  return %y
}
""",
}


@pytest.mark.parametrize("text", CASES.values(), ids=CASES)
def test_values_in_the_given_order(text: str) -> None:
    module = parse(text)
    rng = np.random.default_rng(6)
    given = {v.name: rng.normal(0, 0.1, v.type.shape).astype(np.float32) for v in module.main.params}
    PassManager.parse("materialize-returns").run(module)
    expected = evaluate(module, given)
    module.target = Target.of("cuda")
    PassManager.parse("fuse-library,fuse,in-place,assign-addresses").run(module)
    for name, value in evaluate_in_arena(module, given).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=1e-3, err_msg=name)


STEPS, BATCH, HIDDEN = 10, 64, 80


def lstm_step(optimizer: str) -> Module:
    """A training step of an LSTM that learns its last output."""
    rng = np.random.default_rng(4)
    shapes = {"W": (1, 4 * HIDDEN, HIDDEN), "R": (1, 4 * HIDDEN, HIDDEN), "B": (1, 8 * HIDDEN)}
    stored = {name: rng.normal(0, 0.1, shape).astype(np.float32) for name, shape in shapes.items()}
    stored["zero"] = np.array([0])
    nodes = [
        helper.make_node("LSTM", ["x", "W", "R", "B"], ["", "last"], hidden_size=HIDDEN),
        helper.make_node("Squeeze", ["last", "zero"], ["out"]),
    ]
    graph = helper.make_graph(
        nodes,
        "lstm",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [STEPS, BATCH, HIDDEN])],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, [BATCH, HIDDEN])],
        [numpy_helper.from_array(array, name) for name, array in stored.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    module = import_onnx(model, trainable=True)
    build_gradient(module, Loss("mse"), Optimizer(optimizer))
    module.target = Target.of("cuda")
    text = "materialize-returns,canonicalize,decompose,canonicalize,join-products,fuse-library,fuse"
    PassManager.parse(f"{text},select-kernels{{workspace=least}}").run(module)
    return module


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_recurrent_step_keeps_a_budget_with_the_same_bits(optimizer: str) -> None:
    module = lstm_step(optimizer)
    assert sorted(products_of(op) for op in module.main.ops)[-2:] == [2, 2]
    given = {p.name: np.zeros(p.type.shape, p.type.dtype.numpy) for p in module.main.params_of(Role.INPUT)}
    rng = np.random.default_rng(5)
    given |= {name: rng.normal(size=given[name].shape).astype(np.float32) for name in ("x", "labels")}
    given["learning_rate"] = np.float32(0.1)
    expected = evaluate(module, given)
    whole = copy.deepcopy(module)
    finish = "in-place,assign-addresses"
    search = "work=1000000 slack=0.001"
    PassManager.parse(f"reorder{{{search}}},{finish}").run(whole)
    PassManager.parse(f"rematerialize{{budget=85% {search}}},{finish}").run(module)
    assert any(op.plan.recompute for op in module.main.ops)
    assert arena_bytes(module.main, 256) <= arena_bytes(whole.main, 256) * 85 // 100
    found = evaluate_in_arena(module, given)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
