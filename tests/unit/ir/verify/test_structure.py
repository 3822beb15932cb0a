# SPDX-License-Identifier: Apache-2.0
"""Verifier, structure and types: each rule with the IR that breaks it and the message that says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from memc.ir.core import Alias, Block, Function, Op, Role, Value
from memc.ir.errors import InvalidError
from memc.ir.module import Module
from memc.ir.text.parser import parse
from memc.ir.types import DType, TensorType
from memc.ir.verify.structure import Known, verify

F4 = TensorType(DType.F32, (4,))


def function(text: str, result: str = "f32[2,3]", params: str = "") -> str:
    extra = f", {params}" if params else ""
    return f"func @main(%x: f32[2,3] {{role = input}}{extra}) -> {result} {{\n{text}\n}}\n"


def message(module: Module | str) -> str:
    with pytest.raises(InvalidError) as caught:
        verify(parse(module) if isinstance(module, str) else module)
    return str(caught.value)


VALID = [
    "  return %x",
    "  %0 = relu(%x) : f32[2,3]\n  %1 = add(%0, %x) : f32[2,3]\n  return %1",
    '  %0 = "foreign"(%x) {k = 1} workspace(%w: u8[9]) : f32[2,3]\n  "other"(%0) : ()\n  return %0',
    "  %0 = fused(%x) region(%a: f32[2,3]) {\n    %b = relu(%a) : f32[2,3]\n    yield %b\n  } : f32[2,3]\n  return %0",
    "  %0 = reshape(%x) {shape = [6]} : f32[6]\n  %1 = reshape(%0) {shape = [2, 3]} : f32[2,3]\n  return %1",
]


@pytest.mark.parametrize("text", VALID)
def test_valid(text: str) -> None:
    verify(parse(function(text)))


INVALID = [
    ("  %0 = relu(%x) : f32[3,2]\n  return %x", "@main, op 0 relu, value %0: expected type f32[2,3], got f32[3,2]"),
    ("  %0 = relu(%x, %x) : f32[2,3]\n  return %0", "@main, op 0 relu"),
    (
        "  %0 = reshape(%x) {shape = [5]} : f32[5]\n  return %x",
        "op 0 reshape, value %0: expected attribute `shape` with 6",
    ),
    ("  %0 = reshape() {shape = [5]} : f32[5]\n  return %x", "op 0 reshape"),
    ("  %0, %1 = relu(%x) : f32[2,3], f32[2,3]\n  return %0", "expected 1 results, got 2"),
    ("  relu(%x) : ()\n  return %x", "expected 1 results, got 0"),
    ("  %0 = relu(%x) workspace(%w: f32[4]) : f32[2,3]\n  return %0", "value %w: expected a workspace of type u8[n]"),
    ("  %0 = fused(%x) : f32[2,3]\n  return %0", "op 0 fused: expected a region, got none"),
    ("  %0 = relu(%x) region() { yield } : f32[2,3]\n  return %0", "expected no region on relu"),
    (
        "  %0 = fused(%x) region() {\n    %c = constant() {value = dense<f32[]>[1.0]} : f32[]\n    yield %c\n  } : f32[2,3]\n"
        "  return %0",
        "expected region parameters (the operands' types) f32[2,3], got none",
    ),
    (
        "  %0 = fused(%x) region(%a: f32[2,3]) {\n    yield %a\n  } : f32[3,2]\n  return %x",
        "expected yielded values (the results' types) f32[3,2], got f32[2,3]",
    ),
    (
        "  %0 = fused(%x) region(%a: f32[2,3]) {\n    %b = relu(%a) : f32[6]\n    yield %a\n  } : f32[2,3]\n  return %x",
        "@main, region of op 0, op 0 relu, value %b: expected type f32[2,3], got f32[6]",
    ),
    (
        "  %0 = fused(%x) region(%a: f32[2,3] {role = input}) {\n    yield %a\n  } : f32[2,3]\n  return %x",
        "value %a: expected no role on a region's parameter, got input",
    ),
    (
        "  %0 = fused(%x) region(%a: f32[2,3]) {\n    %b = relu(%a) : f32[2,3] @arena[0]\n    yield %b\n  } : f32[2,3]\n  return %x",
        "value %b: expected no alias and no placement inside a region",
    ),
]


@pytest.mark.parametrize(("text", "expected"), INVALID)
def test_invalid(text: str, expected: str) -> None:
    first = message(function(text)).split("\n")[0]
    assert first.startswith("invalid IR: @main") and expected in first


def test_message_shows_op_and_location() -> None:
    text = message(function('  %0 = relu(%x) : f32[6] loc("conv1/relu")\n  return %x'))
    assert text == (
        "invalid IR: @main, op 0 relu (conv1/relu), value %0: expected type f32[2,3], got f32[6]\n"
        '  %0 = relu(%x) : f32[6] loc("conv1/relu")'
    )


def test_roles() -> None:
    assert "value %y: expected a role on every parameter" in message(function("  return %x", params="%y: f32[]"))
    op = Op("relu", [Value("x", F4, role=Role.INPUT)], [Value("y", F4, role=Role.STATE)])
    module = Module([Function(op.operands, [op], [])])
    assert "value %y: expected a role on parameters only, got state" in message(module)


def test_result_names() -> None:
    x = Value("x", F4, role=Role.INPUT)
    assert "expected 1 result names (or none), got 2" in message(
        Module([Function([x], [], [x], result_names=["a", "b"])])
    )
    two = Function([x], [], [x, x], result_names=["a", "a"])
    assert "expected distinct, non-empty result names" in message(Module([two]))


def test_use_before_definition_and_of_undefined_values() -> None:
    x = Value("x", F4, role=Role.INPUT)
    first = Op("relu", [x], [Value("a", F4)])
    second = Op("relu", [first.result], [Value("b", F4)])
    assert "value %a: expected operands to be defined before" in message(Module([Function([x], [second, first], [])]))
    assert "value %b: expected the returned value to be defined" in message(
        Module([Function([x], [first], [second.result])])
    )


def test_names_and_definitions_are_unique() -> None:
    x = Value("x", F4, role=Role.INPUT)
    clash = Op("relu", [x], [Value("x", F4)])
    assert "value %x: expected each value and name once" in message(Module([Function([x], [clash], [])]))
    op = Op("relu", [x], [Value("a", F4)])
    assert "expected each value and name once" in message(Module([Function([x], [op, op], [])]))
    stolen = Op("relu", [x], [Value("a", F4)])
    Op("relu", [x], stolen.results)
    assert "expected the value's op to be the one that defines it" in message(Module([Function([x], [stolen], [])]))
    assert "expected each function once" in message(Module([Function([]), Function([])]))


@pytest.mark.parametrize("bad", [[1], None, np.int64(1), ([1],), np.zeros(2, np.complex64)])
def test_attributes_are_plain(bad: Any) -> None:
    x = Value("x", F4, role=Role.INPUT)
    op = Op("foreign", [x], [], {"k": bad})
    assert "expected an attribute value, got k = " in message(Module([Function([x], [op], [])]))


@pytest.mark.parametrize("shape", [(-1,), (2**62,), (2**31, 2**31), (1.0,), (np.int64(2),)])
def test_shapes_are_sane(shape: tuple[int, ...]) -> None:
    x = Value("x", TensorType(DType.F32, shape), role=Role.INPUT)
    assert "value %x: expected" in message(Module([Function([x], [], [])]))


def test_nothing_of_an_outer_block_inside_a_region() -> None:
    x = Value("x", F4, role=Role.INPUT)
    inner = Op("relu", [x], [Value("r", F4)])
    op = Op("fused", [], [Value("y", F4)], region=Block([], [inner], [inner.result]))
    assert "value %x: expected operands to be defined before their use" in message(Module([Function([x], [op], [])]))


def test_parameters_have_no_alias() -> None:
    x, y = Value("x", F4, role=Role.INPUT), Value("y", F4, role=Role.INPUT)
    y.alias = Alias(x, 0)
    assert "value %y: expected no alias on a parameter, got one to %x" in message(Module([Function([x, y], [], [])]))


def test_weight_data() -> None:
    w = Value("w", F4, role=Role.WEIGHT)
    module = Module([Function([w], [], [])], {"w": np.zeros(4, np.float64)})
    assert "value %w: expected data of type f32[4], got float64[4]" in message(module)
    verify(Module([Function([w], [], [])], {"w": np.zeros(4, np.float32)}))


GROUP = function(
    "  %r = fused(%x) region(%a: f32[2,3]) {\n"
    "    %0 = softmax(%a) {axis = 1} : f32[2,3]\n"
    "    %1 = reshape(%0) {shape = [3, 2]} : f32[3,2]\n"
    "    yield %1\n"
    "  } : f32[3,2]\n"
    "  return %r",
    "f32[3,2]",
)


def _other_attribute(group: Op, region: Block) -> None:
    region.ops[0].attrs["axis"] = 7


def _numpy_attribute(group: Op, region: Block) -> None:
    region.ops[0].attrs["axis"] = np.int64(1)  # type: ignore[assignment]


def _other_type(group: Op, region: Block) -> None:
    region.ops[0].results[0].type = F4


def _other_operand(group: Op, region: Block) -> None:
    region.ops[1].operands = list(group.operands)


def _same_name(group: Op, region: Block) -> None:
    region.ops[0].results[0].name = "a"


def _other_name(group: Op, region: Block) -> None:
    region.ops[0].name = "unheard_of"


def _alias(group: Op, region: Block) -> None:
    region.ops[1].results[0].alias = Alias(region.params[0], 0)


def _other_return(group: Op, region: Block) -> None:
    region.returns = [region.params[0]]


def _other_result(group: Op, region: Block) -> None:
    group.results[0].type = F4


def _no_op(group: Op, region: Block) -> None:
    del region.ops[0]


CHANGES = (_other_attribute, _numpy_attribute, _other_type, _other_operand, _same_name, _other_name)


@pytest.mark.parametrize("change", [*CHANGES, _alias, _other_return, _other_result, _no_op])
def test_what_has_changed_in_a_region_is_verified_again(change: Callable[[Op, Block], None]) -> None:
    module, known = parse(GROUP), Known()
    for _ in range(2):
        verify(module, known)
    group = module.main.ops[0]
    assert group.region is not None
    change(group, group.region)
    with pytest.raises(InvalidError):
        verify(module, known)


def test_an_attribute_that_only_equals_the_one_before_is_looked_at_again() -> None:
    module, known = parse(function("  %r = softmax(%x) {axis = 1} : f32[2,3]\n  return %r")), Known()
    verify(module, known)
    module.main.ops[0].attrs["axis"] = True
    with pytest.raises(InvalidError):
        verify(module, known)
