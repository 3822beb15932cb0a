# SPDX-License-Identifier: Apache-2.0
"""Writes to views reach what they show, and only that; writes that memc cannot follow are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from memc.frontend.torch.graph import Graph, Input, Meta, Node, Output, Ref
from memc.frontend.torch.importer import import_torch
from memc.ir.core import Array
from memc.ir.errors import UnsupportedError
from memc.ir.evaluate import evaluate
from memc.ir.types import DType

X = np.arange(1, 13, dtype=np.float32).reshape(3, 4)


def written(target: str, metas: dict[str, Meta] | None = None, of: str = "y", value: Any = 9, **named: Any) -> Array:
    """2 x after `view = target(of)` was filled. `of` is `y`, 2 x, or `cut`, each other column of it."""
    nodes = [
        Node("y", "aten.mul.Tensor", {"self": Ref("x"), "other": 2}, ["y"]),
        Node("cut", "aten.slice.Tensor", {"self": Ref("y"), "dim": 1, "step": 2}, ["cut"]),
        Node("turned", "aten.t.default", {"self": Ref("y")}, ["turned"]),
        Node("view", target, {"self": Ref(of), **named}, ["view"]),
        Node("fill_", "aten.fill_.Scalar", {"self": Ref("view"), "value": value}, ["fill_"]),
    ]
    plain = {"x": Meta(DType.F32, (3, 4), (4, 1)), "y": Meta(DType.F32, (3, 4), (4, 1))}
    views = {"cut": Meta(DType.F32, (3, 2), (4, 2)), "turned": Meta(DType.F32, (4, 3), (1, 4))}
    program = Graph([Input("x", "input")], nodes, [Output(Ref("y"))], {**plain, **views, **(metas or {})})
    found: Array = evaluate(import_torch(program), {"x": X})["output"]
    return found


@pytest.mark.parametrize(("of", "whole"), [("y", True), ("cut", False), ("turned", False)])
def test_contiguous_is_the_tensor_itself_only_where_it_was_contiguous(of: str, whole: bool) -> None:
    np.testing.assert_array_equal(written("aten.contiguous.default", of=of), np.full_like(X, 9) if whole else 2 * X)


@pytest.mark.parametrize(("strides", "whole"), [((4, 1), True), ((1, 3), False)])
@pytest.mark.parametrize("target", ["aten.contiguous.default", "aten.to.dtype"])
def test_a_memory_format_decides_whether_there_is_a_copy(target: str, strides: tuple[int, int], whole: bool) -> None:
    found = written(target, {"view": Meta(DType.F32, (3, 4), strides)})
    np.testing.assert_array_equal(found, np.full_like(X, 9) if whole else 2 * X)


@pytest.mark.parametrize("offset", [-3, -1, 0, 1, 2])
def test_diagonal(offset: int) -> None:
    wanted = 2 * X
    for row in range(3):
        if 0 <= row + offset < 4:
            wanted[row, row + offset] = 9
    np.testing.assert_array_equal(written("aten.diagonal.default", offset=offset), wanted)
    np.testing.assert_array_equal(written("aten.diagonal_copy.default", offset=offset), 2 * X)
    turned = written("aten.diagonal.default", offset=offset, dim1=1, dim2=0, of="turned")
    np.testing.assert_array_equal(turned, wanted)


def test_as_strided() -> None:
    wanted = 2 * X
    wanted.reshape(-1)[[1, 6, 11]] = 9
    np.testing.assert_array_equal(written("aten.as_strided.default", size=[3], stride=[5], storage_offset=1), wanted)
    np.testing.assert_array_equal(written("aten.as_strided.default", size=[12], stride=[1]), np.full_like(X, 9))


def test_elements_as_those_of_another_type() -> None:
    view = {"view": Meta(DType.I32, (3, 4), (4, 1))}
    found = written("aten.view.dtype", view, value=0x3F800000, dtype=DType.I32)
    np.testing.assert_array_equal(found, np.ones_like(X))


@pytest.mark.parametrize(
    ("target", "of", "named", "why"),
    [
        ("aten.as_strided.default", "turned", {"size": [3], "stride": [1]}, "of a tensor that is not contiguous"),
        ("aten.as_strided.default", "y", {"size": [2, 2], "stride": [1, 1]}, "writes in place to a view"),
        ("aten.unfold.default", "y", {"dimension": 1, "size": 2, "step": 1}, "writes in place to a view"),
    ],
)
def test_refusals(target: str, of: str, named: dict[str, Any], why: str) -> None:
    with pytest.raises(UnsupportedError, match=why) as caught:
        written(target, of=of, **named)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("target", "named", "row"),
    [
        ("aten.t_.default", {}, [2, 10, 18]),
        ("aten.transpose_.int", {"dim0": 0, "dim1": 1}, [2, 10, 18]),
        ("aten.unsqueeze_.default", {"dim": 1}, [[2, 4, 6, 8]]),
    ],
)
def test_another_view_from_then_on(target: str, named: dict[str, Any], row: Any) -> None:
    nodes = [
        Node("y", "aten.mul.Tensor", {"self": Ref("x"), "other": 2}, ["y"]),
        Node("z", target, {"self": Ref("y"), **named}, ["z"]),
        Node("first", "aten.select.int", {"self": Ref("z"), "dim": 0, "index": 0}, ["first"]),
    ]
    program = Graph([Input("x", "input")], nodes, [Output(Ref("first"))], {"x": Meta(DType.F32, (3, 4), (4, 1))})
    np.testing.assert_array_equal(evaluate(import_torch(program), {"x": X})["output"], row)


def test_windows_follow_writes_to_their_source() -> None:
    nodes = [
        Node("y", "aten.mul.Tensor", {"self": Ref("x"), "other": 2}, ["y"]),
        Node("view", "aten.unfold.default", {"self": Ref("y"), "dimension": 1, "size": 2, "step": 2}, ["view"]),
        Node("fill_", "aten.fill_.Scalar", {"self": Ref("y"), "value": 9}, ["fill_"]),
    ]
    program = Graph([Input("x", "input")], nodes, [Output(Ref("view"))], {"x": Meta(DType.F32, (3, 4), (4, 1))})
    found = evaluate(import_torch(program), {"x": X})["output"]
    np.testing.assert_array_equal(found, np.full((3, 2, 2), 9, np.float32))
