# SPDX-License-Identifier: Apache-2.0
"""Shapes that depend on data, and the end of a detector, against onnxruntime."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

from memc.frontend.onnx import import_onnx
from memc.ir.errors import UnsupportedError
from memc.ir.evaluate import evaluate

RANDOM = np.random.default_rng(3)

HEAD = """<ir_version: 10, opset_import: ["" : 17]>
g (float[12] x, bool[12] mask) => (RESULTS)
<int64[1] zero = {0}, int64[1] one = {1}, int64[1] five = {5}, int64[1] minus = {-1}, int64 first = {0}, int64 unit = {1}> {
  at = NonZero(mask) line = Squeeze(at, zero) few = Gather(x, line) shape = Shape(few)
  BODY
}"""


def model_of(results, body):
    model = parser.parse_model(HEAD.replace("RESULTS", results).replace("BODY", body))
    onnx.checker.check_model(model)
    return model


def same(model, inputs, max_size=None):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    wanted = session.run(None, inputs)
    found = list(evaluate(import_onnx(model, max_size=max_size), inputs).values())
    assert len(found) == len(wanted)
    for value, expected in zip(found, wanted):
        assert value.dtype == expected.dtype and value.shape == expected.shape
        np.testing.assert_allclose(value, expected, rtol=1e-5)


CASES = {
    "shape and size": ("int64[1] y, int64 z", "y = Identity(shape) z = Size(few)"),
    "filled": ("float[n] y", "y = ConstantOfShape<value = float[1] {7}>(shape)"),
    "filled, beside what it is like": (
        "float[n] y",
        "f = ConstantOfShape<value = float[1] {7}>(shape) y = Add(f, few)",
    ),
    "a matrix of one row": (
        "float[a,b] y",
        "s = Concat<axis = 0>(one, shape) f = ConstantOfShape<value = float[1] {7}>(s) y = Mul(f, few)",
    ),
    "expanded": ("int64[n] y", "y = Expand(five, shape)"),
    "numbers": ("int64[n] y", "end = Squeeze(shape, zero) y = Range(first, end, unit)"),
    "reshaped by its own size": ("float[a,n] y", "s = Concat<axis = 0>(one, shape) y = Reshape(few, s)"),
    "the greatest, all": ("float[n] y, int64[n] z", "y, z = TopK(few, shape)"),
    "the greatest, at most five": (
        "float[n] y, int64[n] z, float[n] w",
        "c = Concat<axis = 0>(five, shape) k = ReduceMin<keepdims = 0>(c) k1 = Unsqueeze(k, zero)"
        " y, z = TopK(few, k1) chosen = Gather(few, z) w = Sub(chosen, y)",
    ),
    "the least, at most five": (
        "float[n] y, int64[n] z",
        "k = Min(five, shape) y, z = TopK<largest = 0>(few, k)",
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("share", [0, 0.3, 1])
def test_shapes(name, share):
    x = RANDOM.standard_normal(12).astype(np.float32)
    same(model_of(*CASES[name]), {"x": x, "mask": RANDOM.uniform(size=12) < share})


def test_another_size_of_the_same_room_is_refused():
    other = (
        "n = Not(mask) at2 = NonZero(n) s = Shape(at2) end = Gather(s, one) f = ConstantOfShape(end) y = Add(f, few)"
    )
    with pytest.raises(
        UnsupportedError, match="node `y` .Add.: input `f` has a size that depends on data along axis 0"
    ):
        import_onnx(model_of("float[n] y", other))


def detector(classes, topk, keep):
    """What detection models do with boxes and scores: of each class the best ones, then those that overlap no better one."""
    parts, text = {"b": [], "s": [], "l": []}, []
    for c in range(classes):
        text.append(f"""
          score{c} = Gather<axis = 1>(scores, class{c}) good{c} = Greater(score{c}, limit)
          nz{c} = NonZero(good{c}) rows{c} = Transpose<perm = [1, 0]>(nz{c}) s{c} = GatherND(score{c}, rows{c})
          nzb{c} = NonZero(good{c}) rowsb{c} = Transpose<perm = [1, 0]>(nzb{c}) b{c} = GatherND(boxes, rowsb{c})
          sh{c} = Shape(s{c}) n{c} = Gather<axis = 0>(sh{c}, zero) c{c} = Concat<axis = 0>(topk, n{c})
          k{c} = ReduceMin<keepdims = 0>(c{c}) kk{c} = Reshape(k{c}, one)
          bs{c}, i{c} = TopK<axis = 0, largest = 1, sorted = 1>(s{c}, kk{c}) bb{c} = Gather<axis = 0>(b{c}, i{c})
          sl{c} = Shape(bs{c}) l{c} = Expand(label{c}, sl{c})""")
        for kind, name in zip(parts, (f"bb{c}", f"bs{c}", f"l{c}")):
            parts[kind].append(name)
    constants = ", ".join(f"int64 class{c} = {{{c}}}, int64 label{c} = {{{c}}}" for c in range(classes))
    return parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 17]>
      g (float[30,4] boxes, float[30,{classes}] scores) => (float[n,4] y, float[n] z, int64[n] w)
      <{constants}, float limit = {{0.4}}, int64[1] topk = {{{topk}}}, int64[1] keep = {{{keep}}}, int64[1] zero = {{0}},
       int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] most = {{9223372036854775807}}, int64 none = {{0}},
       float[1] overlap = {{0.3}}, float unit = {{1}}> {{
        {"".join(text)}
        b = Concat<axis = 0>({", ".join(parts["b"])}) s = Concat<axis = 0>({", ".join(parts["s"])})
        l = Concat<axis = 0>({", ".join(parts["l"])})
        total = Size(b) empty = Equal(total, none)
        kept = If(empty) <
          then_branch = t () => (int64[z] nothing) {{ nothing = ConstantOfShape<value = int64[1] {{0}}>(zero) }},
          else_branch = e () => (int64[k] few) {{
            far = ReduceMax<keepdims = 0>(b) further = Add(far, unit) lf = Cast<to = 1>(l) off = Mul(lf, further)
            offs = Unsqueeze(off, one) moved = Add(b, offs)
            mb = Unsqueeze(moved, zero) ms0 = Unsqueeze(s, zero) ms = Unsqueeze(ms0, zero)
            chosen = NonMaxSuppression(mb, ms, most, overlap)
            third = Slice(chosen, two, three, one) few = Squeeze(third, one)
          }}>
        best = Slice(kept, zero, keep, zero)
        y = Gather<axis = 0>(b, best) z = Gather<axis = 0>(s, best) w = Gather<axis = 0>(l, best)
      }}""".replace("int64 none =", "int64[1] three = {3}, int64 none =")
    )


@pytest.mark.parametrize("classes, topk, keep", [(1, 4, 3), (3, 4, 5), (2, 100, 100)])
@pytest.mark.parametrize("scale", [0, 0.6, 1])
def test_the_end_of_a_detector(classes, topk, keep, scale):
    corners = RANDOM.uniform(0, 10, (30, 2, 2)).astype(np.float32)
    boxes = np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)
    scores = (RANDOM.uniform(size=(30, classes)) * scale).astype(np.float32)
    same(detector(classes, topk, keep), {"boxes": boxes, "scores": scores})


COUNT = "n = NonZero(x) s = Shape(n) one = Constant<value_int = 1>() k = Gather(s, one) "


@pytest.mark.parametrize("data", [(0, 0), (1, 0), (1, 1)])
@pytest.mark.parametrize(
    "table, body",
    [([3, 9, 3], "y = Gather(t, k)"), ([2, 50, 3], "y = Gather(t, k)"), ([1, 0, 2], "y = Gather(t, k)")],
)
def test_a_number_is_an_index(data, table, body):
    """What lies between the results for the least and the greatest index may be anything."""
    values = ", ".join(map(str, table))
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>\n'
        f"g (float[2] x) => (int64 y) {{ {COUNT} t = Constant<value_ints = [{values}]>() {body} }}"
    )
    same(model, {"x": np.array(data, np.float32)})


@pytest.mark.parametrize(
    "body",
    [
        "t = Constant<value_ints = [2, 50, 3]>() e = Gather(t, k)",
        "m = Constant<value_int = -1>() p = Mul(k, m) ten = Constant<value_int = 10>() e = Add(p, ten)",
        "h = Constant<value_int = 300>() p = Mul(k, h) b = Cast<to = 3>(p) e = Cast<to = 7>(b)",
    ],
)
def test_numbers_without_a_bound_are_no_sizes(body):
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>\n'
        f"g (float[2] x) => (int64 y) {{ {COUNT} {body} z = Constant<value_int = 0>()"
        " r = Range(z, e, one) y = ReduceSum<keepdims = 0>(r) }"
    )
    with pytest.raises(UnsupportedError, match="must be known at compile time"):
        import_onnx(model)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_an_axis_of_room_one_stays_where_it_is(axis):
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>\n'
        "g (float[2] x) => (int64[a,b] y) { n = NonZero(x) zero = Constant<value_ints = [0]>() q = Squeeze(n, zero)"
        f" o = Constant<value_ints = [{axis}]>() y = Unsqueeze(q, o) }}"
    )
    for x in ((0, 0), (0, 1)):
        same(model, {"x": np.array(x, np.float32)}, max_size=1)
