# SPDX-License-Identifier: Apache-2.0
"""Extrema of 64-bit integers in fused CUDA kernels, which take two operands of one C++ type."""

import logging
import shutil

import pytest
from onnx import parser

import memc

MODEL = """<ir_version: 10, opset_import: ["" : 20]> g (float[5,3] x, int64 c) => (float[3] y)
    <int64 one = {{1}}, int64 zero = {{0}}> {{ a = Sub(c, one) b = Sub(a, one) d = {}(b, zero) y = Gather<axis = 0>(x, d) }}"""


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("op", ["Max", "Min"])
def test_they_compile_fused(op: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("memc"), "propagate", True)
    caplog.set_level(logging.WARNING)
    memc.compile(parser.parse_model(MODEL.format(op)), target="cuda", arch="sm_90")
    assert "no kernel compiles" not in caplog.text
