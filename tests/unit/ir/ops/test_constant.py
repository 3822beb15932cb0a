# SPDX-License-Identifier: Apache-2.0
"""constant: the attribute is the value."""

import numpy as np
import pytest

from memc.ir.errors import OpError
from memc.ir.types import DType, TensorType


def test_value(check_op, make_op):
    value = np.array([[1, 2], [3, 4]], np.int16)
    check_op("constant", [], [value], value=value)
    assert make_op("constant", [], value=value).result.type == TensorType(DType.I16, (2, 2))


def test_broken_contracts(make_op):
    with pytest.raises(OpError, match="expected no operand and a dense array"):
        make_op("constant", [], value=3)
    with pytest.raises(OpError, match="expected no operand"):
        make_op("constant", [np.zeros(2)], value=np.zeros(2))
