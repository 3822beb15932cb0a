# SPDX-License-Identifier: Apache-2.0
"""Every registered op says itself what is wrong with its operands and attributes: no other exception leaves its rules.

Valid ops come from one or two of ONNX's node tests of each kind, and are changed in one place: an attribute missing or of
another type or value, an operand more or less, or of another type. What type inference then accepts, the op's other rules
take too; the reference evaluates it to the inferred types, or refuses the data.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import memc
import memc.ir.ops
from memc.ir.build import IRBuilder
from memc.ir.core import UNPLANNED, Op, OpPlan, Value
from memc.ir.errors import MemcError
from memc.ir.ops.shared.op_def import OpDef, registered
from memc.ir.types import DType, TensorType
from memc.passes.manager import PassManager

from .backend import collect

VALUES: tuple[Any, ...] = (
    *(0, 1, -1, 3, 2**31, 2**63 - 1, -(2**63), 2**64 - 1, 1.5, -1.5, float("nan"), float("inf"), True, False, "", "x"),
    *("constant", DType.F32, DType.BF16, (), (0,), (1, 1), (0, 0), (1, 1, 1, 1), (2**62,), (-1, -1), (0.5,), ("a",)),
    *(((1,),), (True,), np.zeros(3, np.float32), np.zeros((), np.int64), (2**63 - 1, 2**63 - 1)),
)
ITEMS: tuple[Any, ...] = (0, -1, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63), 1.5, True, "x")

Sample = tuple[list[TensorType], dict[str, Any]]

SAMPLES = 6
"""Of each op."""


@pytest.fixture(scope="module")
def samples() -> dict[str, list[Sample]]:
    """Valid ops by name."""
    found: dict[str, list[Sample]] = {}
    known: set[str] = set()
    made = IRBuilder.multi

    def recording(self: IRBuilder, name: str, operands: Sequence[Value], plan: OpPlan = UNPLANNED, **attrs: Any) -> Op:
        op = made(self, name, operands, plan, **attrs)
        sample = ([v.type for v in operands], dict(attrs))
        if len(found.setdefault(name, [])) < SAMPLES and f"{name} {sample}" not in known:
            known.add(f"{name} {sample}")
            found[name].append(sample)
        return op

    patch = pytest.MonkeyPatch()
    patch.setattr(IRBuilder, "multi", recording)
    taken: Counter[str] = Counter()
    for case in collect().values():
        kind = case.model.graph.node[0].op_type
        if taken[kind] < 4:
            taken[kind] += 1
            try:
                PassManager.parse("canonicalize,decompose").run(memc.import_onnx(case.model))
            except MemcError:
                continue
    patch.undo()
    assert len(found) > 80
    return found


def edits(types: list[TensorType], attrs: dict[str, Any]) -> Iterator[Sample]:
    """The op with one thing changed."""
    for name, value in attrs.items():
        yield types, {k: v for k, v in attrs.items() if k != name}
        for other in VALUES:
            yield types, {**attrs, name: other}
        if isinstance(value, tuple) and value:
            for number, item in enumerate(ITEMS):
                at = number % len(value)
                yield types, {**attrs, name: (*value[:at], item, *value[at + 1 :])}
            yield types, {**attrs, name: value[1:]}
            yield types, {**attrs, name: value + value[:1]}
    for i, type_ in enumerate(types):
        before, after = types[:i], types[i + 1 :]
        yield [*before, *after], attrs
        yield [*before, type_, type_, *after], attrs
        for dtype in DType:
            yield [*before, type_.with_dtype(dtype), *after], attrs
        rest = type_.shape[1:]
        for shape in ((), (1,), rest, (*type_.shape, 2), (0, *rest), (2**20, *rest), (2**40, *rest), (0,) * type_.rank):
            yield [*before, type_.with_shape(shape), *after], attrs


def use(definition: OpDef, types: list[TensorType], attrs: dict[str, Any]) -> None:
    """Ask the op for everything that passes ask. Raises MemcError for what the op refuses."""
    results = list(definition.infer(types, attrs))
    assert all(min(r.shape, default=0) >= 0 for r in results)
    if any(r.nbytes >= 2**62 for r in results):
        return
    op = Op(
        definition.name,
        [Value(f"o{i}", t) for i, t in enumerate(types)],
        [Value(f"r{i}", t) for i, t in enumerate(results)],
        attrs,
    )
    for rule in (definition.view, definition.in_place, definition.slices, definition.flops):
        if rule is not None:
            rule(op)
    for kernel in definition.library:
        if kernel.supports(op):
            kernel.scalars(op)
            if kernel.workspace is not None:
                kernel.workspace(op)
    if sum(t.elements for t in (*types, *results)) > 3000:
        return
    data = [np.ones(t.shape, t.dtype.numpy) for t in types]
    with np.errstate(all="ignore"):
        arrays = definition.evaluate(data, attrs, results)
    for array, result in zip(arrays, results):
        assert np.asarray(array).dtype == result.dtype.numpy and np.asarray(array).shape == result.shape


@pytest.mark.parametrize("definition", registered(), ids=lambda d: d.name)
def test_one_thing_changed(definition: OpDef, samples: dict[str, list[Sample]]) -> None:
    refused = 0
    for types, attrs in samples.get(definition.name, [([], {})]):
        for changed_types, changed_attrs in edits(types, attrs):
            try:
                use(definition, changed_types, changed_attrs)
            except MemcError:
                refused += 1
            except Exception as error:
                what = f"{definition.name}({', '.join(map(str, changed_types))}) {changed_attrs}"
                raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error
    assert refused or definition.name not in samples


@pytest.mark.parametrize("definition", registered(), ids=lambda d: d.name)
@pytest.mark.parametrize("count", range(6))
def test_operands_of_nothing_known(definition: OpDef, count: int) -> None:
    for shape in ((), (2, 3), (1, 1, 4, 4)):
        try:
            definition.infer([TensorType(DType.F32, shape)] * count, {})
        except MemcError as error:
            assert str(error)
