# SPDX-License-Identifier: Apache-2.0
"""Models compiled in half precision, and what `verify` says of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import pytest

import memc
from memc.ir.errors import CheckError
from memc.measure import verification
from memc.measure.tolerances import NORMS

HALVES = ("f16", "bf16")


def weights() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(4)
    shapes = {"w": (8, 3, 3, 3), "b": (8,), "v": (8, 1, 3, 3), "c": (10, 8), "d": (10,)}
    return {name: rng.normal(size=shape).astype(np.float32) * 0.4 for name, shape in shapes.items()}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A convolution, a depthwise one, pooling and a classifier."""
    proto = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[2,3,12,12] x) => (float[2,10] y, float[2,10] e) {
            t = Conv <pads = [1,1,1,1]> (x, w, b)
            r = Relu (t)
            u = Conv <pads = [1,1,1,1], group = 8> (r, v)
            s = Add (u, r)
            p = GlobalAveragePool (s)
            f = Flatten (p)
            y = Gemm <transB = 1> (f, c, d)
            e = Softmax (y)
        }""")
    for name, data in weights().items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(data, name))
    path = tmp_path_factory.mktemp("precision") / "model.onnx"
    onnx.save(proto, path)
    return path


@pytest.mark.parametrize("precision", HALVES)
@pytest.mark.parametrize("level", [0, 2])
def test_verify_compares_with_f32(model: Path, precision: str, level: int) -> None:
    outcome = verification.verify(model, against="numpy", precision=precision, opt_level=level)
    assert outcome.passed
    for difference in outcome.differences.values():
        assert 1e-6 < difference.relative_norm < NORMS[precision]


def test_an_error_beyond_the_type_fails(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NORMS, "bf16", 1e-6)
    assert not verification.verify(model, against="numpy", precision="bf16").passed
    # A tolerance that is given counts element by element, as ever.
    assert verification.verify(model, against="numpy", precision="bf16", rtol=0.1, atol=0.1).passed


def test_the_command_line_says_how_far_results_are(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from memc.cli.verify import verify

    verify(str(model), against="numpy", precision="bf16")
    assert "ok     y: relative error 0.00" in capsys.readouterr().out
    with pytest.raises(CheckError):
        verify(str(model), against="numpy", precision="bf16", rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("precision", HALVES)
def test_artifacts_take_half_the_bytes(model: Path, precision: str, tmp_path: Path) -> None:
    sizes = {}
    for chosen in ("f32", precision):
        done = memc.compile(model, tmp_path / chosen, precision=chosen, kernels="generated")
        manifest = memc.load(tmp_path / chosen).manifest
        assert manifest.precision == chosen and [s.dtype for s in manifest.outputs] == ["f32", "f32"]
        sizes[chosen] = (done.report.arena_bytes, done.report.weights_bytes)
    assert sizes[precision][0] <= 0.6 * sizes["f32"][0]
    large = sum(w.nbytes for w in weights().values())
    assert sizes["f32"][1] - sizes[precision][1] > 0.3 * large  # The rest is alignment.
