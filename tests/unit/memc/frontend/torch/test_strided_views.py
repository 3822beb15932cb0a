# SPDX-License-Identifier: Apache-2.0
"""Which shapes a tensor can be seen in without a copy, beside what numpy does with bytes that are there."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from memc.frontend.torch.graph import Meta
from memc.frontend.torch.ops.views import is_strided_view
from memc.ir.types import DType


def shapes(elements: int, axes: int) -> list[tuple[int, ...]]:
    """All shapes of so many elements and at most so many axes longer than 1, some with axes of 1."""
    found = {(elements,), (1, elements), (elements, 1)}
    for count in range(2, axes + 1):
        divisors = [n for n in range(1, elements + 1) if elements % n == 0]
        found |= {s for s in itertools.product(divisors, repeat=count) if np.prod(s) == elements}
    return sorted(found)


@pytest.mark.parametrize("seed", range(40))
def test_a_view_is_one_wherever_numpy_copies_nothing(seed: int) -> None:
    draw = random.Random(seed)
    sizes = [draw.choice([1, 2, 3, 4, 6]) for _ in range(draw.randint(0, 4))]
    whole = np.zeros([n * draw.choice([1, 1, 2]) for n in sizes], np.float32)
    x = whole[(*(slice(n) for n in sizes), ...)]
    x = x.transpose(draw.sample(range(x.ndim), x.ndim)) if draw.random() < 0.5 else x
    if x.ndim and draw.random() < 0.4:
        x = np.broadcast_to(x[:1], (draw.choice([2, 3]), *x.shape[1:]))
    meta = Meta(DType.F32, x.shape, tuple(n // 4 for n in x.strides))
    for shape in shapes(x.size, 3):
        seen = x.reshape(shape)
        without_copy = seen.__array_interface__["data"] == x.__array_interface__["data"]
        assert is_strided_view(meta, shape, {}) == without_copy, (x.shape, x.strides, shape)


def test_no_bytes_are_read_to_tell() -> None:
    """Scores but the last of each line: 1.6 GB that are not there when the program is read."""
    meta = Meta(DType.F32, (8, 1023, 50257), (1024 * 50257, 50257, 1))
    assert not is_strided_view(meta, (8 * 1023, 50257), {})
    assert is_strided_view(meta, (8, 1023 * 50257), {})
    assert is_strided_view(meta, (2, 4, 1023, 1, 50257), {})


def test_a_tensor_of_no_elements_is_seen_in_any_shape_of_none() -> None:
    assert is_strided_view(Meta(DType.F32, (3, 0, 2), (1, 9, 7)), (0, 5), {})
