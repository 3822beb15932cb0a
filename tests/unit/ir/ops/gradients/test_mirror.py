# SPDX-License-Identifier: Apache-2.0
"""Mirror counts: what is dropped and recomputed."""

import numpy as np
import pytest

from memc.ir.errors import UnsupportedError, UsageError
from memc.ir.evaluate import evaluate
from memc.passes.training.backward_pass import append_gradients, set_mirrors

from .conftest import function_of

LAYERS = 6


def chain(b, x):
    value = x[0]
    for _ in range(LAYERS):
        value = b.op("tanh", [value])
    return value


def gradient_of(counts):
    x = np.linspace(-1, 1, 5)
    module, loss, wrt = function_of(chain, [x])
    layers = [op for op in module.main.ops if op.name == "tanh"]
    set_mirrors(dict(zip(layers, counts)))
    (grad,) = append_gradients(module, module.main, loss, wrt).values()
    module.main.returns = [grad]
    return module, evaluate(module, {"x0": x})


def copies(module):
    return [op.plan.recompute for op in module.main.ops if op.plan.recompute]


@pytest.mark.parametrize("counts", [[1] * 6, [1, 1, 0, 1, 1, 0], [2, 2, 1, 2, 2, 0], [0, 0, 0, 0, 0, 3]])
def test_gradients_are_the_same_bits(counts):
    _, expected = gradient_of([0] * LAYERS)
    _, found = gradient_of(counts)
    assert {k: v.tobytes() for k, v in found.items()} == {k: v.tobytes() for k, v in expected.items()}


def test_each_copy_is_made_once_and_only_if_needed():
    module, _ = gradient_of([1, 1, 0, 1, 1, 0])
    assert copies(module) == [(1,)] * 4
    assert copies(gradient_of([0] * LAYERS)[0]) == []


def test_copies_come_where_a_gradient_first_needs_them():
    module, _ = gradient_of([1, 1, 0, 1, 1, 0])
    kinds = ["copy" if op.plan.recompute else op.name for op in module.main.ops]
    # The second segment is recomputed before the backward ops of its layers, the first one after those.
    first, last = kinds.index("copy"), len(kinds) - 1 - kinds[::-1].index("copy")
    assert kinds[first : first + 2] == ["copy", "copy"] and kinds[last - 1 : last + 1] == ["copy", "copy"]
    assert "mul" in kinds[first + 2 : last - 1]


def test_a_copy_of_a_copy_reads_the_copy_before():
    module, _ = gradient_of([1, 2, 0, 0, 0, 0])
    second = next(op for op in module.main.ops if op.plan.recompute == (2,))
    assert second.operands[0].op.plan.recompute == (1,)


def test_a_count_that_is_none():
    with pytest.raises(UsageError, match="plan: mirror: expected a whole number from 0 on, got -1"):
        gradient_of([-1])


def test_an_op_without_a_rule_is_named():
    module, loss, wrt = function_of(lambda b, x: b.op("bitcast", [x[0]], to=x[0].type.dtype), [np.eye(3)])
    with pytest.raises(UnsupportedError, match="op bitcast: expected an op with a gradient"):
        append_gradients(module, module.main, loss, wrt)
