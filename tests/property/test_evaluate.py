# SPDX-License-Identifier: Apache-2.0
"""Random modules, planned naively here: evaluation in the poisoned arena equals plain evaluation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import event, given, note
from hypothesis import strategies as st

from memc.ir.core import Alias, Array, Function, Op, Placement, Value
from memc.ir.errors import InvalidError
from memc.ir.evaluate import evaluate, evaluate_in_arena
from memc.ir.module import Module
from memc.ir.ops.shared.op_def import definition
from memc.ir.verify.aliases import in_place_rule
from memc.ir.verify.structure import verify

from .graphs import inputs_of, modules


def own_results(function: Function) -> None:
    """Return copies, so that every returned value has bytes of its own."""
    for index, value in enumerate(function.returns):
        op = Op("copy", [value], [Value(f"result.{index}", value.type)])
        function.ops.append(op)
        function.returns[index] = op.result


def alias_views(function: Function) -> None:
    for op in function.ops:
        view = definition(op).view
        offset = view(op) if view is not None else None
        if offset is not None and op.result not in function.returns:
            source = op.operands[0]
            op.result.alias = Alias(source.root, source.offset_in_root + offset)


def alias_at_random(function: Function, data: st.DataObject) -> None:
    """Concat slices, views and in-place ops as the ops allow them, without regard to later uses."""
    for op in function.ops:
        rule = definition(op).slices
        offsets = rule(op) if rule is not None else []
        for operand, offset in zip(op.operands, offsets):
            mine = operand.op is not None and operand.op.name != "constant" and operand.alias is None
            taken = any(v.alias is not None and v.alias.root is operand for v in function.values())
            if offset is not None and mine and not taken and data.draw(st.booleans()):
                operand.alias = Alias(op.result.root, op.result.offset_in_root + offset)
    for op in function.ops:
        if len(op.results) != 1 or op.result.alias is not None:
            continue
        view, rule = definition(op).view, in_place_rule(op)
        offset = view(op) if view is not None else None
        if offset is not None and data.draw(st.booleans()):
            _join(function, op.result, op.operands[0], offset)
        elif rule and data.draw(st.integers(0, 2)) == 0:
            chosen = rule[data.draw(st.integers(0, len(rule) - 1))]
            op.plan = replace(op.plan, in_place=chosen)
            _join(function, op.result, op.operands[chosen], 0)


def _join(function: Function, result: Value, operand: Value, offset: int) -> None:
    """Make `result`, and whatever has it as root, lie `offset` bytes into `operand`."""
    base = operand.offset_in_root + offset
    for value in function.values():
        if value.alias is not None and value.alias.root is result:
            value.alias = Alias(operand.root, base + value.alias.offset)
    result.alias = Alias(operand.root, base)


def place(function: Function, *, reuse: bool) -> None:
    """Byte-tight addresses: one after another, or the first gap among what is alive at the same time (quadratic)."""
    first: dict[Value, int] = {}
    last: dict[Value, int] = {}
    returned = {v.root for v in function.returns}
    for index, op in enumerate(function.ops):
        for value in (*op.operands, *op.results):
            last[value.root] = index
        for value in op.results:
            if op.name != "constant" and value.root.op is not None and value.root not in returned:
                first.setdefault(value.root, index)
    done: list[Value] = []
    for root in (r for r in first if r.op is not None and r.op.name != "constant"):
        size, offset = root.type.nbytes, 0
        apart = [o for o in done if not reuse or (first[o] <= last[root] and first[root] <= last[o])]
        for other in sorted(apart, key=lambda o: o.placement.offset if o.placement else 0):
            assert other.placement is not None
            if offset + size <= other.placement.offset:
                break
            offset = max(offset, other.placement.offset + other.type.nbytes)
        root.placement = Placement("arena", offset)
        done.append(root)


def assert_same(found: dict[str, Array], expected: dict[str, Array]) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == array.dtype and found[name].shape == array.shape
        np.testing.assert_array_equal(found[name], array)


@given(modules(), st.booleans(), st.booleans(), st.sampled_from([0xFF, 0xA5, 0x00]))
def test_arena_equals_plain(module: Module, views: bool, reuse: bool, poison: int) -> None:
    inputs = inputs_of(module)
    kept = {name: array.copy() for name, array in inputs.items()}
    expected = evaluate(module, inputs)
    own_results(module.main)
    if views:
        alias_views(module.main)
    place(module.main, reuse=reuse)
    note(str(module))
    verify(module)
    assert_same(evaluate_in_arena(module, inputs, poison=poison), expected)
    assert_same(inputs, kept)


@given(modules(), st.data())
def test_what_the_verifier_accepts_is_right(module: Module, data: st.DataObject) -> None:
    """Whatever aliases it lets pass, the bytes read are the bytes meant."""
    inputs = inputs_of(module)
    expected = evaluate(module, inputs)
    own_results(module.main)
    alias_at_random(module.main, data)
    try:
        verify(module)
    except InvalidError as error:
        assert (
            "to be unused after this op" in str(error)
            or "apart from the result" in str(error)
            or "no write" in str(error)
        )
        event("rejected")
        return
    event("accepted")
    place(module.main, reuse=True)
    note(str(module))
    assert_same(evaluate_in_arena(module, inputs), expected)


@given(modules())
def test_results_are_finite_and_typed(module: Module) -> None:
    """What the other properties rely on: no NaN that would hide a difference."""
    note(str(module))
    for value, array in zip(module.main.returns, evaluate(module, inputs_of(module)).values()):
        assert array.shape == value.type.shape and array.dtype == value.type.dtype.numpy
        assert np.isfinite(np.asarray(array, np.float64)).all()
