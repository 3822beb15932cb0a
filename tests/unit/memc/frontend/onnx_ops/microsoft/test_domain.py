# SPDX-License-Identifier: Apache-2.0
"""The domain com.microsoft as a whole: what the pages say of it, and nodes of another form."""

import re
from pathlib import Path

import numpy as np
import pytest

from memc.frontend.onnx.context import op_types
from memc.ir.errors import InvalidError, UnsupportedError

PAGE = Path(__file__).parents[6] / "docs" / "onnx_coverage.md"


def test_the_page_lists_the_operators():
    section = PAGE.read_text().split("## Operators of onnxruntime")[1]
    rows = re.findall(r"^\| ([A-Z][A-Za-z, ]*) \|", section, re.MULTILINE)
    assert sorted(name for row in rows for name in row.split(", ")) == op_types("com.microsoft")


def test_unknown_operators_and_counts(run):
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(UnsupportedError, match=r"node `node` \(MoE\): unknown op com.microsoft::MoE in opset 1"):
        run("MoE", [x])
    with pytest.raises(InvalidError, match=r"node `node` \(Gelu\): expected 1 outputs, got 2"):
        run("Gelu", [x], 2)
    with pytest.raises(InvalidError, match=r"node `node` \(QLinearConcat\): expected 5 or more inputs, got 1"):
        run("QLinearConcat", [x], axis=0)
    with pytest.raises(InvalidError, match=r"node `node` \(SkipLayerNormalization\): expected 3 to 5 inputs, got 2"):
        run("SkipLayerNormalization", [x, x])
