# SPDX-License-Identifier: Apache-2.0
"""Losses and their gradients."""

import numpy as np
import pytest

from memc.ir.build import IRBuilder
from memc.ir.core import Function, Value
from memc.ir.errors import InvalidError, UnsupportedError
from memc.ir.evaluate import evaluate
from memc.ir.module import Module
from memc.ir.types import DType, TensorType
from memc.passes.training.backward_pass import append_gradients
from memc.passes.training.losses import (
    binary_cross_entropy,
    cross_entropy_of_probabilities,
    mean_squared_error,
    softmax_cross_entropy,
)

RNG = np.random.default_rng(10)


def some(*shape):
    return RNG.uniform(-1, 1, shape)


def value_of(build, *arrays):
    params = [Value(f"x{i}", TensorType(DType.from_numpy(a.dtype), a.shape)) for i, a in enumerate(arrays)]
    function = Function(params)
    module = Module([function])
    function.returns = [build(IRBuilder(module, function, function.ops), *params)]
    (found,) = evaluate(module, {f"x{i}": a for i, a in enumerate(arrays)}).values()
    return found.item()


def loss_and_gradient(build, *arrays):
    """The loss, and its gradient in the first array."""
    params = [Value(f"x{i}", TensorType(DType.from_numpy(a.dtype), a.shape)) for i, a in enumerate(arrays)]
    function = Function(params)
    module = Module([function])
    loss = build(IRBuilder(module, function, function.ops), *params)
    gradients = append_gradients(module, function, loss, params[:1])
    function.returns = [loss, gradients[params[0]]]
    found = evaluate(module, {f"x{i}": a for i, a in enumerate(arrays)})
    return tuple(found.values())


def cross_entropy(logits, labels, reduction, ignore_index, smoothing):
    """Sample by sample, with the target as a distribution."""
    rows = np.moveaxis(logits, 1, -1).reshape(-1, logits.shape[1])
    losses = []
    for row, label in zip(rows, labels.reshape(-1)):
        if label != ignore_index:
            target = np.full(row.size, smoothing / row.size)
            target[label] += 1 - smoothing
            losses.append(-np.sum(target * np.log(np.exp(row) / np.exp(row).sum())))
    return np.sum(losses) / (len(losses) if reduction == "mean" else 1)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("labels", [[2, 0, 1, 2], [-100, 3, -100, 0], [[1, 0], [3, -100]]], ids=str)
def test_cross_entropy(check_gradient, labels, smoothing, reduction):
    labels = np.asarray(labels)
    logits = some(labels.shape[0], 4, *labels.shape[1:])

    def build(b, x, y):
        return softmax_cross_entropy(b, x, y, reduction, label_smoothing=smoothing)

    expected = cross_entropy(logits, labels, reduction, -100, smoothing)
    assert value_of(build, logits, labels) == pytest.approx(expected, rel=1e-9)
    check_gradient(lambda b, x: build(b, *x), [logits, labels])


def test_both_results_of_the_cross_entropy_have_gradients(check_op_gradient):
    attrs = {"ignore_index": 1, "label_smoothing": 0.25}
    check_op_gradient("softmax_cross_entropy", [some(3, 4), np.array([0, 1, 3])], **attrs)


def test_large_logits_do_not_overflow():
    logits = np.array([[1000.0, 0.0]], np.float32)
    assert value_of(softmax_cross_entropy, logits, np.array([1])) == 1000


def test_the_gradient_keeps_no_row_of_labels(check_gradient):
    module = check_gradient(lambda b, x: softmax_cross_entropy(b, *x), [some(5, 3), np.array([0, 1, 2, 1, 0])])
    backward = module.main.ops[[op.name for op in module.main.ops].index("softmax_cross_entropy") + 1 :]
    wide = [op.name for op in backward if op.results[0].type.shape == (5, 3)]
    # One chain of elementwise ops, which fusion makes one kernel of.
    assert wide == ["sub", "exp", "mul", "equal", "select", "sub"]


def test_mean_squared_error(check_gradient):
    x, target = some(3, 4), some(3, 4)
    assert value_of(mean_squared_error, x, target) == pytest.approx(np.mean((x - target) ** 2))
    check_gradient(lambda b, v: mean_squared_error(b, *v), [x, target])
    check_gradient(lambda b, v: mean_squared_error(b, *v, "sum"), [some(), some()])


@pytest.mark.parametrize("from_logits", [False, True])
def test_binary_cross_entropy(check_gradient, from_logits):
    x, target = RNG.uniform(0.1, 0.9, (3, 4)), RNG.uniform(0, 1, (3, 4))
    p = 1 / (1 + np.exp(-x)) if from_logits else x
    expected = -np.mean(target * np.log(p) + (1 - target) * np.log(1 - p))

    def build(b, x, target):
        return binary_cross_entropy(b, x, target, from_logits)

    assert value_of(build, x, target) == pytest.approx(expected)
    check_gradient(lambda b, v: build(b, *v), [x, target])


def test_certain_probabilities_have_a_finite_loss():
    def build(b, x, target):
        return binary_cross_entropy(b, x, target, from_logits=False)

    assert value_of(build, np.array([0.0, 1.0]), np.array([1.0, 1.0])) == 50


def torch_bce(p, t):
    """The mean, and its gradient, as PyTorch's BCELoss defines them."""
    with np.errstate(divide="ignore"):
        loss = -(t * np.maximum(np.log(p), -100) + (1 - t) * np.maximum(np.log(1 - p), -100))
    return loss.mean(), (p - t) / np.maximum(p * (1 - p), 1e-12) / p.size


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_gradients_at_certain_probabilities_are_those_of_pytorch(dtype):
    p = np.array([0, 0, 0, 1, 1, 1, 1e-13, 1e-12, 1e-11, 1e-7, 1e-3, 1 - 1e-7, 0.5, 1 - 1e-3], dtype)
    for t in (0.0, 0.3, 1.0):
        target = np.full_like(p, t)
        loss, gradient = loss_and_gradient(lambda b, *x: binary_cross_entropy(b, *x, from_logits=False), p, target)
        expected, slope = torch_bce(p, target)
        assert loss == pytest.approx(expected, rel=1e-5)
        np.testing.assert_allclose(gradient, slope, rtol=1e-5)


@pytest.mark.parametrize("p", [1e-11, 1e-9, 1e-4, 0.5, 1 - 1e-4, 1 - 1e-7])
@pytest.mark.parametrize("t", [0.0, 0.25, 1.0])
def test_the_gradient_is_the_derivative_of_the_loss_up_to_where_it_is_cut_off(p, t):
    def build(b, *x):
        return binary_cross_entropy(b, *x, from_logits=False)

    target, step = np.array([t]), min(p, 1 - p) * 0.05
    sides = [value_of(build, np.array([p + sign * step]), target) for sign in (1, -1)]
    _, gradient = loss_and_gradient(build, np.array([p]), target)
    assert gradient.item() == pytest.approx((sides[0] - sides[1]) / (2 * step), rel=2e-3, abs=1e-6)


def test_what_is_no_probability_has_neither_loss_nor_gradient():
    p = np.array([-0.1, 1.5, np.nan])
    for number in p:
        found = loss_and_gradient(
            lambda b, *x: binary_cross_entropy(b, *x, from_logits=False), np.array([number]), np.ones(1)
        )
        assert all(np.isnan(v).all() for v in found)


@pytest.mark.parametrize("z", [-700.0, -100.0, -17.0, -1.0, 0.0, 1e-9, 1.0, 17.0, 100.0, 700.0])
@pytest.mark.parametrize("t", [0.0, 0.25, 1.0])
def test_the_loss_of_logits_keeps_its_digits(z, t):
    loss, gradient = loss_and_gradient(
        lambda b, *x: binary_cross_entropy(b, *x, from_logits=True), np.array([z]), np.array([t])
    )
    small = np.exp(-abs(z))
    assert loss == pytest.approx(max(z, 0) - z * t + np.log1p(small), rel=1e-14, abs=0)
    high, low = (1 / (1 + small), small / (1 + small)) if z > 0 else (small / (1 + small), 1 / (1 + small))
    assert gradient.item() == pytest.approx((1 - t) * high - t * low, rel=1e-12, abs=0)


def test_contract():
    with pytest.raises(UnsupportedError, match=r"expected a target of the prediction's type f64\[2\], got f64\[3\]"):
        value_of(mean_squared_error, some(2), some(3))
    with pytest.raises(InvalidError, match=r"expected labels \[2\] for logits f64\[2,3\], got i64\[3\]"):
        value_of(softmax_cross_entropy, some(2, 3), np.zeros(3, int))
    with pytest.raises(
        UnsupportedError, match=r"expected a target of the prediction's type f64\[2,3\], got f64\[3,2\]"
    ):
        value_of(cross_entropy_of_probabilities, some(2, 3), some(3, 2))


@pytest.mark.parametrize("ignore_index", [-100, 1, 2**40])
@pytest.mark.parametrize("label", [-1, 4, -99, 2**33])
def test_a_label_of_no_class_makes_loss_and_gradient_nan(label, ignore_index):
    logits, labels = some(3, 4), np.array([0, label, 2])
    loss, gradient = loss_and_gradient(
        lambda b, *x: softmax_cross_entropy(b, *x, ignore_index=ignore_index), logits, labels
    )
    assert np.isnan(loss) and np.isnan(gradient[1]).all() and np.isfinite(gradient[[0, 2]]).all()


def test_labels_that_are_all_ignored_have_no_loss_and_no_gradient():
    loss, gradient = loss_and_gradient(softmax_cross_entropy, some(3, 4), np.full(3, -100))
    assert loss == 0 and not gradient.any()


@pytest.mark.parametrize("rest", [(), (2, 3)])
def test_cross_entropy_of_probabilities(check_gradient, rest):
    logits, target = 3 * some(4, 5, *rest), RNG.dirichlet(np.ones(5), (4, *rest))
    target = np.moveaxis(target, -1, 1)
    logarithms = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    expected = -(target * logarithms).sum() / (target.size / 5)
    assert value_of(cross_entropy_of_probabilities, logits, target) == pytest.approx(expected)
    check_gradient(lambda b, v: cross_entropy_of_probabilities(b, *v), [logits, target])
    labels = RNG.integers(0, 5, (4, *rest))
    rows = np.moveaxis(np.eye(5)[labels], -1, 1)
    assert value_of(cross_entropy_of_probabilities, logits, rows) == pytest.approx(
        value_of(softmax_cross_entropy, logits, labels)
    )
