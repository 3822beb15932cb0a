# SPDX-License-Identifier: Apache-2.0
"""Small models whose views and in-place ops have broken memory planners, end to end against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import memc

from .hard_models import check, data, model


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
