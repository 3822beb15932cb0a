# SPDX-License-Identifier: Apache-2.0
"""If, Loop and Scan whose course is known at import, against onnxruntime."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest

from memc.frontend.onnx import import_onnx
from memc.ir.errors import UnsupportedError
from memc.ir.evaluate import evaluate
from memc.ir.verify.structure import verify


def parse(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\n{text}')


def check(model: onnx.ModelProto, feeds: dict[str, npt.ArrayLike], bind: tuple[str, ...] = ()) -> list[str]:
    """Compare all outputs with onnxruntime's; returns the op names."""
    arrays = {name: np.asarray(value) for name, value in feeds.items()}
    module = import_onnx(model, bind={name: arrays[name] for name in bind})
    verify(module)
    got = evaluate(module, {n: a for n, a in arrays.items() if n not in bind})
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    want = session.run(None, arrays)
    for name, array in zip(module.main.result_names, want):
        np.testing.assert_allclose(got[name], array, rtol=1e-6)
    return [op.name for op in module.main.ops]


NESTED = """g (float[2] x, int64 n) => (float[2] y) {
  two = Constant <value = int64 {2}> ()
  c = Greater(n, two)
  t = Relu(x)
  y = If (c) <
    then_branch = a () => (float[2] p) {
      d = Equal(n, two)
      p = If (d) < then_branch = b () => (float[2] q) { q = Neg(t) },
                   else_branch = e () => (float[2] r) { u = Add(t, x) r = Exp(u) } >
    },
    else_branch = f () => (float[2] s) { s = Identity(x) } >
}"""


@pytest.mark.parametrize(("n", "ops"), [(5, ["relu", "add", "exp"]), (1, [])])
def test_if_is_replaced_by_its_branch(n: int, ops: list[str]) -> None:
    feeds = {"x": np.array([-1, 2], np.float32), "n": np.asarray(n, np.int64)}
    assert check(parse(NESTED), feeds, bind=("n",)) == ops


def test_if_on_a_shape_is_decided() -> None:
    model = parse("""g (float[n, 3] x) => (float[m, 3] y) {
      one = Constant <value = int64 {1}> ()
      s = Shape <start = 0, end = 1> (x)
      c = Equal(s, one)
      y = If (c) < then_branch = a () => (float[1, 3] p) { p = Neg(x) },
                   else_branch = b () => (float[k, 3] q) { q = Relu(x) } >
    }""")
    assert [op.name for op in import_onnx(model, dims={"n": 1}).main.ops] == ["neg"]
    assert [op.name for op in import_onnx(model, dims={"n": 2}).main.ops] == ["relu"]


LOOP = """g (float[2] x, int64 n, float[2] w) => (float[2] y, float[m, 2] all) {
  go = Constant <value = bool {1}> ()
  y, all = Loop (n, go, x) < body = b (int64 i, bool c, float[2] a) => (bool d, float[2] e, float[2] f) {
    d = Identity(c)
    k = Cast <to = 1> (i)
    t = Mul(a, w)
    e = Add(t, k)
    f = Neg(e)
  } >
}"""


def test_loop_is_unrolled() -> None:
    feeds = {"x": np.array([1, 2], np.float32), "n": np.asarray(3, np.int64), "w": np.array([0.5, -2], np.float32)}
    assert check(parse(LOOP), feeds, bind=("n",)).count("mul") == 3


def test_loop_with_an_unknown_trip_count_says_how_to_bind_it() -> None:
    with pytest.raises(UnsupportedError, match="bind what decides it with --bind NAME=VALUE, or say with --max-size N"):
        import_onnx(parse(LOOP))


def test_loop_stops_by_its_condition_and_endless_ones_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """g (float[2] x) => (float[2] y) {
      go = Constant <value = bool {1}> ()
      y = Loop ("", go, x) < body = b (int64 i, bool c, float[2] a) => (bool d, float[2] e) {
        last = Constant <value = int64 {LAST}> ()
        d = Less(i, last)
        e = Exp(a)
      } >
    }"""
    model = parse(text.replace('"", ', ", ").replace("LAST", "2"))
    assert [op.name for op in import_onnx(model).main.ops] == ["exp"] * 3
    monkeypatch.setattr("memc.frontend.onnx.control_flow.MAX_ITERATIONS", 50)
    with pytest.raises(UnsupportedError, match="more than 50 times"):
        import_onnx(parse(text.replace('"", ', ", ").replace("LAST", "1000")))


@pytest.mark.parametrize(
    "attributes",
    [
        "",
        ", scan_input_directions = [1, 0]",
        ", scan_output_directions = [1]",
        ", scan_output_axes = [1]",
        ", scan_output_axes = [-1], scan_input_directions = [1, 1], scan_output_directions = [1]",
    ],
)
def test_scan_is_unrolled(attributes: str) -> None:
    model = parse(f"""g (float[2] s, float[3, 2] x, float[2, 3] z) => (float[2] y, float[a, b] all) {{
      y, all = Scan (s, x, z) < num_scan_inputs = 2, scan_input_axes = [0, 1]{attributes},
        body = b (float[2] a, float[2] p, float[2] q) => (float[2] e, float[2] f) {{
          t = Mul(a, p)
          e = Add(t, q)
          f = Neg(t)
        }} >
    }}""")
    rng = np.random.default_rng(0)
    feeds = {
        "s": rng.normal(size=2).astype(np.float32),
        "x": rng.normal(size=(3, 2)).astype(np.float32),
        "z": rng.normal(size=(2, 3)).astype(np.float32),
    }
    assert check(model, feeds).count("mul") == 3


NO_TURNS = """g (float[2] x, int64 n) => (float[2] y, float[?,2] a, int64[?,3] b) {
  go = Constant <value = bool {1}> ()
  y, a, b = Loop (n, go, x) <body = b (int64 i, bool c, float[2] s) => (bool d, float[2] t, float[2] u, int64[3] w) {
    d = Identity(c)
    t = Exp(s)
    u = Add(t, x)
    k = Constant <value = int64[3] {1, 2, 3}> ()
    w = Mul(k, i)
  }>
  }"""


@pytest.mark.parametrize("n", [0, 1, 3, -2])
def test_a_loop_that_runs_zero_times_has_empty_scan_outputs(n: int) -> None:
    ops = check(parse(NO_TURNS), {"x": np.array([0.5, 2], np.float32), "n": np.asarray(n, np.int64)}, bind=("n",))
    assert ops.count("exp") == max(n, 0)  # Nothing is left of the turn that was imported for its types.


def test_a_loop_whose_condition_is_false_runs_zero_times() -> None:
    model = parse(NO_TURNS.replace("bool {1}", "bool {0}"))
    assert "exp" not in check(model, {"x": np.ones(2, np.float32), "n": np.asarray(3, np.int64)}, bind=("n",))


def test_a_scan_of_nothing_hands_its_states_on() -> None:
    model = parse("""g (float[2] s, float[0,2] x) => (float[2] t, float[2,0] y) {
      t, y = Scan (s, x) <num_scan_inputs = 1, scan_output_axes = [1],
        body = b (float[2] a, float[2] e) => (float[2] c, float[2] d) { c = Add(a, e) d = Exp(c) }>
    }""")
    found = evaluate(import_onnx(model), {"s": np.array([1, 2], np.float32), "x": np.zeros((0, 2), np.float32)})
    assert found["t"].tolist() == [1, 2] and found["y"].shape == (2, 0)


@pytest.mark.parametrize("lengths", [None, [2, 3]])
@pytest.mark.parametrize("backward", [False, True])
def test_scan_of_opset_8_has_a_batch_axis(lengths: list[int] | None, backward: bool) -> None:
    given = ", int64[2] n" if lengths else ""
    model = onnx.parser.parse_model(f"""<ir_version: 3, opset_import: ["" : 8]>
    g (float[2,4] s, float[2,3,4] x{given}) => (float[2,4] t, float[2,3,4] y) {{
      t, y = Scan ({"n" if lengths else ""}, s, x) <num_scan_inputs = 1, directions = [{int(backward)}],
        body = b (float[4] a, float[4] e) => (float[4] c, float[4] d) {{ c = Add(a, e) d = Mul(c, e) }}>
    }}""")
    rng = np.random.default_rng(0)
    s, x = rng.normal(size=(2, 4)).astype(np.float32), rng.normal(size=(2, 3, 4)).astype(np.float32)
    bound = {} if lengths is None else {"n": np.asarray(lengths)}
    module = import_onnx(model, bind=bound)
    verify(module)
    found = evaluate(module, {"s": s, "x": x})
    t, y = s.copy(), np.zeros_like(x)
    for entry, steps in enumerate(lengths or [3, 3]):
        for turn, place in enumerate(reversed(range(steps)) if backward else range(steps)):
            t[entry] = t[entry] + x[entry, place]
            y[entry, turn] = t[entry] * x[entry, place]
    np.testing.assert_allclose(found["t"], t, rtol=1e-6)
    np.testing.assert_allclose(found["y"], y, rtol=1e-6)
