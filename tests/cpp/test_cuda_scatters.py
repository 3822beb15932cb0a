# SPDX-License-Identifier: Apache-2.0
"""memc's CUDA kernels of scatters and of rows added up by index, on fibers of the host, against one update after another: with
the workspace that the plan gives and no byte more."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import tvm_ffi
from scatter_cases import (
    DTYPES,
    ELEMENTS,
    GATHERS,
    REDUCTIONS,
    ROWS,
    check_elements,
    check_gather_grad,
    check_rows,
    make_op,
    run,
)

from memc.ir.ops.library import cuda_scatters


@pytest.fixture(autouse=True)
def own(kernels: None) -> None:
    tvm_ffi.get_global_func("memc.cuda.add_kernels")(0, b"cubin")


@pytest.mark.parametrize("kind", ["many", "few"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_scatters(dtype: str, reduction: str, kind: str) -> None:
    for case in range(len(ELEMENTS)):
        check_elements(
            cuda_scatters.SCATTER_ELEMENTS_CUDA, cuda_scatters.ELEMENTS_COMBINE_CUDA, case, dtype, reduction, kind
        )
    for case in range(len(ROWS)):
        check_rows(cuda_scatters.SCATTER_ND_CUDA, cuda_scatters.ND_COMBINE_CUDA, case, dtype, reduction, kind)


@pytest.mark.parametrize("kind", ["many", "few"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_rows_added_up(dtype: str, kind: str) -> None:
    for case in range(len(GATHERS)):
        check_gather_grad(cuda_scatters.GATHER_GRAD_CUDA, case, dtype, kind)


@pytest.mark.parametrize("reduction", ["add", "max", "min", "mul", "none"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
def test_many_updates_of_one_place(dtype: str, reduction: str) -> None:
    """Whole parts of 64 and of 4,096 updates, that begin anywhere."""
    rng = np.random.default_rng(3)
    for first, many in ((0, 4096), (1, 9000), (63, 200), (5000, 8192)):
        indices = np.concatenate([np.zeros(first, int), np.ones(many, int), np.full(70, 2)])
        type = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
        updates = rng.integers(-3, 4, indices.size).astype(type)
        if reduction == "mul":
            updates = rng.choice([-1, 1], indices.size).astype(type)
        data = np.array([1, 2, 3], type)
        found = run(
            cuda_scatters.SCATTER_ELEMENTS_CUDA,
            "scatter_elements",
            [data, indices, updates],
            axis=0,
            reduction=reduction,
        )
        for place in range(3):
            own = updates[indices == place].astype(np.float64)
            start = float(data[place])
            wanted = {
                "add": start + own.sum(),
                "mul": start * own.prod(),
                "max": max([start, *own]),
                "min": min([start, *own]),
                "none": [start, *own][-1],
            }[reduction]
            assert found[place] == np.asarray(wanted).astype(type)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_of_halves_are_rounded_once(dtype: str) -> None:
    """To the nearest, ties to even, also to what has no leading one, and to infinity."""
    type = np.float16 if dtype == "float16" else ml_dtypes.bfloat16
    rng = np.random.default_rng(1)
    finite = np.arange(2**16, dtype=np.uint16).view(type)
    with np.errstate(invalid="ignore"):
        finite = finite[np.isfinite(finite.astype(np.float64))]
    data, update = (finite[rng.integers(0, finite.size, 3000)] for _ in range(2))
    update = np.where(rng.random(3000) < 0.5, (data.astype(np.float64) * 2.0**-9).astype(type), update)
    indices = np.arange(3000)
    found = run(
        cuda_scatters.SCATTER_ELEMENTS_CUDA, "scatter_elements", [data, indices, update], axis=0, reduction="add"
    )
    exact = data.astype(np.float64) + update.astype(np.float64)
    with np.errstate(over="ignore"):
        wanted = exact.astype(np.float16) if dtype == "float16" else exact.astype(np.float32).astype(type)
    near = np.asarray(exact == exact.astype(np.float32)) | (dtype == "float16")
    np.testing.assert_array_equal(found[near].view(np.uint16), wanted[near].view(np.uint16))


def test_a_scatter_without_room_is_refused() -> None:
    arrays = [np.zeros(5, np.float32), np.zeros(100, np.int64), np.zeros(100, np.float32)]
    op = make_op("scatter_elements", arrays, axis=0, reduction="add")
    tensors = [tvm_ffi.from_dlpack(a) for a in (*arrays, np.zeros(5, np.float32))]
    with pytest.raises(
        ValueError, match="memc.cuda.scatter_elements: expected a workspace of 1344 bytes or more, got 0"
    ):
        tvm_ffi.get_global_func("memc.cuda.scatter_elements")(
            *tensors, *cuda_scatters.SCATTER_ELEMENTS_CUDA.scalars(op)
        )
