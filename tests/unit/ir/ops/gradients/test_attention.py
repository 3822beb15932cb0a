# SPDX-License-Identifier: Apache-2.0
"""Gradients of attention: masks, heads that share keys, positions anywhere, and what arrives in the log-sum-exp."""

from __future__ import annotations

import numpy as np
import pytest

RNG = np.random.default_rng(17)


def some(*shape: int) -> np.ndarray:
    return RNG.uniform(-1, 1, shape)


SEEN = np.array([[True, False, True], [True, True, False], [False, True, True]])


@pytest.mark.parametrize(
    ("operands", "attrs"),
    [
        ([some(3, 4), some(5, 4), some(5, 2)], {"axis": 0}),
        ([some(2, 3, 4), some(2, 3, 4), some(2, 3, 4), SEEN], {"axis": 1}),
        ([some(2, 3, 4), some(2, 3, 4), some(2, 3, 4), SEEN], {"axis": 1, "diagonal": 1}),
        ([some(3, 4, 2), some(5, 2, 2), some(5, 2, 3), some(4, 1, 5)], {"axis": 0}),
        ([some(2, 4, 1, 2), some(1, 2, 2, 2), some(1, 2, 2, 2), some(2, 1, 1, 1)], {"axis": 2, "diagonal": 0}),
    ],
)
def test_every_operand(check_op_gradient, operands: list[np.ndarray], attrs: dict[str, int]) -> None:
    """Of both results."""
    check_op_gradient("attention_training", operands, scale=0.7, **attrs)


SEED = np.array(7, np.int64)
DROPPED = {"ratio": 0.4, "stream": 3}


@pytest.mark.parametrize(
    ("operands", "attrs"),
    [
        ([some(5, 4), some(5, 4), some(5, 2)], {"axis": 0, "diagonal": 0, "window": 2}),
        ([some(2, 3, 4), some(2, 5, 4), some(2, 5, 2)], {"axis": 1, "cap": 0.6}),
        ([some(2, 3, 4), some(2, 3, 4), some(2, 3, 4), some(3, 3)], {"axis": 1, "cap": 0.6, "blind": "zero"}),
        ([some(2, 3, 4), some(2, 5, 4), some(2, 5, 2), SEED], {"axis": 1, **DROPPED}),
        ([some(3, 2, 4), some(3, 1, 4), some(3, 1, 2), some(2, 3, 1), SEED], {"axis": 0, "cap": 0.6, **DROPPED}),
    ],
)
def test_windows_caps_and_dropout(check_op_gradient, operands: list[np.ndarray], attrs: dict[str, object]) -> None:
    """Of every operand but the seed, masks that are spread out included."""
    check_op_gradient("attention_training", operands, scale=0.7, **attrs)


def test_infinite_entries_of_a_mask(check_gradient) -> None:
    """They have no finite differences, so the mask is a constant."""
    mask = np.where(SEEN, 0.3, -np.inf)

    def build(b, given):  # type: ignore[no-untyped-def]
        return b.multi("attention_training", [*given, b.constant(mask)], axis=1, scale=0.7).results

    check_gradient(build, [some(2, 3, 4), some(2, 3, 4), some(2, 3, 4)])


def test_what_is_kept(check_gradient) -> None:
    """The backward pass reads q, k, v, the result and the log-sum-exp, and nothing of the scores' size."""

    def build(b, given):  # type: ignore[no-untyped-def]
        return b.multi("attention_training", given, axis=0, scale=0.7).results[0]

    module = check_gradient(build, [some(12, 2), some(12, 2), some(12, 2)])
    ops = module.main.ops
    assert [op.name for op in ops].count("attention_grad") == 1
    assert max(v.type.elements for op in ops for v in op.results) == 24
