# SPDX-License-Identifier: Apache-2.0
"""Random modules and attributes survive the way through text; random text never breaks the parser."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from memc.ir.core import Function, Op, Placement, Role, Value
from memc.ir.errors import InvalidError
from memc.ir.module import Module
from memc.ir.text.difference import difference
from memc.ir.text.parser import parse
from memc.ir.types import DType, TensorType
from memc.ir.verify.structure import verify

from .graphs import modules

names = st.text(min_size=1, max_size=8) | st.from_regex(r"[A-Za-z0-9_.$-]{1,8}", fullmatch=True)
shapes = st.lists(st.integers(0, 3), max_size=3).map(tuple)


@st.composite
def arrays(draw: Any) -> Any:
    dtype, shape = draw(st.sampled_from(DType)), draw(shapes)
    size = math.prod(shape)
    raw = np.frombuffer(draw(st.binary(min_size=size * dtype.itemsize, max_size=size * dtype.itemsize)), np.uint8)
    return (raw % 2 == 1 if dtype is DType.BOOL else raw.view(dtype.numpy)).reshape(shape)


scalars = st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.sampled_from(DType)
attrs = st.recursive(scalars | arrays(), lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=6)


def same_after_text(module: Module) -> None:
    text = str(module)
    again = parse(text)
    assert difference(module, again) is None
    assert str(again) == text


@given(modules())
def test_modules_round_trip(module: Module) -> None:
    verify(module)
    same_after_text(module)
    verify(parse(str(module)))


@given(st.dictionaries(names, attrs, max_size=4), st.lists(names, min_size=4, max_size=4, unique=True), shapes)
def test_attributes_and_names_round_trip(values: Any, labels: list[str], shape: tuple[int, ...]) -> None:
    x = Value(labels[0], TensorType(DType.BF16, shape), role=Role.STATE, placement=Placement(labels[1], 2**61))
    y = Value(labels[1], x.type)
    op = Op(labels[2], [x], [y], values, location=labels[3])
    same_after_text(Module([Function([x], [op], [y], name=labels[0], result_names=[labels[2]])]))


@given(modules(max_ops=3), st.data())
def test_damaged_text_is_valid_or_one_error(module: Module, data: st.DataObject) -> None:
    text = str(module)
    at = data.draw(st.integers(0, len(text)))
    until = data.draw(st.integers(at, min(len(text), at + 6)))
    damaged = text[:at] + data.draw(st.text(max_size=3)) + text[until:]
    try:
        verify(parse(damaged))
    except InvalidError as error:
        first = str(error).split("\n")[0]
        assert first.startswith(("<string>:", "invalid IR: ")) and ("expected" in first or "unknown" in first), first


@given(st.text(alphabet=st.sampled_from('%@"[]{}(),:=-><. \nfunc return fused f32 0123456789 // \x00é'), max_size=80))
def test_any_text_is_valid_or_one_error(text: str) -> None:
    try:
        parse(text)
    except InvalidError as error:
        assert str(error).startswith("<string>:")
