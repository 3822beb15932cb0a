# SPDX-License-Identifier: Apache-2.0
"""If and Loop whose course depends on data of a run, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest

import memc
from memc.frontend.onnx import import_onnx
from memc.ir.errors import UnsupportedError, UsageError
from memc.ir.evaluate import evaluate
from memc.ir.verify.structure import verify

Array = npt.NDArray[Any]


def parse(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\n{text}')


def expected(model: onnx.ModelProto, inputs: dict[str, Array]) -> list[Array]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, inputs))


def same(text: str, *runs: dict[str, Any], max_size: int | None = None) -> None:
    """Evaluated results equal onnxruntime's for each of several inputs."""
    model = parse(text)
    module = import_onnx(model, max_size=max_size)
    verify(module)
    for given in runs:
        inputs = {name: np.asarray(value) for name, value in given.items()}
        found = evaluate(module, inputs)
        for (name, value), want in zip(found.items(), expected(model, inputs)):
            assert value.shape == want.shape and value.dtype == want.dtype, name
            np.testing.assert_allclose(value, want, rtol=1e-6, err_msg=name)


X = np.array([1.5, -2, 3], np.float32)

BRANCHES = """g (float[3] x, bool c) => (float[3] y, float[3] z) {
  t = Relu(x)
  y, z = If (c) <
    then_branch = a () => (float[3] p, float[3] q) { p = Exp(t) q = Neg(x) },
    else_branch = b () => (float[3] r, float[3] s) { r = Identity(x) s = Add(t, x) } >
}"""


def test_if_takes_one_of_two() -> None:
    same(BRANCHES, {"x": X, "c": True}, {"x": X, "c": False})


def test_the_branch_that_is_not_taken_leaves_nothing() -> None:
    text = """g (float[3] x, bool c) => (float[3] y) {
      y = If (c) < then_branch = a () => (float[3] p) { p = Log(x) }, else_branch = b () => (float[3] q) { q = Abs(x) } >
    }"""
    same(text, {"x": X, "c": False}, {"x": -X, "c": False})


def test_branches_in_branches() -> None:
    text = """g (float[3] x, bool[1] c, bool d) => (float[3] y) {
      y = If (c) <
        then_branch = a () => (float[3] p) {
          p = If (d) < then_branch = aa () => (float[3] q) { q = Neg(x) }, else_branch = ab () => (float[3] r) { r = Exp(x) } >
        },
        else_branch = b () => (float[3] s) { s = Abs(x) } >
    }"""
    same(text, *({"x": X, "c": [c], "d": d} for c in (True, False) for d in (True, False)))


def test_branches_of_different_sizes() -> None:
    text = """g (float[3] x, bool c) => (float[n] y, int64[1,m] at) {
      y, at = If (c) <
        then_branch = a () => (float[2] p, int64[1,k] i) <int64[2] few = {0, 2}> { p = Gather(x, few) i = NonZero(x) },
        else_branch = b () => (float[6] q, int64[1,2] j) <int64[1,2] j = {7, 8}> { q = Concat<axis = 0>(x, x) } >
    }"""
    for x in (X, np.zeros(3, np.float32)):
        same(text, {"x": x, "c": True}, {"x": x, "c": False})


def test_what_overflows_in_the_other_branch_does_not_count() -> None:
    text = """g (float[3] x, bool c) => (float[1] y) <int64[1] zero = {0}, int64[1] one = {1}> {
      y = If (c) <
        then_branch = a () => (float[k] p) { at = NonZero(x) l = Squeeze(at, zero) f = Slice(l, zero, one) p = Gather(x, f) },
        else_branch = b () => (float[1] q) { q = Gather(x, one) } >
    }"""
    same(text, {"x": X, "c": False}, max_size=2)
    with pytest.raises(UsageError, match="expected at most 2"):
        same(text, {"x": X, "c": True}, max_size=2)


LOOP = """g (float[2] x, TYPES) => (float[2] y, float[k,2] s) <INITIAL> {
  y, s = Loop(n, c, x) <body = b (int64 i, bool ci, float[2] a) => (bool co, float[2] an, float[2] so) {
    GOES  an = Add(a, x)  so = Mul(a, a)
  }>
}"""


def loop(types: str, initial: str, goes: str) -> str:
    return LOOP.replace("TYPES", types).replace("INITIAL", initial).replace("GOES", goes)


LINE = np.array([1, -2], np.float32)


def test_loop_with_a_run_time_condition_at_the_start() -> None:
    text = loop("bool c", "int64 n = {3}", "co = Identity(ci)")
    same(text, {"x": LINE, "c": True}, {"x": LINE, "c": False})


def test_loop_with_a_run_time_trip_count() -> None:
    text = loop("int64 n", "bool c = {1}", "co = Identity(ci)")
    same(text, *({"x": LINE, "n": n} for n in (0, 1, 3, 5)), max_size=5)
    with pytest.raises(UsageError, match="y.count.*expected at most 4, .* got 5|expected at most 4, .* got 5"):
        same(text, {"x": LINE, "n": 5}, max_size=4)
    with pytest.raises(UnsupportedError, match="node `y` .Loop.: how often it runs depends on data of a run; bind"):
        import_onnx(parse(text))


@pytest.mark.parametrize("trips", [2, 4, 6])
def test_loop_that_ends_by_its_data(trips: int) -> None:
    goes = "big = ReduceMax<keepdims = 0>(a) co = Less(big, limit)"
    text = loop("float limit", f"int64 n = {{{trips}}}, bool c = {{1}}", goes)
    same(text, *({"x": LINE, "limit": np.float32(limit)} for limit in (0, 1.5, 3.5, 100)))
    endless = text.replace(f"int64 n = {{{trips}}}, ", "").replace("Loop(n, c, x)", 'Loop("", c, x)')
    endless = endless.replace('""', "")
    same(endless, {"x": LINE, "limit": np.float32(2.5)}, max_size=trips + 3)


def test_loop_in_an_if_and_if_in_a_loop() -> None:
    text = """g (float[2] x, bool c, int64 n) => (float[2] y, float[2] z) <bool yes = {1}, int64 two = {2}> {
      y = If (c) <
        then_branch = a () => (float[2] p) {
          p = Loop(n, yes, x) <body = b (int64 i, bool ci, float[2] a) => (bool co, float[2] an) {
            co = Identity(ci) an = Add(a, x) }>
        },
        else_branch = e () => (float[2] q) { q = Neg(x) } >
      z = Loop(two, yes, x) <body = b (int64 i, bool ci, float[2] a) => (bool co, float[2] an) {
        co = Identity(ci)
        an = If (c) < then_branch = t () => (float[2] r) { r = Mul(a, x) }, else_branch = u () => (float[2] w) { w = Sub(a, x) } >
      }>
    }"""
    same(text, *({"x": LINE, "c": c, "n": n} for c in (True, False) for n in (0, 2)), max_size=3)


@pytest.mark.parametrize("opt_level", [0, 2, 3])
def test_compiled(opt_level: int) -> None:
    runs = ((BRANCHES, {"x": X}), (loop("bool c", "int64 n = {3}", "co = Identity(ci)"), {"x": LINE}))
    for text, given in runs:
        model = parse(text)
        executable = memc.compile(model, opt_level=opt_level).load()
        for c in (True, False):
            inputs = {**given, "c": np.array(c)}
            for value, want in zip(executable.run_numpy(inputs).values(), expected(model, inputs)):
                assert value.shape == want.shape
                np.testing.assert_allclose(value, want, rtol=1e-6)


def test_what_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="node `y` .If.: control flow that depends on data .* to be trained"):
        import_onnx(parse(BRANCHES), trainable=True)
    text = """g (float[3] x, bool c) => (float[n] y) {
      y = If (c) < then_branch = a () => (float[3] p) { p = Neg(x) },
        else_branch = b () => (float q) { q = ReduceMax<keepdims = 0>(x) } > }"""
    with pytest.raises(UnsupportedError, match="node `y` .If.: expected results of one element type and rank, got"):
        import_onnx(parse(text))


COUNTED = "n = NonZero(x) nf = Cast<to = 1>(n) "
SUM = "ReduceSum<keepdims = 0>"
OVERFLOWS = {
    "in both branches": f"""y = If (c) <
    then_branch = a () => (float p) {{ {COUNTED} p = {SUM}(nf) }},
    else_branch = b () => (float q) {{ {COUNTED} q = {SUM}(nf) }} >""",
    "after a branch": f"""z = If (c) <
    then_branch = a () => (float p) {{ {COUNTED} p = {SUM}(nf) }},
    else_branch = b () => (float q) {{ q = {SUM}(x) }} >
  m = NonZero(x) mf = Cast<to = 1>(m) s = {SUM}(mf) zero = Sub(z, z) y = Add(s, zero)""",
    "of what both branches join": f"""n = NonZero(x)
  y = If (c) <
    then_branch = a () => (float p) {{ j = Concat<axis = 1>(n, n) jf = Cast<to = 1>(j) p = {SUM}(jf) }},
    else_branch = b () => (float q) {{ k = Concat<axis = 1>(n, n) kf = Cast<to = 1>(k) q = {SUM}(kf) }} >""",
}


@pytest.mark.parametrize("where", OVERFLOWS)
@pytest.mark.parametrize("condition", [True, False])
def test_too_many_are_noticed_wherever_they_are_counted(where: str, condition: bool) -> None:
    """A count that one branch has made is checked for the other, and after both, too."""
    module = import_onnx(parse(f"g (float[10] x, bool c) => (float y) {{ {OVERFLOWS[where]} }}"), max_size=4)
    few = np.isin(np.arange(10), (2, 7)).astype(np.float32)
    assert evaluate(module, {"x": few, "c": np.asarray(condition)})["y"] == (18 if "join" in where else 9)
    with pytest.raises(UsageError, match="which there is room for"):
        evaluate(module, {"x": np.ones(10, np.float32), "c": np.asarray(condition)})


SCAN = """g (float[5,3] x, float[4,5] w, bool[5] c) => (float[3] last, float[k,3] sums, float[2,k] parts) {{
  z = Constant<value_floats = [0.0, 1.0, 2.0]>()
  few = Compress<axis = 0>(x, c)
  wide = Compress<axis = 1>(w, c)
  last, sums, parts = Scan<num_scan_inputs = 2, scan_input_axes = [0, 1], scan_output_axes = [0, 1], {}, body = b (
      float[3] state, float[3] row, float[4] column) => (float[3] next, float[3] sum, float[2] part) {{
    sum = Add(state, row) next = Mul(sum, sum) two = Constant<value_ints = [2]>() zero = Constant<value_ints = [0]>()
    part = Slice(column, zero, two) }}>(z, few, wide)
}}"""
DIRECTIONS = (
    "scan_input_directions = [0, 0]",
    "scan_input_directions = [1, 0], scan_output_directions = [0, 1]",
    "scan_input_directions = [0, 1], scan_output_directions = [1, 1]",
)


@pytest.mark.parametrize("directions", DIRECTIONS)
def test_scan_over_a_size_that_depends_on_data(directions: str) -> None:
    rng = np.random.default_rng(7)
    x, w = rng.standard_normal((5, 3)).astype(np.float32), rng.standard_normal((4, 5)).astype(np.float32)
    masks = [[1, 0, 1, 1, 0], [0, 0, 0, 0, 1], [1, 1, 1, 1, 1]]
    same(SCAN.format(directions), *({"x": x, "w": w, "c": np.array(mask, bool)} for mask in masks))


def test_scan_of_nothing_leaves_the_state() -> None:
    module = import_onnx(parse(SCAN.format(DIRECTIONS[1])))
    given = {"x": np.ones((5, 3), np.float32), "w": np.ones((4, 5), np.float32), "c": np.zeros(5, bool)}
    last, sums, parts = evaluate(module, given).values()
    np.testing.assert_array_equal(last, [0, 1, 2])
    assert sums.shape == (0, 3) and parts.shape == (2, 0)


def test_scan_compiled_with_less_room() -> None:
    model = parse(SCAN.format(DIRECTIONS[1]))
    rng = np.random.default_rng(8)
    given = {"x": rng.standard_normal((5, 3)).astype(np.float32), "w": rng.standard_normal((4, 5)).astype(np.float32)}
    given["c"] = np.array([0, 1, 0, 1, 1], bool)
    executable = memc.compile(model, max_size=3).load()
    for value, want in zip(executable.run_numpy(given).values(), expected(model, given)):
        np.testing.assert_allclose(value, want, rtol=1e-5)
    with pytest.raises(UsageError, match="expected at most 3, .* got 4 in this run"):
        executable.run_numpy({**given, "c": np.array([1, 1, 0, 1, 1], bool)})


def test_scan_of_rows_with_a_size_that_depends_on_data_is_refused() -> None:
    text = SCAN.format(DIRECTIONS[0]).replace("Compress<axis = 1>(w, c)", "Identity(w)")
    with pytest.raises(
        UnsupportedError, match="depends on data along axis 0, which as anything but the axis along which"
    ):
        import_onnx(parse(text))


def test_loop_as_often_as_there_are_elements() -> None:
    """Which are at most as many as the input has: no --max-size is needed."""
    text = """g (float[5] x) => (float[1] y, float[k,1] all) {
      at = NonZero(x) size = Shape(at) one = Constant<value_int = 1>() n = Gather<axis = 0>(size, one)
      z = Constant<value_floats = [0.5]>() going = Constant<value = bool {1}>()
      y, all = Loop(n, going, z) <body = b (int64 i, bool c, float[1] a) => (bool again, float[1] o, float[1] q) {
        again = Identity(c) f = Cast<to = 1>(i) o = Add(a, f) q = Neg(o) }> }"""
    same(text, {"x": np.array([1, 0, 2, 0, 3], np.float32)}, {"x": np.ones(5, np.float32)})


def test_what_a_mask_selects_in_a_branch_is_counted_there_and_outside() -> None:
    """The branch that is not taken may find more than there is room for; the same mask outside may not."""
    text = """g (float[5] x, bool[5] c, bool b) => (float[k] y, float[l] z) {
      y = If(b) <then_branch = t () => (float[m] p) { p = Compress(x, c) },
                 else_branch = e () => (float[1] q) { q = Constant<value_floats = [7.0]>() }>
      o = Not(c) z = Compress(x, o) }"""
    executable = memc.compile(parse(text), max_size=2).load()
    x, many = np.arange(5, dtype=np.float32), np.array([1, 1, 1, 1, 0], bool)
    found = executable.run_numpy({"x": x, "c": many, "b": np.array(False)})
    assert found["y"].tolist() == [7.0] and found["z"].tolist() == [4.0]
    with pytest.raises(UsageError, match="expected at most 2, .* got 4"):
        executable.run_numpy({"x": x, "c": many, "b": np.array(True)})
    same_mask = memc.compile(parse(text.replace("o = Not(c)", "o = Identity(c)")), max_size=2).load()
    with pytest.raises(UsageError, match="expected at most 2, .* got 4"):
        same_mask.run_numpy({"x": x, "c": many, "b": np.array(False)})
