# SPDX-License-Identifier: Apache-2.0
"""Losses and their gradients."""

import numpy as np
import pytest

from memc.ir.build import IRBuilder
from memc.ir.core import Function, Module, Value
from memc.ir.errors import InvalidError, UnsupportedError
from memc.ir.evaluate import evaluate
from memc.ir.types import DType, TensorType
from memc.passes.losses import binary_cross_entropy, mean_squared_error, softmax_cross_entropy

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


def test_contract():
    with pytest.raises(UnsupportedError, match=r"expected a target of the prediction's type f64\[2\], got f64\[3\]"):
        value_of(mean_squared_error, some(2), some(3))
    with pytest.raises(InvalidError, match=r"expected labels \[2\] for logits f64\[2,3\], got i64\[3\]"):
        value_of(softmax_cross_entropy, some(2, 3), np.zeros(3, int))
    with pytest.raises(InvalidError, match=r"label 3 is out of range \[0, 3\)"):
        value_of(softmax_cross_entropy, some(1, 3), np.array([3]))
