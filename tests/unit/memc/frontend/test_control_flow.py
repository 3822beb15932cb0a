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
