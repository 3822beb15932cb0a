# SPDX-License-Identifier: Apache-2.0
"""Walking graphs: order, names, functions, folding, shapes, and invalid graphs."""

from __future__ import annotations

import logging

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from memc.frontend.onnx import context, import_onnx
from memc.ir.core import Role
from memc.ir.errors import InvalidError, MemcError, UnsupportedError
from memc.ir.evaluate import evaluate
from memc.ir.verify.structure import verify


def parse(text: str, opset: int = 17, domains: str = "") -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}{domains}]>\n{text}')


def names_of(model: onnx.ModelProto) -> list[str]:
    return [op.name for op in import_onnx(model).main.ops]


X = np.array([[-1.5, 0.25, 2], [3, -4, 0.5]], np.float32)


def test_values_keep_their_names_and_outputs_theirs() -> None:
    module = import_onnx(parse("g (float[2,3] x) => (float[2,3] y) { t = Relu(x) y = Neg(t) }"))
    verify(module)
    assert [op.result.name for op in module.main.ops] == ["t", "y"]
    assert module.main.result_names == ["y"]


def test_numeric_names_do_not_clash_with_made_ones() -> None:
    nodes = [
        helper.make_node("HardSwish", ["x"], ["0"]),
        helper.make_node("HardSwish", ["0"], ["1"]),
        helper.make_node("Add", ["1", "0"], ["2"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    y = helper.make_tensor_value_info("2", TensorProto.FLOAT, [2, 3])
    module = import_onnx(
        helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=[helper.make_opsetid("", 17)])
    )
    verify(module)
    names = [v.name for v in module.main.values()]
    assert len(set(names)) == len(names) and {"0", "1", "2"} <= set(names)
    swish = lambda v: v * np.clip(v / 6 + 0.5, 0, 1)  # noqa: E731
    np.testing.assert_allclose(evaluate(module, {"x": X})["2"], swish(swish(X)) + swish(X), rtol=1e-6)


def test_unsorted_nodes_are_sorted_and_dead_ones_dropped() -> None:
    model = parse("g (float[2,3] x) => (float[2,3] y) { t = Relu(x) u = Exp(x) y = Neg(t) }")
    model.graph.node.insert(0, model.graph.node.pop())
    assert names_of(model) == ["relu", "neg"]


def test_one_weight_however_often_it_is_read() -> None:
    weight = ", ".join(["1"] * 32)
    model = parse(
        f"g (float[32] x) => (float[32] y, float[32] z) <float[32] w = {{{weight}}}> {{ y = Add(x, w) z = Mul(y, w) }}"
    )
    module = import_onnx(model)
    assert [p.name for p in module.main.params_of(Role.WEIGHT)] == ["w"]


def test_output_may_be_an_input_an_initializer_or_the_same_value_twice() -> None:
    model = parse(
        "g (float[2,3] x) => (float[2,3] x1, float[2] c1, float[2,3] y, float[2,3] y1) <float[2] c = {1, 2}> "
        "{ x1 = Identity(x) c1 = Identity(c) y = Relu(x) y1 = Identity(y) }"
    )
    results = evaluate(import_onnx(model), {"x": X})
    np.testing.assert_array_equal(results["x1"], X)
    np.testing.assert_array_equal(results["c1"], [1, 2])
    np.testing.assert_array_equal(results["y"], results["y1"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{ y = Relu(absent) }", "input `absent` is not defined"),
        ("{ a = Add(x, b) b = Relu(a) y = Neg(a) }", "cycle"),
        ("{ y = Relu(y) }", "cycle"),
        ("{ t = Relu(x) t = Neg(x) y = Neg(t) }", "output `t` is defined a second time"),
        ("{ x = Relu(x) y = Neg(x) }", "output `x` is defined a second time"),
        ("{ t = Relu(x) }", "output `y` is not defined"),
        ("{ y = Nonsense(x) }", "unknown op Nonsense in opset 17"),
        ("{ y = nowhere.Relu(x) }", "imports no version of domain `nowhere`"),
        ("{ y = custom.Op(x) }", "unknown op custom::Op in opset 1"),
        ("{ y = Relu(x, x) }", "expected 1 to 1 inputs, got 2"),
        ("{ y = Relu <alpha = 1.0> (x) }", "no attribute `alpha`"),
        ("{ y = Softmax <axis = 1.5> (x) }", "attribute `axis`: expected one INT, got FLOAT"),
        ("{ y = Cast (x) }", "attribute `to` is missing"),
        ("{ t = Transpose (x) y = Add (x, t) }", "node `y` .Add.: .*2.*3"),
    ],
)
def test_invalid_graphs_name_the_node(text: str, message: str) -> None:
    model = parse(f"g (float[2,3] x) => (float[2,3] y) {text}", domains=', "custom" : 1')
    with pytest.raises(MemcError, match=message) as caught:
        import_onnx(model)
    assert "\n" not in str(caught.value) and caught.value.exit_code == 3
    assert str(caught.value).startswith(("invalid: ", "unsupported: "))


def test_duplicate_initializers_inputs_and_outputs() -> None:
    model = parse("g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }")
    for field in ("initializer", "input", "output"):
        broken = onnx.ModelProto()
        broken.CopyFrom(model)
        getattr(broken.graph, field).append(getattr(broken.graph, field)[0])
        with pytest.raises(InvalidError, match=r"twice|2 times"):
            import_onnx(broken)


def test_unexpected_exceptions_become_invalid_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: context.NodeContext) -> list[context.Known]:
        raise ZeroDivisionError("by\nzero")

    monkeypatch.setitem(context._IMPORTERS, ("", "Relu"), broken)
    with pytest.raises(InvalidError, match=r"node `y` \(Relu\): cannot be imported: ZeroDivisionError: by$") as caught:
        import_onnx(parse("g (float[2] x) => (float[2] y) { y = Relu(x) }"))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_value_info_that_contradicts_the_ops_is_inferred_again() -> None:
    model = parse("g (float[2,3] x) => (float[2,3] y) <float[7,7] t> { t = Relu(x) y = Neg(t) }")
    np.testing.assert_array_equal(evaluate(import_onnx(model), {"x": X})["y"], -np.maximum(X, 0))


def test_output_declaration_that_contradicts_the_ops(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(InvalidError, match=r"output `y`: declared f32\[3,3\], but the ops make f32\[2,3\]"):
        import_onnx(parse("g (float[2,3] x) => (float[3,3] y) { y = Relu(x) }"))
    with pytest.raises(InvalidError, match=r"declared i64\[2,3\]"):
        import_onnx(parse("g (float[n,3] x) => (int64[2,3] y) { y = Relu(x) }"))
    with caplog.at_level(logging.WARNING, logger="memc"):
        import_onnx(parse("g (float[n,3] x) => (float[1,3] y) { y = Relu(x) }"), dims={"n": 4})
    assert "declared f32[1,3], but is f32[4,3]" in caplog.text


def test_shape_subgraphs_are_folded() -> None:
    model = parse(
        "g (float[2,3,4] x) => (float[n,m] y) <int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}> {"
        " s = Shape(x) a = Gather<axis = 0>(s, one) b = Gather<axis = 0>(s, two) c = Mul(a, b)"
        " d = Cast<to = 1>(c) e = Cast<to = 7>(d) f = ConstantOfShape<value = int64[1] {2}>(one)"
        " t = Concat<axis = 0>(f, e) y = Reshape(x, t) }"
    )
    module = import_onnx(model)
    assert [op.name for op in module.main.ops] == ["reshape"]
    assert module.main.returns[0].type.shape == (2, 12)


def test_split_sizes_from_a_foldable_subgraph() -> None:
    model = parse(
        "g (float[2,6] x) => (float[2,a] y, float[2,b] z) <int64[1] four = {4}> {"
        " s = Shape<start = 1>(x) rest = Sub(s, four) sizes = Concat<axis = 0>(four, rest)"
        " y, z = Split<axis = 1>(x, sizes) }"
    )
    assert [v.type.shape for v in import_onnx(model).main.returns] == [(2, 4), (2, 2)]


def test_shape_with_start_and_end_and_size() -> None:
    model = parse(
        "g (float[2,3,4] x) => (int64[n] a, int64[m] b, int64 c)"
        " { a = Shape<start = -2>(x) b = Shape<start = 1, end = -1>(x) c = Size(x) }"
    )
    results = evaluate(import_onnx(model), {"x": np.zeros((2, 3, 4), np.float32)})
    assert results["a"].tolist() == [3, 4] and results["b"].tolist() == [3] and results["c"] == 24


def test_large_fills_are_not_folded() -> None:
    model = parse(
        "g (float[1] x) => (float[2000,2000] y) <int64[2] s = {2000, 2000}, int64[2] r = {1, 1}> {"
        " a = ConstantOfShape(s) b = Tile(a, r) y = Add(b, x) }"
    )
    module = import_onnx(model)
    assert sum(array.nbytes for array in module.weights.values()) < 1000
    assert evaluate(module, {"x": np.ones(1, np.float32)})["y"].sum() == 4e6


def test_large_weights_are_folded_when_they_do_not_grow() -> None:
    weight = onnx.numpy_helper.from_array(np.arange(3_000_000, dtype=np.float32).reshape(1000, 3000), "w")
    model = parse("g (float[1000] x) => (float[3000,1000] y) { t = Transpose(w) y = Add(t, x) }")
    model.graph.initializer.append(weight)
    module = import_onnx(model)
    assert [op.name for op in module.main.ops] == ["add"]
    assert module.weights["t"].shape == (3000, 1000)


def test_a_value_beyond_a_terabyte_is_refused() -> None:
    model = parse("g (float[1] x) => (float[n,m] y) <int64[2] s = {4000000, 4000000}> { y = Expand(x, s) }")
    with pytest.raises(InvalidError, match="larger than 1 TiB"):
        import_onnx(model)


FUNCTION = """<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
g (float[2,3] x) => (float[2,3] y, float[2,3] z) {
  t = Relu(x)
  y = local.outer <slope = 0.5> (t)
  z = local.inner (x)
}
<opset_import: ["" : 17, "local" : 1], domain: "local">
outer <slope> (a) => (b) { t = local.inner <alpha: float = @slope> (a) b = Add(t, a) }
<opset_import: ["" : 17], domain: "local">
inner <alpha: float = 0.25> (x) => (y) { t = Neg(x) y = LeakyRelu <alpha: float = @alpha> (t) }
"""


def test_local_functions_nest_with_attributes_and_defaults() -> None:
    module = import_onnx(onnx.parser.parse_model(FUNCTION))
    verify(module)
    results = evaluate(module, {"x": X})
    leaky = lambda v, alpha: np.where(v < 0, v * np.float32(alpha), v)  # noqa: E731
    relu = np.maximum(X, 0)
    np.testing.assert_allclose(results["y"], leaky(-relu, 0.5) + relu, rtol=1e-6)
    np.testing.assert_allclose(results["z"], leaky(-X, 0.25), rtol=1e-6)


def test_functions_that_call_themselves() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
    g (float[2] x) => (float[2] y) { y = local.f (x) }
    <opset_import: ["local" : 1], domain: "local"> f (a) => (b) { b = local.f (a) }"""
    with pytest.raises(InvalidError, match="nested deeper than"):
        import_onnx(onnx.parser.parse_model(text))


def test_functions_that_multiply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memc.frontend.onnx.graph_walk.MAX_NODES", 2000)
    calls = "".join(
        f'<opset_import: ["local" : 1], domain: "local"> f{i} (a) => (b) '
        f"{{ t = local.f{i + 1} (a) b = local.f{i + 1} (t) }}\n"
        for i in range(20)
    )
    text = (
        '<ir_version: 8, opset_import: ["" : 17, "local" : 1]> g (float[2] x) => (float[2] y) { y = local.f0 (x) }\n'
        + calls
        + '<opset_import: ["" : 17], domain: "local"> f20 (a) => (b) { b = Relu (a) }'
    )
    with pytest.raises(InvalidError, match="more than 2000 nodes"):
        import_onnx(onnx.parser.parse_model(text))


def test_standard_functions_are_expanded_without_a_direct_importer(monkeypatch: pytest.MonkeyPatch) -> None:
    for op in ("Softplus", "MeanVarianceNormalization", "Celu"):
        monkeypatch.delitem(context._IMPORTERS, ("", op), raising=False)
    model = parse(
        "g (float[2,3,2,2] x) => (float[2,3,2,2] y, float[2,3,2,2] z, float[2,3,2,2] w)"
        " { y = Softplus(x) z = MeanVarianceNormalization(x) w = Celu <alpha = 2.0> (x) }",
        opset=18,
    )
    x = np.random.default_rng(0).normal(size=(2, 3, 2, 2)).astype(np.float32)
    results = evaluate(import_onnx(model), {"x": x})
    np.testing.assert_allclose(results["y"], np.log1p(np.exp(x)), rtol=1e-5)
    centred = x - x.mean((0, 2, 3), keepdims=True)
    np.testing.assert_allclose(results["z"], centred / (x.std((0, 2, 3), keepdims=True) + 1e-9), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(results["w"], np.where(x < 0, 2 * np.expm1(x / 2), x), rtol=1e-5, atol=1e-6)


def test_values_that_must_be_known_say_how_to_bind_them() -> None:
    model = parse("g (float[2,6] x, int64[2] s) => (float[a,b] y) { y = Reshape(x, s) }")
    with pytest.raises(UnsupportedError, match=r"node `y` \(Reshape\): input `s` must be known.*--bind s=VALUE"):
        import_onnx(model)
    assert import_onnx(model, bind={"s": [3, -1]}).main.returns[0].type.shape == (3, 4)
    hidden = parse("g (float[2,6] x, int64[2] s) => (float[a,b] y) { t = Neg(s) y = Reshape(x, t) }")
    with pytest.raises(UnsupportedError, match="input `t` must be known.*bind the graph inputs that decide it"):
        import_onnx(hidden)


def test_the_model_is_not_changed() -> None:
    model = onnx.parser.parse_model(FUNCTION)
    before = model.SerializeToString(deterministic=True)
    import_onnx(model)
    assert model.SerializeToString(deterministic=True) == before
