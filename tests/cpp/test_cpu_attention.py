# SPDX-License-Identifier: Apache-2.0
"""The CPU kernels for attention, forward and backward, against the ops' numpy reference in f64."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

import numpy as np
import pytest
import tvm_ffi
from attention_cases import causal
from library_groups import Array

from memc import native
from memc.ir.build import IRBuilder
from memc.ir.core import Function, Op, Value
from memc.ir.evaluate import run_op
from memc.ir.module import Module
from memc.ir.types import DType, TensorType
from memc.passes.kernels.select_kernels import library_kernel

LANES_AND_TILES = 70
"""Neither a multiple of a register's floats nor of a tile's queries."""


@dataclass(frozen=True)
class Training:
    """Queries and keys of a shape, values with `width` columns, and a mask, or the shape of a random one."""

    q: tuple[int, ...]
    k: tuple[int, ...]
    width: int
    axis: int
    mask: Array | tuple[int, ...] | None = None
    attrs: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        mask = f"{self.mask.dtype}" if isinstance(self.mask, np.ndarray) else self.mask
        return f"{self.q}-{self.k}-{self.width}-{self.axis}-{mask}-{self.attrs}".replace(" ", "")

    @property
    def operands(self) -> list[Array]:
        """q, k, v, maybe a mask, and g."""
        rng = np.random.default_rng(zlib.crc32(str(self).encode()))
        shapes = [self.q, self.k, (*self.k[:-1], self.width), (*self.q[:-1], self.width)]
        q, k, v, g = (np.asarray(rng.standard_normal(shape), np.float32) for shape in shapes)
        if self.mask is None:
            return [q, k, v, g]
        mask = self.mask if isinstance(self.mask, np.ndarray) else rng.standard_normal(self.mask).astype(np.float32)
        return [q, k, v, mask, g]

    def op(self, name: str, arrays: list[Array]) -> Op:
        attrs = {"axis": self.axis, "scale": self.q[-1] ** -0.5, **self.attrs}
        params = [Value(f"x{n}", TensorType(DType.from_numpy(a.dtype), a.shape)) for n, a in enumerate(arrays)]
        function = Function(list(params))
        return IRBuilder(Module([function]), function, function.ops).multi(name, params, **attrs)

    def expected(self) -> tuple[list[Array], list[Array]]:
        """Of f64: result and log-sum-exp; and the gradients in q, k and v."""
        wide = [x if x.dtype == bool else x.astype(np.float64) for x in self.operands]
        forward = run_op(self.op("attention_training", wide[:-1]), wide[:-1])
        given = [*wide[:-1], forward[1], (wide[-1] * forward[0]).sum(axis=-1), wide[-1]]
        return list(forward), list(run_op(self.op("attention_grad", given), given))


def seen(rows: int, columns: int) -> Array:
    """A mask of bool in which each query sees its first key, at least."""
    found = np.random.default_rng(8).random((rows, columns)) < 0.7
    found[:, 0] = True
    return found


N = LANES_AND_TILES
CASES = [
    Training((2, 3, 128, 64), (2, 3, 128, 64), 64, 2),
    Training((2, N, 3, 64), (2, 2 * N, 3, 64), 64, 1, None, {"diagonal": 0}),
    Training((2, N, 3, 64), (2, 2 * N, 3, 64), 64, 1, None, {"diagonal": N}),
    Training((N, 2, 3, 20), (3, 2, 3, 20), 9, 0, (2, 1, 1, 3)),
    Training((2, 6, 130, 33), (2, 2, N, 33), 17, 2, (6, 130, N)),  # Three heads of q to each of k.
    Training((N, 4, 2, 16), (130, 2, 1, 16), 16, 0, seen(N, 130)),  # Heads shared along two axes.
    Training((4, N, 256), (4, N, 256), 256, 1, causal(N, N)),
    Training((2, 65, 5), (2, 1, 5), 130, 1),
    Training((1, 1), (1, 1), 1, 0),
    Training((2, 1, 3, 8), (2, 130, 3, 8), 8, 1, None, {"diagonal": 129}),
]


@pytest.fixture(autouse=True)
def loaded() -> None:
    native.load()


def call(op: Op, given: list[Array], results: list[Array]) -> None:
    kernel = library_kernel(op, "llvm")
    assert kernel is not None and kernel.workspace is None
    tensors = [tvm_ffi.from_dlpack(a) for a in (*given, *results)]
    tvm_ffi.get_global_func(kernel.symbol)(*tensors, *kernel.scalars(op))


def empty(op: Op) -> list[Array]:
    return [np.full(v.type.shape, np.nan, np.float32) for v in op.results]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("place", ["apart", "over q", "over g"])
def test_forward_and_backward(case: Training, place: str) -> None:
    """Within 1e-5; also where the first result takes the place of the queries, or of the gradient that arrives."""
    *forward, g = case.operands
    (result, log_sum), gradients = case.expected()
    op = case.op("attention_training", forward)
    if place == "apart" or (place == "over q" and g.shape == case.q):
        given, found = [a.copy() for a in forward], empty(op)
        found[0] = given[0] if place == "over q" else found[0]
        call(op, given, found)
        np.testing.assert_allclose(found[0], result, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(found[1], log_sum, rtol=1e-5, atol=1e-5)
    given = [*(a.copy() for a in forward), log_sum.astype(np.float32)]
    given += [(g * result).sum(axis=-1).astype(np.float32), g.copy()]
    op = case.op("attention_grad", given)
    found = empty(op)
    if place != "apart":
        if g.shape != case.q:
            pytest.skip("another shape")
        found[0] = given[0] if place == "over q" else given[-1]
    call(op, given, found)
    for name, value, wanted in zip("qkv", found, gradients):
        np.testing.assert_allclose(value, wanted, rtol=1e-5, atol=2e-5, err_msg=name)


def test_the_same_bits_with_any_number_of_threads(threads: int) -> None:
    case = CASES[4]
    *forward, g = case.operands
    op = case.op("attention_training", forward)
    rows = np.ones(case.q[:-1], np.float32)
    given = [*forward, rows, rows, g]
    back = case.op("attention_grad", given)
    use = tvm_ffi.get_global_func("memc.cpu.use_threads")
    all_found = []
    for count in (1, threads):
        use(count)
        found, gradients = empty(op), empty(back)
        call(op, forward, found)
        call(back, given, gradients)
        all_found.append([a.tobytes() for a in (*found, *gradients)])
    assert all_found[0] == all_found[1]


def test_rows_that_see_no_key_and_other_infinities() -> None:
    """As softmax: a row of only -inf gives nan, +inf and nan spread in their row, and -inf elsewhere counts nothing."""
    mask = np.zeros((40, 130), np.float32)
    mask[0] = -np.inf
    mask[1, :100] = -np.inf
    mask[2, 3] = np.inf
    mask[3, 129] = np.nan
    case = Training((2, 40, 8), (2, 130, 8), 8, 1, mask)
    (result, log_sum), gradients = case.expected()
    *forward, g = case.operands
    op = case.op("attention_training", forward)
    found = empty(op)
    call(op, forward, found)
    assert np.isnan(found[0][:, [0, 2, 3]]).all() and np.isfinite(np.delete(found[0], [0, 2, 3], 1)).all()
    np.testing.assert_allclose(found[0], result, rtol=1e-5, atol=1e-5)
    finite = np.isfinite(log_sum)
    np.testing.assert_allclose(found[1][finite], log_sum[finite], rtol=1e-5, atol=1e-5)
    assert not np.isfinite(found[1][~finite]).any()
    given = [*forward, log_sum.astype(np.float32), (g * result).sum(axis=-1).astype(np.float32), g]
    back = case.op("attention_grad", given)
    found = empty(back)
    call(back, given, found)
    for value, wanted in zip(found, gradients):
        np.testing.assert_allclose(value, wanted, rtol=1e-5, atol=2e-5)


def test_keys_beyond_the_diagonal_of_a_row_that_sees_none() -> None:
    """A row that sees no key makes the gradients of all keys of its head nan, tiles beyond the diagonal too."""
    mask = np.ones((2, 70, 130), bool)
    mask[0, 5] = False
    case = Training((2, 70, 8), (2, 130, 8), 8, 1, mask, {"diagonal": 0})
    (result, log_sum), gradients = case.expected()
    *forward, g = case.operands
    given = [*forward, log_sum.astype(np.float32), (g * result).sum(axis=-1).astype(np.float32), g]
    op = case.op("attention_grad", given)
    found = empty(op)
    call(op, given, found)
    for value, wanted in zip(found, gradients):
        np.testing.assert_allclose(value, wanted, rtol=1e-5, atol=2e-5)
    assert np.isnan(found[1][0]).all() and np.isfinite(found[1][1]).all()


def test_large_scores_do_not_overflow() -> None:
    case = Training((3, 33, 16), (3, 65, 16), 16, 1)
    *forward, _ = case.operands
    forward[0] *= 1000
    op = case.op("attention_training", forward)
    found = empty(op)
    call(op, forward, found)
    wide = [a.astype(np.float64) for a in forward]
    wanted, log_sum = run_op(case.op("attention_training", wide), wide)
    np.testing.assert_allclose(found[0], wanted, rtol=2e-4, atol=2e-4)
    np.testing.assert_allclose(found[1], log_sum, rtol=1e-6)


def test_what_the_kernels_do_not_take() -> None:
    wide = Training((1, 4, 257), (1, 4, 257), 4, 1)
    *forward, _ = wide.operands
    assert library_kernel(wide.op("attention_training", forward), "llvm") is None
    halves = [a.astype(np.float16) for a in CASES[0].operands[:3]]
    assert library_kernel(CASES[0].op("attention_training", halves), "llvm") is None
    results = [np.zeros((1, 4, 4), np.float32), np.zeros((1, 4), np.float32)]
    tensors = [tvm_ffi.from_dlpack(a) for a in (*forward, *results)]
    with pytest.raises(ValueError, match="more than 256 columns"):
        tvm_ffi.get_global_func("memc.cpu.attention")(*tensors, 3, 1, 1.0, 0, 0)
