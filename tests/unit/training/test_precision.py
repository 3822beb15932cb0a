# SPDX-License-Identifier: Apache-2.0
"""Training in half precision: near f32, skipped steps, clipping, recomputation."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest

import memc
from memc.ir.build import IRBuilder
from memc.ir.core import Function, Role, Value
from memc.ir.evaluate import evaluate
from memc.ir.module import Module
from memc.ir.types import DType, TensorType
from memc.passes.training.build_gradient import BuildGradient
from memc.passes.training.loss_scale import FIRST, GOOD, GROWTH, LEAST, MOST, SCALE, LossScale, moved

Array = npt.NDArray[Any]
BATCH = 16


def model() -> onnx.ModelProto:
    """A convolution, one that skips pixels, pooling and two layers for 8 x 8 images of 4 classes."""
    proto = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[16,1,8,8] x) => (float[16,4] y) {
            a = Conv <pads = [1,1,1,1]> (x, w1, b1)
            r = Relu (a)
            c = Conv <strides = [2,2]> (r, w2)
            m = MaxPool <kernel_shape = [2,2], strides = [2,2]> (c)
            f = Flatten (m)
            h = Gemm <transB = 1> (f, w3, b3)
            t = Tanh (h)
            y = Gemm <transB = 1> (t, w4, b4)
        }""")
    rng = np.random.default_rng(11)
    shapes = {
        "w1": (6, 1, 3, 3),
        "b1": (6,),
        "w2": (8, 6, 1, 1),
        "w3": (12, 32),
        "b3": (12,),
        "w4": (4, 12),
        "b4": (4,),
    }
    for name, shape in shapes.items():
        data = rng.normal(size=shape) * (2 / np.prod(shape[1:])) ** 0.5
        proto.graph.initializer.append(onnx.numpy_helper.from_array(data.astype(np.float32), name))
    return proto


def batch(seed: int) -> tuple[Array, Array]:
    """Each class lights up its own quarter of the image."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, BATCH)
    x = rng.normal(size=(BATCH, 1, 8, 8)).astype(np.float32) * 0.5
    for image, label in zip(x, labels):
        image[0, label // 2 * 4 : label // 2 * 4 + 4, label % 2 * 4 : label % 2 * 4 + 4] += 1
    return x, labels


@cache
def artifact(precision: str, budget: int | None = None, **train: Any) -> memc.Compilation:
    options: dict[str, Any] = {"optimizer": "adam", **train}
    return memc.compile(
        model(), train=BuildGradient(**options), precision=precision, memory_budget=budget, kernels="generated"
    )


def compiled(precision: str, **options: Any) -> Any:
    """A step with the model's own weights."""
    step = artifact(precision, **options).load()
    step.learning_rate = 0.01
    return step


def losses(step: Any, count: int) -> list[float]:
    return [float(step(*batch(seed))) for seed in range(count)]


@pytest.fixture(scope="module")
def reference() -> list[float]:
    return losses(compiled("f32"), 40)


@pytest.mark.parametrize(("precision", "tolerance"), [("f16", 0.02), ("bf16", 0.06)])
def test_training_goes_as_in_f32(reference: list[float], precision: str, tolerance: float) -> None:
    step = compiled(precision)
    found = losses(step, 40)
    assert np.mean(reference[-5:]) < 0.3 * reference[0]
    np.testing.assert_allclose(found, reference, rtol=0, atol=tolerance)
    state = step.state()
    assert all(array.dtype == np.float32 for name, array in state.items() if name not in ("step", GOOD))
    assert (SCALE in state) == (precision == "f16")
    if precision == "f16":
        assert state[SCALE] == FIRST and state[GOOD] == 40 == state["step"]


def test_a_step_that_overflows_is_skipped(tmp_path: Path) -> None:
    step = compiled("f16")
    losses(step, 3)
    step.load_state({SCALE: np.float32(2.0**40)}, partial=True)
    before = step.state()
    loss = float(step(*batch(3)))
    after = step.state()
    assert np.isfinite(loss)
    for name in before:
        if name not in (SCALE, GOOD):
            np.testing.assert_array_equal(after[name], before[name])
    assert after[SCALE] == 2.0**39 and after[GOOD] == 0 and before[GOOD] == 3
    # It goes on halving until gradients are finite, and then as if nothing had been.
    for _ in range(40):
        step(*batch(3))
        if step.state()[GOOD]:
            break
    found = step.state()
    assert 1 < found[SCALE] < 2.0**39 and found["step"] == before["step"] + 1
    assert any((found[name] != before[name]).any() for name in ("w1", "w4"))
    step.save(tmp_path / "state")
    other = compiled("f16")
    other.restore(tmp_path / "state")
    assert other.state()[SCALE] == found[SCALE]
    assert losses(other, 2) == losses(step, 2)


def test_an_infinite_input_skips_the_step_and_the_scale_has_a_least() -> None:
    step = compiled("f16", optimizer="sgd", momentum=0.9)
    step.load_state({SCALE: np.float32(LEAST)}, partial=True)
    before = step.state()
    x, labels = batch(0)
    x[0, 0, 0, 0] = np.inf
    step(x, labels)
    after = step.state()
    assert after[SCALE] == LEAST
    for name in before:
        np.testing.assert_array_equal(after[name], before[name])


def test_the_scale_doubles_after_steps_that_went_well() -> None:
    step = compiled("f16", optimizer="sgd")
    step.load_state({SCALE: np.float32(8), GOOD: np.array(GROWTH - 2)}, partial=True)
    seen = []
    for seed in range(3):
        step(*batch(seed))
        seen.append((float(step.state()[SCALE]), int(step.state()[GOOD])))
    assert seen == [(8.0, GROWTH - 1), (16.0, 0), (16.0, 1)]


def test_a_fixed_scale_has_no_states_and_skips_too() -> None:
    step = compiled("f16", loss_scale="256")
    assert SCALE not in step.state()
    assert losses(step, 2)[0] == pytest.approx(losses(compiled("f32"), 1)[0], abs=0.02)
    far = compiled("f16", loss_scale="1e30")
    before = far.state()
    far(*batch(0))
    for name, array in far.state().items():
        np.testing.assert_array_equal(array, before[name])


def test_clipping_sees_the_gradients_of_the_loss() -> None:
    """The norm of the update is that of the clip times the rate, whatever the scale."""
    moved = {}
    for precision, scale in (("f32", None), ("f16", "dynamic"), ("f16", "8")):
        step = compiled(precision, optimizer="sgd", clip_norm=0.25, loss_scale=scale)
        before = step.state()
        step(*batch(0))
        after = step.state()
        names = [n for n in before if n.startswith(("w", "b"))]
        moved[scale] = np.sqrt(sum(float(((after[n] - before[n]).astype(np.float64) ** 2).sum()) for n in names))
    for norm in moved.values():
        assert norm == pytest.approx(0.25 * 0.01, rel=2e-3)


@pytest.mark.parametrize("precision", ["f16", "bf16"])
def test_recomputation_changes_no_bit(precision: str) -> None:
    plain = compiled(precision)
    options = {"budget": artifact(precision).report.peak_bytes - 1024}
    tight = compiled(precision, **options)
    recomputation = artifact(precision, **options).report.recomputation
    assert recomputation is not None and recomputation.ops > 0
    assert losses(plain, 4) == losses(tight, 4)
    mine, other = plain.state(), tight.state()
    for name in mine:
        np.testing.assert_array_equal(mine[name], other[name])


def test_micro_batches_add_up_in_f32() -> None:
    whole = compiled("bf16", optimizer="sgd")
    parts = compiled("bf16", optimizer="sgd", accumulate=2)
    x, labels = (np.concatenate(pair) for pair in zip(batch(0), batch(0)))
    before = whole.state()
    whole(*batch(0))
    parts(x, labels)
    for name, array in parts.state().items():
        gap = np.linalg.norm(array - whole.state()[name])
        assert gap <= 2e-2 * np.linalg.norm(whole.state()[name] - before[name]) + 1e-7


def test_products_of_the_backward_pass_are_of_halves_and_gradients_of_weights_f32() -> None:
    done = memc.compile(model(), train=BuildGradient(), precision="bf16", target="cuda", plan_only=True)
    assert _products(done.module) == {DType.BF16}
    calls = [op for op in done.module.main.ops if str(op.plan.library_kernel).startswith("memc.cuda")]
    parts = [[inner.name for inner in op.region.ops] if op.region is not None else [op.name] for op in calls]
    assert ["matmul", "mul", "add", "assign"] in parts and ["conv_grad_weight", "cast"] in parts
    assert ["conv_transpose", "cast"] in parts


def _products(module: Module) -> set[DType]:
    inner = [o for op in module.main.ops for o in (op.region.ops if op.region is not None else [op])]
    return {v.type.dtype for o in inner if o.name.startswith(("conv", "matmul")) for v in o.operands[:2]}


@pytest.mark.parametrize("text", ["often", "0", "-1", "inf", "nan"])
def test_wrong_scales(text: str) -> None:
    with pytest.raises(memc.MemcError, match="loss scale: expected dynamic or a positive number"):
        BuildGradient(loss_scale=text)


@pytest.mark.parametrize(("scale", "grown"), [(8.0, 16.0), (MOST / 2, MOST), (MOST, MOST)])
def test_the_scale_stays_finite(scale: float, grown: float) -> None:
    factor = Value(SCALE, TensorType(DType.F32, ()), role=Role.INPUT)
    good = Value(GOOD, TensorType(DType.I64, ()), role=Role.INPUT)
    function = Function([factor, good])
    b = IRBuilder(Module([function]), function, function.ops)
    content = moved(b, LossScale(factor, good), b.scalar(True, DType.BOOL))
    function.returns = [content[factor], content[good]]
    found = evaluate(b.module, {SCALE: np.array(scale, np.float32), GOOD: np.array(GROWTH - 1)})
    assert [float(value) for value in found.values()] == [grown, 0.0]
