# SPDX-License-Identifier: Apache-2.0
"""Small models of kinds that have broken compilers and memory planners, end to end against onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import memc
from memc.ir.evaluate import evaluate_in_arena
from memc.ir.liveness import lifetimes, lower_bound
from memc.solvers.placement import Buffer, Problem, solve

LEVELS = (0, 1, 2)


def model(body: str, opset: int = 17, initializers: Mapping[str, np.ndarray] | None = None) -> onnx.ModelProto:
    """A model from ONNX text such as `(float[6,4] x) => (float[6,4] y) { y = Relu(x) }`."""
    parsed = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> g {body}')
    for name, array in (initializers or {}).items():
        parsed.graph.initializer.append(numpy_helper.from_array(array, name))
    return parsed


def data(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def reference(proto: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(inputs)))


def check(
    proto: onnx.ModelProto, inputs: Mapping[str, np.ndarray], levels: tuple[int, ...] = LEVELS, **options: Any
) -> memc.Compilation:
    """Compiled and poisoned-arena results at each level equal onnxruntime's, run twice; inputs stay untouched."""
    expected = reference(proto, inputs)
    before = {name: array.copy() for name, array in inputs.items()}
    for level in levels:
        compilation = memc.compile(proto, opt_level=level, **options)
        executable = compilation.load()
        planned = evaluate_in_arena(compilation.module, dict(inputs))
        for _ in range(2):
            results = executable.run_numpy(dict(inputs))
            for name, want in zip([o.name for o in proto.graph.output], expected):
                np.testing.assert_allclose(results[name], want, rtol=1e-4, atol=1e-5, err_msg=f"-O{level} {name}")
                assert results[name].dtype == want.dtype and results[name].shape == want.shape
                np.testing.assert_allclose(planned[name], want, rtol=1e-4, atol=1e-5, err_msg=f"-O{level} arena {name}")
        for name, array in inputs.items():
            np.testing.assert_array_equal(array, before[name])
    return compilation


# Aliasing and lifetimes.


@pytest.mark.parametrize(
    "alias",
    [
        "Identity(s)",
        "Reshape(s, whole)",
        "Cast<to: int = 1>(s)",
        "Dropout(s)",
        "Flatten<axis: int = 1>(s)",
        "Squeeze(s, none)",
        "Unsqueeze(s, none)",
        "Transpose<perm: ints = [0, 1]>(s)",
    ],
)
def test_an_alias_keeps_its_source_alive(alias: str) -> None:
    proto = model(
        f"(float[4,6] x, float[4,6] c1, float[4,6] c2) => (float[4,6] y) {{"
        f" s = Add(x, c1) l = {alias} r = Add(x, c2) y = Add(l, r) }}",
        initializers={"whole": np.array([4, 6]), "none": np.array([], dtype=np.int64)},
    )
    check(proto, {"x": data((4, 6)), "c1": data((4, 6), 1), "c2": data((4, 6), 2)})


def test_two_views_of_one_input_do_not_share_an_in_place_result() -> None:
    proto = model(
        "(float[3,5] x) => (float[6,1,5] y) { a = Unsqueeze(x, one) b = Unsqueeze(x, one) p = Mul(a, b) "
        "y = Concat<axis: int = 0>(p, b) }",
        initializers={"one": np.array([1])},
    )
    check(proto, {"x": data((3, 5))})


def test_two_views_of_one_intermediate_do_not_share_an_in_place_result() -> None:
    proto = model(
        "(float[3,5] x) => (float[6,1,5] y) { s = Neg(x) a = Unsqueeze(s, one) b = Unsqueeze(s, one) p = Mul(a, b) "
        "y = Concat<axis: int = 0>(p, b) }",
        initializers={"one": np.array([1])},
    )
    check(proto, {"x": data((3, 5))})


def test_the_callers_input_is_untouched() -> None:
    check(model("(float[8,8] x) => (float[8,8] y) { y = Relu(x) }"), {"x": data((8, 8))})


def test_results_survive_the_next_run_and_may_be_fed_back() -> None:
    executable = memc.compile(model("(float[16] x) => (float[16] y) { t = Exp(x) u = Relu(t) y = Neg(u) }")).load()
    a, b = data((16,), 1), data((16,), 2)
    first = executable.run_numpy({"x": a})["y"]
    kept = first.copy()
    second = executable.run_numpy({"x": b})["y"]
    np.testing.assert_array_equal(first, kept)
    np.testing.assert_allclose(second, -np.exp(b), rtol=1e-5)
    fed = executable.run_numpy({"x": first})["y"]
    np.testing.assert_array_equal(first, kept)
    np.testing.assert_allclose(fed, -np.exp(kept), rtol=1e-5)


@pytest.mark.parametrize(
    ("body", "initializers"),
    [
        ("(float[6,4] x) => (float[2,4] y) { t = Neg(x) a, b, c = Split(t, sizes) y = Relu(a) }", {"sizes": np.array([2, 2, 2])}),
        ("(float[1,2,8,8] x) => (float[1,2,4,4] y) { t = Neg(x) y, i = MaxPool<kernel_shape: ints = [2,2], strides: ints = [2,2]>(t) }", {}),
        ("(float[6,4] x) => (float[6,2] y) { t = Neg(x) y, i = TopK(t, k) }", {"k": np.array([2])}),
        ("(float[6,4] x) => (float[6,4] y) { t = Neg(x) d, m = Dropout(t) y = Exp(d) }", {}),
    ],
    ids=["split", "max_pool", "top_k", "dropout"],
)  # fmt: skip
def test_unused_results_have_their_bytes(body: str, initializers: dict[str, np.ndarray]) -> None:
    proto = model(body, initializers=initializers)
    check(proto, {"x": data(tuple(d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim))})


def test_outputs_that_are_weights_inputs_or_twins_are_the_callers_own() -> None:
    w = data((5,), 3)
    proto = model("(float[5] x) => (float[5] a, float[5] b, float[5] c, float[5] d) "
                  "{ a = Identity(w) b = Identity(x) c = Neg(x) d = Identity(c) }", initializers={"w": w})  # fmt: skip
    check(proto, {"x": data((5,))})
    executable = memc.compile(proto).load()
    x = data((5,))
    first = executable.run_numpy({"x": x})
    for value in first.values():
        value[...] = 7
    second = executable.run_numpy({"x": x})
    for name, want in {"a": w, "b": x, "c": -x, "d": -x}.items():
        np.testing.assert_array_equal(second[name], want)
    assert not np.shares_memory(second["c"], second["d"])


def test_graph_output_is_the_initializer_or_input_itself() -> None:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [3]) for n in ("y", "x", "w")],
        [numpy_helper.from_array(data((3,), 5), "w")],
    )
    x = data((3,))
    executable = memc.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])).load()
    results = executable.run_numpy({"x": x})
    np.testing.assert_array_equal(results["x"], x)
    np.testing.assert_array_equal(results["w"], data((3,), 5))
    assert not np.shares_memory(results["x"], x)


def test_in_place_respects_a_second_reader() -> None:
    proto = model("(float[4,4] x) => (float[4,4] y) { b = Neg(x) r = Relu(b) s = Add(b, r) y = Mul(s, r) }")
    check(proto, {"x": data((4, 4))})


def test_a_view_used_last_keeps_its_bytes() -> None:
    steps = " ".join(f"t{i + 1} = Tanh(t{i})" for i in range(12))
    proto = model(
        f"(float[6,4] x) => (float[8] y) {{ n = Neg(x) v, i = TopK(n, k) r = Reshape(v, shape) t0 = Exp(x) {steps} "
        f"m = ReduceMean<axes: ints = [0, 1], keepdims: int = 0>(t12) q = Add(r, m) y = Add(q, r) }}",
        initializers={"k": np.array([2]), "shape": np.array([12])},
    )
    proto.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 12
    check(proto, {"x": data((6, 4))})


def test_the_arena_does_not_grow_with_the_weights() -> None:
    body = "(float[1,{c},8,8] x) => (float[1,8,8,8] y) {{ y = Conv<kernel_shape: ints = [1,1]>(x, w) }}"
    arenas = [
        memc.compile(model(body.format(c=c), initializers={"w": data((8, c, 1, 1))}), plan_only=True).report.arena_bytes
        for c in (4, 1024)
    ]
    assert arenas == [0, 0]


def test_workspace_and_live_tensors_never_overlap() -> None:
    proto = model(
        "(float[1,8,20,20] x) => (float[1,16,20,20] y) { a = Relu(x) b = Conv<kernel_shape: ints = [3,3], "
        "pads: ints = [1,1,1,1]>(a, w) c = Conv<kernel_shape: ints = [3,3], pads: ints = [1,1,1,1]>(b, v) "
        "y = Add(c, b) }",
        initializers={"w": data((16, 8, 3, 3)) / 16, "v": data((16, 16, 3, 3), 1) / 16},
    )
    check(proto, {"x": data((1, 8, 20, 20))})


def test_zero_copy_concat_with_a_third_reader() -> None:
    proto = model(
        "(float[16,32] x) => (float[32,32] y, float[16,32] z) { a = Exp(x) b = Tanh(x) y = Concat<axis: int = 0>(a, b) "
        "z = Mul(a, b) }"
    )
    check(proto, {"x": data((16, 32))})


def test_zero_copy_concat_of_one_value_twice() -> None:
    proto = model("(float[16,32] x) => (float[32,32] y) { a = Exp(x) c = Concat<axis: int = 0>(a, a) y = Neg(c) }")
    check(proto, {"x": data((16, 32))})


# Sizes.


def test_zero_size_tensors() -> None:
    check(
        model("(float[0,1030] x, float[1030,768] w) => (float[0,768] y) { y = MatMul(x, w) }"),
        {"x": data((0, 1030)), "w": data((1030, 768))},
    )
    proto = model(
        "(float[4,3] x) => (float[4,3] y) { e = Slice(x, zero, zero, zero) y = Concat<axis: int = 0>(e, x) }",
        initializers={"zero": np.array([0])},
    )
    check(proto, {"x": data((4, 3))})
    proto = model(
        "(float[0,3] x) => (float[0,3] y) { y = Slice(x, last, first, axis, back) }",
        initializers={
            "last": np.array([-1]),
            "first": np.array([np.iinfo(np.int64).min]),
            "axis": np.array([0]),
            "back": np.array([-1]),
        },
    )
    check(proto, {"x": data((0, 3))})


def test_the_textbook_placement() -> None:
    problem = Problem((Buffer(1000, 0, 2), Buffer(400, 3, 6), Buffer(500, 3, 6)))
    assert solve(problem, "auto").peak == 1000


def test_fusion_never_raises_the_peak() -> None:
    # Fusing Exp into the last op would keep the large operand alive beside the large temporary.
    proto = model(
        "(float[64,256] x) => (float[64] y) { a = Neg(x) e = Exp(a) s = ReduceSum<keepdims: int = 0>(e, one) "
        "b = Tanh(x) c = Mul(b, b) t = ReduceSum<keepdims: int = 0>(c, one) y = Add(s, t) }",
        initializers={"one": np.array([1])},
    )
    arenas = [memc.compile(proto, opt_level=level, plan_only=True).report.arena_bytes for level in (0, 1, 2)]
    assert arenas[2] <= arenas[1] <= arenas[0]
    check(proto, {"x": data((64, 256))}, levels=(2,))


def test_a_budget_below_the_possible(tmp_path: Any) -> None:
    proto = model("(float[64,64] x) => (float[64,64] y) { a = Exp(x) b = Tanh(a) c = MatMul(a, b) y = Add(c, a) }")
    peak = memc.compile(proto, plan_only=True).report.peak_bytes
    out = tmp_path / "m.memc"
    with pytest.raises(memc.MemcError, match=f"least reachable peak is {peak} bytes") as caught:
        memc.compile(proto, out, memory_budget=peak - 1)
    assert caught.value.exit_code == 4
    assert not list(tmp_path.iterdir())
    assert memc.compile(proto, out, memory_budget=peak).report.peak_bytes == peak


def test_lower_budgets_never_give_higher_peaks() -> None:
    proto = model("(float[64,64] x) => (float[64,64] y) { a = Exp(x) b = Tanh(a) c = MatMul(a, b) y = Add(c, a) }")
    full = memc.compile(proto, plan_only=True).report.peak_bytes
    peaks = []
    for percent in range(100, 0, -10):
        try:
            report = memc.compile(proto, plan_only=True, memory_budget=full * percent // 100).report
        except memc.MemcError as error:
            assert error.exit_code == 4
            continue
        assert report.peak_bytes <= full * percent // 100
        peaks.append(report.peak_bytes)
    assert peaks == sorted(peaks, reverse=True) and peaks


# Import.


def test_squeeze_axes_as_attribute_and_as_input() -> None:
    old = model("(float[1,8,1,6] x) => (float[1,8,6] y) { y = Squeeze<axes: ints = [2]>(x) }", opset=11)
    new = model("(float[1,8,1,6] x) => (float[1,8,6] y) { y = Squeeze(x, axes) }", 13, {"axes": np.array([2])})
    for proto in (old, new):
        check(proto, {"x": data((1, 8, 1, 6))}, levels=(2,))


def test_reshape_placeholders() -> None:
    check(
        model("(float[2,3,4] x) => (float[2,12] y) { y = Reshape(x, s) }", 14, {"s": np.array([0, -1])}),
        {"x": data((2, 3, 4))},
        levels=(2,),
    )
    check(
        model(
            "(float[0,3] x) => (float[3,0] y) { y = Reshape<allowzero: int = 1>(x, s) }", 14, {"s": np.array([3, 0])}
        ),
        {"x": data((0, 3))},
        levels=(2,),
    )


@pytest.mark.parametrize("opset", [11, 13])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_softmax_of_either_meaning(opset: int, op: str) -> None:
    check(
        model(f"(float[2,3,4] x) => (float[2,3,4] y) {{ y = {op}<axis: int = 1>(x) }}", opset), {"x": data((2, 3, 4))}
    )


def test_average_pool_end_pad_and_ceil_mode() -> None:
    proto = model(
        "(float[1,2,17,17] x) => (float[1,2,9,9] y) { y = AveragePool<kernel_shape: ints = [2,2], strides: ints = [2,2], "
        "pads: ints = [0,0,1,1], ceil_mode: int = 1>(x) }"
    )
    check(proto, {"x": data((1, 2, 17, 17))}, levels=(2,))


def test_average_pool_same_lower_counting_pads() -> None:
    proto = model(
        "(float[1,2,7,7] x) => (float[1,2,4,4] y) { y = AveragePool<kernel_shape: ints = [2,2], strides: ints = [2,2], "
        'auto_pad: string = "SAME_LOWER", count_include_pad: int = 1>(x) }'
    )
    check(proto, {"x": data((1, 2, 7, 7))}, levels=(2,))


def test_split_sizes_and_shapes_from_foldable_subgraphs() -> None:
    proto = model(
        "(float[6,4] x) => (float[2,4] y, float[4,4] z, float[4,6] w) { s = Shape(x) n = Gather(s, zero) "
        "third = Div(n, three) rest = Sub(n, third) sizes = Concat<axis: int = 0>(third, rest) y, z = Split(x, sizes) "
        "f = Cast<to: int = 1>(s) g = Cast<to: int = 7>(f) shape = Slice(g, back, front, zero, back) "
        "e = ConstantOfShape(shape) r = Reshape(x, shape) w = Add(r, e) }",
        initializers={
            "zero": np.array([0]),
            "three": np.array([3]),
            "back": np.array([-1]),
            "front": np.array([np.iinfo(np.int64).min]),
        },
    )
    check(proto, {"x": data((6, 4))}, levels=(2,))


@pytest.mark.parametrize("shape", ["gemm", "grouped"])
def test_cuda_kernels_fit_the_gpu(shape: str) -> None:
    if shape == "gemm":
        proto = model(
            "(float[1,8] x) => (float[1,16] y) { y = Gemm(x, w, b) }",
            initializers={"w": data((8, 16)), "b": data((16,), 1)},
        )
    else:
        proto = model(
            "(float[1,128,56,56] x) => (float[1,256,56,56] y) { y = Conv<group: int = 2, kernel_shape: ints = [3,3], "
            "pads: ints = [1,1,1,1]>(x, w) }",
            initializers={"w": data((256, 64, 3, 3))},
        )
    from shutil import which

    if which("nvcc") is None:
        pytest.skip("needs nvcc")
    compilation = memc.compile(proto, target="cuda", arch="sm_90", kernels="generated")
    assert compilation.path is not None and compilation.report.kernels >= 1


def test_a_contradicting_value_info() -> None:
    proto = model("(float[2,3] x) => (float[2,3] y) { t = Neg(x) y = Relu(t) }")
    proto.graph.value_info.append(helper.make_tensor_value_info("t", TensorProto.FLOAT, [3, 2]))
    try:
        compilation = memc.compile(proto, plan_only=True)
    except memc.MemcError as error:
        assert "[3,2]" in str(error).replace(" ", "") and "[2,3]" in str(error).replace(" ", "")
    else:
        assert compilation.module.main.returns[0].type.shape == (2, 3)


def test_an_output_declared_with_another_shape() -> None:
    proto = model("(float[2,3] x) => (float[3,2] y) { y = Relu(x) }")
    with pytest.raises(memc.MemcError, match=r"3, ?2.*2, ?3|2, ?3.*3, ?2"):
        memc.compile(proto, plan_only=True)


def test_the_lower_bound_is_reached_on_a_chain() -> None:
    steps = " ".join(f"t{i + 1} = Softmax(t{i})" for i in range(6))
    compilation = memc.compile(model(f"(float[32,64] x) => (float[32,64] y) {{ t0 = Neg(x) {steps} y = Neg(t6) }}"))
    bound = lower_bound(lifetimes(compilation.module.main), 64)
    assert compilation.report.arena_bytes == bound == compilation.report.lower_bound_bytes
