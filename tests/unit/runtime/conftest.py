# SPDX-License-Identifier: Apache-2.0
"""What the runtime's tests share: planned modules and their artifacts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from memc.ir.build import IRBuilder
from memc.ir.core import Array, Attr, Block, Function, Op, Role, Value
from memc.ir.module import Module
from memc.ir.target import Target
from memc.ir.types import DType, TensorType
from memc.passes.manager import PassManager
from memc.passes.pipelines import pipeline
from memc.runtime import codegen
from memc.runtime.artifact import write as artifact

Body = Callable[[IRBuilder, Sequence[Value]], Sequence[Value]]


def make(inputs: dict[str, tuple[DType, tuple[int, ...]]], body: Body) -> Module:
    params = [Value(name, TensorType(dtype, shape), role=Role.INPUT) for name, (dtype, shape) in inputs.items()]
    function = Function(params=params)
    module = Module([function])
    function.returns = list(body(IRBuilder(module, function, function.ops), params))
    function.result_names = [f"y{n}" for n in range(len(function.returns))]
    return module


@pytest.fixture
def make_module() -> Callable[..., Module]:
    """`make_module(inputs, body)`: a module that computes `body` of its inputs; the results are called y0, y1 ..."""
    return make


@pytest.fixture
def plan() -> Callable[..., Module]:
    """`plan(module)`: the module after a level's passes."""

    def plan(module: Module, level: int = 2, kernels: str = "generated", target: str = "llvm") -> Module:
        module.target = Target.of(target)
        PassManager.parse(pipeline(level, target, kernels)).run(module)
        return module

    return plan


def operands(inputs: Sequence[Array]) -> list[Value]:
    return [Value(f"x{i}", TensorType(DType.from_numpy(a.dtype), a.shape)) for i, a in enumerate(inputs)]


@pytest.fixture
def build_op() -> Callable[..., Op]:
    """`build_op(name, arrays, **attrs)`: the op over operands of the arrays' types."""

    def build_op(name: str, inputs: Sequence[Array], **attrs: Attr) -> Op:
        values = operands(inputs)
        function = Function(list(values))
        return IRBuilder(Module([function]), function, function.ops).multi(name, values, **attrs)

    return build_op


@pytest.fixture
def fused_op() -> Callable[..., Op]:
    """`fused_op(steps, arrays)`: a fused group; each step is (name, positions among arrays and results, attrs)."""

    def fused_op(steps: Sequence[tuple[str, Sequence[int], dict[str, Attr]]], inputs: Sequence[Array]) -> Op:
        params = operands(inputs)
        function = Function(list(params))
        builder = IRBuilder(Module([function]), function, function.ops)
        known = list(params)
        for name, positions, attrs in steps:
            known.append(builder.op(name, [known[n] for n in positions], **attrs))
        region = Block(params, function.ops, [known[-1]])
        return Op("fused", operands(inputs), [Value("y", known[-1].type)], region=region)

    return fused_op


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """`write(module, target="llvm")`: the artifact of a planned module."""

    def write(module: Module, target: str = "llvm", name: str = "model.memc", mcpu: str = "") -> Path:
        module.target = Target.of(target)
        compiled = codegen.build(module, mcpu)
        return artifact.write(tmp_path / name, module, compiled, {"note": "test"})

    return write


@pytest.fixture
def network() -> Module:
    """y0 = softmax(h) and y1 = h = relu(x @ w + c), x: f32[4,8]; not planned."""

    def body(b: IRBuilder, inputs: Sequence[Value]) -> Sequence[Value]:
        rng = np.random.default_rng(0)
        weight = b.constant(rng.normal(size=(8, 32)).astype(np.float32))
        bias = b.constant(rng.normal(size=32).astype(np.float32))
        product = b.op("matmul", [inputs[0], weight], transpose_a=False, transpose_b=False)
        hidden = b.op("relu", [b.op("add", [product, bias])])
        return [b.op("softmax", [hidden], axis=1), hidden]

    return make({"x": (DType.F32, (4, 8))}, body)
