# SPDX-License-Identifier: Apache-2.0
"""What the tests of ops share: make an op from arrays, and hold its reference and its compiled kernels to values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from memc.ir.build import IRBuilder
from memc.ir.core import Array, Attr, Function, Op, Value
from memc.ir.module import Module
from memc.ir.ops.shared.op_def import definition
from memc.ir.types import DType, TensorType
from memc.runtime.codegen.debug import run_op


def build_op(name: str, inputs: Sequence[Array], **attrs: Attr) -> Op:
    """The op over operands of the arrays' types."""
    operands = [Value(f"x{i}", TensorType(DType.from_numpy(a.dtype), a.shape)) for i, a in enumerate(inputs)]
    function = Function(list(operands))
    return IRBuilder(Module([function]), function, function.ops).multi(name, operands, **attrs)


@pytest.fixture
def make_op() -> Callable[..., Op]:
    return build_op


@pytest.fixture
def check_op() -> Callable[..., None]:
    """`check(name, inputs, expected, rtol=, atol=, **attrs)`: reference and compiled results equal the expected."""

    def check(
        name: str, inputs: Sequence[Any], expected: Sequence[Any], rtol: float = 1e-5, atol: float = 1e-6, **attrs: Attr
    ) -> None:
        arrays = [np.asarray(a) for a in inputs]
        op = build_op(name, arrays, **attrs)
        kept = [a.copy() for a in arrays]
        reference = definition(op).evaluate(arrays, op.attrs, [r.type for r in op.results])
        compiled = run_op(op, arrays)
        for how, found in (("evaluated", reference), ("compiled", compiled)):
            assert len(found) == len(expected) == len(op.results)
            for value, result, wanted in zip(found, op.results, expected):
                assert value.shape == result.type.shape and value.dtype == result.type.dtype.numpy, how
                a, b = np.asarray(value, np.float64), np.asarray(wanted, np.float64)
                np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, err_msg=f"{name} {how}")
        for array, before in zip(arrays, kept):
            assert array.tobytes() == before.tobytes(), "an operand was written to"

    return check
