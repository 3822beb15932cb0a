# SPDX-License-Identifier: Apache-2.0
"""The CPU kernels of scatters and of rows added up by index, on one thread and on several, against one update after another."""

from __future__ import annotations

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
    run,
)

from memc.ir.ops.library import cpu_scatters

pytestmark = pytest.mark.usefixtures("threads")


@pytest.mark.parametrize("kind", ["many", "few"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_scatters(dtype: str, reduction: str, kind: str) -> None:
    for case in range(len(ELEMENTS)):
        check_elements(
            cpu_scatters.SCATTER_ELEMENTS_CPU, cpu_scatters.ELEMENTS_COMBINE_CPU, case, dtype, reduction, kind
        )
    for case in range(len(ROWS)):
        check_rows(cpu_scatters.SCATTER_ND_CPU, cpu_scatters.ND_COMBINE_CPU, case, dtype, reduction, kind)


@pytest.mark.parametrize("kind", ["many", "few"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_rows_added_up(dtype: str, kind: str) -> None:
    for case in range(len(GATHERS)):
        check_gather_grad(cpu_scatters.GATHER_GRAD_CPU, case, dtype, kind)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_threads_share_large_ones_alike(reduction: str) -> None:
    """By lines, by columns, and by places; sums of one place are made in the order of the updates whatever the threads."""
    rng = np.random.default_rng(8)
    for shape, span, axis in [((300, 40), (300, 300), 1), ((40, 300), (300, 300), 0), ((5000,), (90_000,), 0)]:
        data, updates = rng.standard_normal(shape).astype(np.float32), rng.uniform(0.9, 1.1, span).astype(np.float32)
        indices = rng.integers(0, shape[axis], span)
        wanted = data.copy()
        places = list(np.indices(span, sparse=True))
        places[axis] = indices
        if reduction == "none":
            for k in range(span[axis]):
                part = tuple(slice(k, k + 1) if a == axis else slice(None) for a in range(len(span)))
                wanted[tuple(np.broadcast_to(p, span)[part] for p in places)] = updates[part]
        else:
            ufunc = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[reduction]
            ufunc.at(wanted, tuple(places), updates)
        found = run(
            cpu_scatters.SCATTER_ELEMENTS_CPU,
            "scatter_elements",
            [data, indices, updates],
            axis=axis,
            reduction=reduction,
        )
        np.testing.assert_array_equal(found, wanted)


def test_operands_that_do_not_fit_are_refused() -> None:
    arrays = [np.zeros(5, np.float32), np.zeros(4, np.int64), np.zeros(3, np.float32), np.zeros(5, np.float32)]
    with pytest.raises(ValueError, match="the operands do not fit each other"):
        tvm_ffi.get_global_func("memc.cpu.scatter_elements")(*map(tvm_ffi.from_dlpack, arrays), 0, 1, 2)
