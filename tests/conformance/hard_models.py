# SPDX-License-Identifier: Apache-2.0
"""Models from ONNX text, and the check of their compiled results against onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
from onnx import numpy_helper

import memc
from memc.ir.evaluate import evaluate_in_arena

LEVELS = (0, 1, 2)


def model(body: str, opset: int = 17, initializers: Mapping[str, np.ndarray] | None = None) -> onnx.ModelProto:
    """A model from ONNX text such as `(float[6,4] x) => (float[6,4] y) { y = Relu(x) }`."""
    parsed = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> g {body}')
    for name, array in (initializers or {}).items():
        parsed.graph.initializer.append(numpy_helper.from_array(array, name))
    return parsed


def data(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def reference(proto: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(inputs)))


def check(
    proto: onnx.ModelProto, inputs: Mapping[str, np.ndarray], levels: tuple[int, ...] = LEVELS, **options: Any
) -> memc.Compilation:
    """Compiled and poisoned-arena results at each level equal onnxruntime's, run twice; inputs stay untouched."""
    expected = reference(proto, inputs)
    before = {name: array.copy() for name, array in inputs.items()}
    for level in levels:
        compilation = memc.compile(proto, opt_level=level, **options)
        executable = compilation.load()
        planned = evaluate_in_arena(compilation.module, dict(inputs))
        for _ in range(2):
            results = executable.run_numpy(dict(inputs))
            for name, want in zip([o.name for o in proto.graph.output], expected):
                np.testing.assert_allclose(results[name], want, rtol=1e-4, atol=1e-5, err_msg=f"-O{level} {name}")
                assert results[name].dtype == want.dtype and results[name].shape == want.shape
                np.testing.assert_allclose(planned[name], want, rtol=1e-4, atol=1e-5, err_msg=f"-O{level} arena {name}")
        for name, array in inputs.items():
            np.testing.assert_array_equal(array, before[name])
    return compilation
