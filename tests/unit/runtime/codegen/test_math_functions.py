# SPDX-License-Identifier: Apache-2.0
"""Powers whose exponent is known when the kernel is made."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from memc.ir.build import IRBuilder
from memc.ir.core import Value
from memc.ir.types import DType
from memc.runtime.execute.load import load


@pytest.mark.parametrize("exponent", [1.0, 2.0, 3.0, 0.5, 4.0, -1.0, 0.0])
@pytest.mark.parametrize("dtype", [DType.F16, DType.F32, DType.F64])
def test_powers_by_constants(
    make_module: Callable, plan: Callable, write: Callable, dtype: DType, exponent: float
) -> None:
    x = np.array([-3.0, -0.5, 0.25, 1.0, 2.5, 7.0], dtype.numpy)

    def body(b: IRBuilder, inputs: list[Value]) -> list[Value]:
        return [b.op("pow", [b.op("add", [inputs[0], inputs[0]]), b.scalar(exponent, dtype)])]

    found = load(write(plan(make_module({"x": (dtype, (6,))}, body))))(x)["y0"]
    with np.errstate(invalid="ignore"):
        expected = (2 * x.astype(np.float64)) ** exponent
    np.testing.assert_allclose(found, expected, rtol={DType.F16: 1e-3, DType.F32: 1e-6}.get(dtype, 1e-14))
