# SPDX-License-Identifier: Apache-2.0
"""On a machine with an NVIDIA GPU: a CUDA artifact gives the CPU artifact's results. Skips itself elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from memc.ir.build import IRBuilder
from memc.ir.core import Function, Role, Value
from memc.ir.evaluate import evaluate
from memc.ir.module import Module
from memc.ir.target import Target
from memc.ir.types import DType, TensorType
from memc.passes.manager import PassManager
from memc.passes.pipelines import pipeline
from memc.runtime import codegen
from memc.runtime.artifact import write as artifact
from memc.runtime.execute.load import load

pytestmark = pytest.mark.gpu


def network(level: int, arch: str) -> Module:
    """softmax(relu(conv(x))) + pooled mean, planned for CUDA."""
    rng = np.random.default_rng(0)
    x = Value("x", TensorType(DType.F32, (2, 3, 16, 16)), role=Role.INPUT)
    function = Function(params=[x])
    module = Module([function])
    b = IRBuilder(module, function, function.ops)
    weight = b.constant(rng.normal(size=(8, 3, 3, 3)).astype(np.float32))
    hidden = b.op("conv", [x, weight], strides=(1, 1), pads=(1, 1, 1, 1), dilations=(1, 1), group=1)
    hidden = b.op("relu", [hidden])
    results: Sequence[Value] = [
        b.op("softmax", [hidden], axis=1),
        b.op("reduce_mean", [hidden], axes=(2, 3), keepdims=False),
    ]
    function.returns, function.result_names = list(results), ["s", "m"]
    module.target = Target.of("cuda", arch)
    PassManager.parse(pipeline(level, "cuda")).run(module)
    return module


@pytest.mark.parametrize("level", [0, 1, 2])
def test_results_on_the_gpu(arch: str, tmp_path: Path, level: int) -> None:
    module = network(level, arch)
    path = artifact.write(tmp_path / "m.memc", module, codegen.build(module), {})
    executable = load(path)
    x = np.random.default_rng(1).normal(size=(2, 3, 16, 16)).astype(np.float32)
    first, second = executable(x), executable(x + 1)
    expected = evaluate(module, {"x": x})
    for name, value in executable.run_numpy({"x": x}).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=1e-6)
        np.testing.assert_array_equal(first[name].numpy(), value)
        assert not np.array_equal(first[name].numpy(), second[name].numpy())
