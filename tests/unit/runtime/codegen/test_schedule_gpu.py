# SPDX-License-Identifier: Apache-2.0
"""Which reductions on a GPU are shared by several threads, and along which axis."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from memc.ir.build import IRBuilder
from memc.ir.core import Function, Value
from memc.ir.module import Module
from memc.ir.types import DType, TensorType
from memc.runtime.code_target import CodeTarget
from memc.runtime.codegen.lower_op import lower_op
from memc.runtime.codegen.schedule_gpu import schedule


def scheduled(name: str, *shapes: Sequence[int], dtype: DType = DType.F32, **attrs: object) -> str:
    values = [Value(f"x{i}", TensorType(dtype, tuple(s))) for i, s in enumerate(shapes)]
    function = Function(list(values))
    op = IRBuilder(Module([function]), function, function.ops).op(name, values, **attrs).op  # type: ignore[arg-type]
    assert op is not None
    (kernel,) = lower_op(op, "cuda")
    return str(schedule(kernel.func, CodeTarget.create("cuda")))


@pytest.mark.parametrize("name", ["reduce_sum", "reduce_max"])
@pytest.mark.parametrize(
    ("shape", "axes", "team"),
    [
        ((4096, 768), (1,), 'T.thread_binding(128, thread="threadIdx.x")'),
        ((591, 4, 197), (2,), 'T.thread_binding(32, thread="threadIdx.x")'),
        ((32, 64, 56, 56), (0, 2, 3), 'T.thread_binding(1024, thread="threadIdx.x")'),
        ((4096, 768), (0,), 'T.thread_binding(32, thread="threadIdx.y")'),
        ((1, 200, 1, 48), (2, 3), 'T.thread_binding(32, thread="threadIdx.x")'),
    ],
)
def test_teams(name: str, shape: tuple[int, ...], axes: tuple[int, ...], team: str) -> None:
    text = scheduled(name, shape, axes=axes, keepdims=True)
    assert text.count(team) == 2  # The terms, and the store by the first of them.


@pytest.mark.parametrize("name", ["reduce_sum", "reduce_prod", "reduce_max", "reduce_min"])
@pytest.mark.parametrize("dtype", [DType.I32, DType.U32, DType.I64, DType.U64])
def test_teams_of_integers(name: str, dtype: DType) -> None:
    """The positions of `arg_max`, for one."""
    text = scheduled(name, (1, 100_000), dtype=dtype, axes=(1,), keepdims=True)
    assert text.count('T.thread_binding(1024, thread="threadIdx.x")') == 2


def test_other_reductions_have_one_thread_for_each_result() -> None:
    assert "threadIdx.y" not in scheduled("reduce_sum", (64, 20), axes=(1,), keepdims=True)  # Few terms.
    assert "threadIdx.y" not in scheduled("reduce_sum", (64, 768), axes=(1,), keepdims=True, dtype=DType.U8)
    # Every element is read many times, by threads side by side.
    plain = {"transpose_a": False, "transpose_b": False}
    assert "threadIdx.y" not in scheduled("matmul", (512, 128), (128, 512), **plain)


def test_teams_stand_alone_where_they_would_begin_in_the_middle_of_an_axis() -> None:
    attrs: dict[str, object] = {"strides": (2, 2), "pads": (1,) * 4, "dilations": (1, 1), "group": 1, "kernel": (3, 3)}
    text = scheduled("conv_grad_weight", (16, 8, 8, 8), (16, 16, 4, 4), **attrs)
    assert (
        'T.thread_binding(64, thread="threadIdx.x")' in text and 'T.thread_binding(1152, thread="blockIdx.x")' in text
    )
