# SPDX-License-Identifier: Apache-2.0
"""Random ops: what each draws, that no two nodes and no two runs draw the same, and that a loaded artifact draws it again."""

from __future__ import annotations

import copy
import pickle
import threading

import numpy as np
import onnx
import onnx.parser
import pytest

import memc
from memc.cli import main
from memc.frontend.onnx import import_onnx
from memc.ir.errors import UnsupportedError
from memc.ir.evaluate import evaluate
from memc.runtime.execute.stateful import Stateful
from memc.runtime.execute.training import TrainingStep

N = 20000


def model(inputs: str, outputs: str, body: str, opset: int = 22) -> onnx.ModelProto:
    text = f'<ir_version: 10, opset_import: ["": {opset}]> g ({inputs}) => ({outputs}) {{ {body} }}'
    return onnx.parser.parse_model(text)


ALL = model(
    "float[40,500] x, double[40,500] p",
    "float[40,500] u, float16[40,500] n, double[40,500] v, float[40,500] m, double[40,500] b, int64[40,500] i, float[40,500] d, "
    "bool[40,500] k, float[40,500] e, float[40,500] sure",
    """u = RandomUniform<shape = [40,500], low = -2.0, high = 4.0>()
    n = RandomNormal<shape = [40,500], mean = 3.0, scale = 0.5, dtype = 10>()
    v = RandomUniformLike<dtype = 11, seed = 5.0>(x)
    m = RandomNormalLike(x)
    b = Bernoulli(p)
    i = Bernoulli<dtype = 7>(p)
    r = Constant<value = float {0.25}>()
    t = Constant<value = bool {1}>()
    d, k = Dropout(x, r, t)
    e = Dropout(x, r)
    ones = Exp(e) z = Sub(ones, ones) q = Sub(z, r) one = Ceil(q) two = Abs(one) sure = Bernoulli(two)""",
)
"""Every op but Multinomial. `sure` is drawn with the probability 0."""


@pytest.fixture(scope="module")
def given() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {"x": np.abs(rng.normal(size=(40, 500))).astype(np.float32) + 1, "p": rng.random((40, 500))}


@pytest.fixture(scope="module")
def executable() -> Stateful:
    found = memc.compile(ALL).load()
    assert type(found) is Stateful and not isinstance(found, TrainingStep)
    return found


def test_what_they_draw(executable: Stateful, given: dict[str, np.ndarray]) -> None:
    y = executable.session()(**given)
    sigma = 1 / np.sqrt(N)
    assert y["u"].min() >= -2 and y["u"].max() <= 4 and abs(y["u"].mean() - 1) < 4 * sigma * np.sqrt(3)
    normal = y["n"].astype(np.float64)
    assert abs(normal.mean() - 3) < 4 * sigma * 0.5 and abs(normal.std() - 0.5) < 0.01
    assert (
        y["v"].dtype == np.float64
        and 0 <= y["v"].min()
        and y["v"].max() < 1
        and abs(y["v"].mean() - 0.5) < 4 * sigma * 0.29
    )
    assert abs(y["m"].mean()) < 4 * sigma and abs(y["m"].std() - 1) < 0.02
    for name in ("b", "i"):
        hits = y[name].astype(np.float64)
        assert set(np.unique(hits)) == {0, 1} and abs((hits - given["p"]).mean()) < 4 * sigma / 2
        assert abs(hits[given["p"] < 0.1].mean() - 0.05) < 0.02
    assert (y["sure"] == 0).all()
    assert (y["k"] == (y["d"] != 0)).all() and abs(y["k"].mean() - 0.75) < 4 * sigma * 0.44
    np.testing.assert_allclose(y["d"], np.where(y["k"], given["x"] / 0.75, 0), rtol=1e-6)
    np.testing.assert_array_equal(y["e"], given["x"])


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> list[str]:
    return [name for name in a if a[name].tobytes() == b[name].tobytes()]


def test_no_two_nodes_and_no_two_runs_draw_the_same(executable: Stateful, given: dict[str, np.ndarray]) -> None:
    first, second = executable.session(), executable.session()
    one, two = first(**given), first(**given)
    assert same(one, two) == ["e", "sure"]
    assert (one["b"] != one["i"]).mean() > 0.2
    assert sorted(same(one, second(**given))) == sorted(one)
    assert sorted(same(two, second(**given))) == sorted(one)
    assert first.state() == {"random.counter": 2}
    first.load_state({"random.counter": np.array(0)})
    assert sorted(same(one, first(**given))) == sorted(one)
    twin = pickle.loads(pickle.dumps(first))
    assert sorted(same(two, twin(**given))) == sorted(one) and sorted(same(two, copy.copy(first)(**given))) == sorted(
        one
    )


def test_the_evaluator_draws_the_same(executable: Stateful, given: dict[str, np.ndarray]) -> None:
    session = executable.session()
    session(**given)
    found = session(**given)
    expected = evaluate(import_onnx(ALL), {**given, "random.counter": np.array(1)})
    assert expected.pop("random.counter") == 2
    for name, array in expected.items():
        exact = name in ("b", "i", "d", "k", "v", "e", "sure")
        np.testing.assert_allclose(found[name], array, rtol=0 if exact else 1e-3, atol=0 if exact else 1e-5)


def test_threads_draw_from_one_counter(executable: Stateful, given: dict[str, np.ndarray]) -> None:
    session = executable.session()
    results: list[bytes] = []
    threads = [threading.Thread(target=lambda: results.append(session(**given)["m"].tobytes())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(results)) == 4 and session.state()["random.counter"] == 4


def test_multinomial() -> None:
    with np.errstate(divide="ignore"):
        log = np.log(np.array([[0.1, 0.0, 0.6, 0.3, 0.0], [0, 0, 0, 0, 1], [5, 5, 0, 10, 0]]))
    proto = model(
        "float[3,5] x",
        "int32[3,4000] y, int64[3,7] z",
        "y = Multinomial<sample_size = 4000>(x) z = Multinomial<sample_size = 7, dtype = 7>(x)",
    )
    found = memc.compile(proto).load()(log.astype(np.float32))
    shares = np.array([np.bincount(row, minlength=5) / 4000 for row in found["y"]])
    expected = np.array([[0.1, 0, 0.6, 0.3, 0], [0, 0, 0, 0, 1], [0.25, 0.25, 0, 0.5, 0]])
    assert np.abs(shares - expected).max() < 0.032 and (shares[expected == 0] == 0).all()
    assert found["z"].dtype == np.int64 and found["z"].min() >= 0 and found["z"].max() < 5


def test_seeds_and_bodies_of_their_own() -> None:
    """Every turn of a loop draws anew; another seed draws something else; a draw that nobody reads leaves no counter."""
    body = """u = RandomNormal<shape = [4], seed = 1.0>() v = RandomNormal<shape = [4], seed = 2.0>()
    n = Constant<value = int64 {3}>()
    s = Loop(n, , u) <body = b (int64 i, bool c, float[4] a) => (bool d, float[4] o, float[4] w) {
        d = Identity(c) w = RandomNormal<shape = [4], seed = 1.0>() o = Add(a, w) }>"""
    proto = model(
        "float[4] x", "float[4] u, float[4] v, float[4] s, float[3,4] t", body.replace("s = Loop", "s, t = Loop")
    )
    found = evaluate(import_onnx(proto), {"x": np.zeros(4, np.float32)})
    rows = [found["u"], found["v"], *found["t"]]
    assert len({row.tobytes() for row in rows}) == 5
    np.testing.assert_allclose(found["s"], found["u"] + found["t"].sum(0), rtol=1e-6)
    unread = import_onnx(model("float[4] x", "float[4] y", "u = RandomNormal<shape = [4]>() y = Relu(x)"))
    assert [p.name for p in unread.main.params] == ["x"] and list(evaluate(unread, {"x": np.ones(4, np.float32)})) == [
        "y"
    ]


def test_names_and_types() -> None:
    taken = model("float[4] x", "float[4] y", "r = Relu(x) y = RandomNormalLike(r)")
    taken.graph.node[0].output[0] = taken.graph.node[1].input[0] = "random.counter"
    with pytest.raises(UnsupportedError, match="need the name `random.counter` for a state"):
        import_onnx(taken)
    with pytest.raises(
        UnsupportedError, match=r"node `y` \(RandomUniform\): random numbers of i64, expected a float type"
    ):
        import_onnx(model("float[4] x", "int64[4] y", "y = RandomUniform<shape = [4], dtype = 7>()"))


def test_noise_in_a_training_step() -> None:
    """Draws come from the step's own counter, anew in each step, and pass gradients by."""
    proto = model(
        "float[8,4] x, float[4,2] w", "float[8,2] y", "z = RandomNormalLike(x) s = Add(x, z) y = MatMul(s, w)"
    )
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((4, 2), np.float32), "w"))
    del proto.graph.input[1]
    how = memc.BuildGradient(loss="mse", optimizer="sgd", seed=3)
    step = memc.compile(proto, train=how).load()
    assert set(step.state()) == {"w", "dropout.counter"}
    x, labels = np.ones((8, 4), np.float32), np.zeros((8, 2), np.float32)
    start = step.session()
    first, second = (step(x, labels, learning_rate=0.0) for _ in range(2))
    assert first != second and start(x, labels, learning_rate=0.0) == first


def test_verify_compares_draws_with_memc_itself(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(
        model("float[4] x", "float[4] y, float[4] z", "n = RandomNormalLike(x) y = Add(x, n) z = Relu(x)", 17),
        tmp_path / "m.onnx",
    )
    assert main(["verify", str(tmp_path / "m.onnx")]) == 0
    first, second, last = capsys.readouterr().out.splitlines()
    assert first.startswith("ok     y: relative error ") and first.endswith(
        " | against numpy | depends on random numbers"
    )
    assert second.startswith("ok     z: ") and "| against" not in second
    assert last.endswith(": 2 tensors match, 1 of them against numpy")
