# SPDX-License-Identifier: Apache-2.0
"""What valid IR is: structure and types here, aliases and placements in `verify_aliases`.

`verify` runs after every pass, so everything that later code relies on without checking is checked here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core import FUSED, Attr, Block, Function, Op, Value
from ..errors import InvalidError, OpError
from ..module import Module
from ..ops.shared.op_def import lookup
from ..types import MAX_BYTES, MAX_RANK, DType, TensorType
from .aliases import verify_aliases
from .copy_pairs import verify_copy_pairs
from .error_location import Where
from .op_plan_fields import verify_attributes, verify_op_plan
from .region_contents import are_identical, contents

Types = tuple[list[TensorType], list[TensorType]]

Seen = tuple[str, Types, dict[str, Attr], list[object]]
"""An op's name, its operands' and results' types, its attributes, and what is in its region."""

Known = dict[Op, Seen]
"""Ops whose attributes, types and regions have been found right, as they were then."""


def verify(module: Module, known: Known | None = None) -> None:
    """Raise InvalidError unless `module` is valid IR.

    The first line of the message names function, op index, op and value, what was expected and what was found; the
    op's text follows. Attributes and regions are not looked at, and types not inferred, again where they are as `known` has
    them; it is brought up to date.
    """
    names: set[str] = set()
    for function in module.functions:
        if function.name in names:
            raise InvalidError(f"invalid IR: expected each function once, got @{function.name} again")
        names.add(function.name)
        verify_function(function, {} if known is None else known)
        verify_aliases(function)
        verify_copy_pairs(function)
        _weights(module, function)


def verify_function(function: Function, known: Known) -> None:
    """Structure and types of one function. Raises InvalidError."""
    _BlockCheck(function.name, function, False, known).run()
    names = function.result_names
    where = Where(function.name)
    if names and len(names) != len(function.returns):
        where.fail(f"expected {len(function.returns)} result names (or none), got {len(names)}")
    if len(set(names)) != len(names) or not all(names):
        where.fail(f"expected distinct, non-empty result names, got {names}")
    _extents(where, function)


def _extents(where: Where, function: Function) -> None:
    """Counts are numbers beside what they count, and each axis of a result has one."""
    counts = [extent.count for extent in function.extents]
    if counts and not function.result_names:
        where.fail("expected names for results of which one is a count")
    if counts != sorted(set(counts)):
        where.fail(f"expected counts in the order of results, each once, got {counts}")
    cuts = [cut for extent in function.extents for cut in extent.cuts]
    for extent in function.extents:
        value = function.returns[extent.count] if extent.count < len(function.returns) else None
        if value is None or value.type != TensorType(DType.I64, ()):
            where.fail(f"expected a count of i64[] as result {extent.count}, got {value and value.type}", value)
        for result, axis in extent.cuts:
            shape = function.returns[result].type.shape if 0 <= result < len(function.returns) else ()
            if (
                not 0 <= axis < len(shape)
                or shape[axis] < extent.most
                or result in counts
                or cuts.count((result, axis)) > 1
            ):
                where.fail(
                    f"expected an axis of a result with room for {extent.most}, once, got axis {axis} of result {result}"
                )


@dataclass
class _BlockCheck:
    """Checks one block and the regions inside it."""

    function: str
    block: Block
    is_region: bool
    known: Known

    def run(self) -> None:
        self.names: set[str] = set()
        self.defined: set[Value] = set()
        where = Where(self.function)
        for param in self.block.params:
            self._define(where, param, None)
            if (param.role is None) != self.is_region:
                expected = "no role on a region's parameter" if self.is_region else "a role on every parameter"
                where.fail(f"expected {expected}, got {param.role and param.role.value}", param)
            if param.alias is not None:
                where.fail(f"expected no alias on a parameter, got one to %{param.alias.root.name}", param)
        for index, op in enumerate(self.block.ops):
            self._op(Where(self.function, index, op), op)
        for value in self.block.returns:
            if value not in self.defined:
                where.fail("expected the returned value to be defined in this block", value)

    def _define(self, where: Where, value: Value, op: Op | None) -> None:
        if value.op is not op:
            where.fail(f"expected the value's op to be the one that defines it, got {value.op!r}", value)
        if value in self.defined or value.name in self.names:
            where.fail("expected each value and name once, got it again", value)
        if not isinstance(value.type, TensorType) or not value.type.is_valid:
            _tensor_type(where, value)
        if op is not None and value.role is not None:
            where.fail(f"expected a role on parameters only, got {value.role.value}", value)
        if self.is_region and (value.alias is not None or value.placement is not None):
            where.fail("expected no alias and no placement inside a region", value)
        self.defined.add(value)
        self.names.add(value.name)

    def _op(self, where: Where, op: Op) -> None:
        if self.is_region and lookup(op.name) is None:
            what = "a group inside a group" if op.name == FUSED else f"the foreign op {op.name}"
            where.fail(f"expected registered ops inside a region, which is one kernel, got {what}")
        if not self.defined.issuperset(op.operands):
            undefined = next(operand for operand in op.operands if operand not in self.defined)
            where.fail("expected operands to be defined before their use", undefined)
        known = self.known.get(op)
        types = ([v.type for v in op.operands], [v.type for v in op.results])
        inside = [] if op.region is None else contents(op.region)
        same = known is not None and op.name != "constant" and _is_same(known, op, types, inside)  # Arrays may change.
        if not same:
            self._attributes(where, op)
        for result in op.results:
            self._define(where, result, op)
        if op.workspace is not None:
            self._workspace(where, op.workspace, op)
        if not same:
            self._region(where, op)
        verify_op_plan(where, op, self.is_region)
        if not same:
            _infer(where, op)
            self.known[op] = (op.name, types, dict(op.attrs), inside)

    def _attributes(self, where: Where, op: Op) -> None:
        for key, attr in op.attrs.items():
            if not isinstance(key, str) or not _is_attr(attr):
                where.fail(f"expected an attribute value, got {key} = {attr!r} ({type(attr).__name__})")
        verify_attributes(where, op)

    def _workspace(self, where: Where, workspace: Value, op: Op) -> None:
        self._define(where, workspace, op)
        if self.is_region:
            where.fail("expected no workspace inside a region", workspace)
        if workspace.type.dtype is not DType.U8 or workspace.type.rank != 1:
            where.fail(f"expected a workspace of type u8[n], got {workspace.type}", workspace)
        if workspace.alias is not None:
            where.fail("expected no alias on a workspace", workspace)

    def _region(self, where: Where, op: Op) -> None:
        region = op.region
        if region is None:
            if op.name == FUSED:
                where.fail("expected a region, got none")
            return
        if lookup(op.name) is not None and op.name != FUSED:
            where.fail(f"expected no region on {op.name}")
        _same_types(where, "region parameters (the operands' types)", op.operands, region.params)
        _BlockCheck(f"{self.function}, region of op {where.number}", region, True, self.known).run()
        _same_types(where, "yielded values (the results' types)", op.results, region.returns)


def _is_same(known: Seen, op: Op, types: Types, inside: list[object]) -> bool:
    """Whether nothing has changed; of attributes, whether each is the very same object, as 1 equals True."""
    name, known_types, attrs, known_inside = known
    if name != op.name or types != known_types or len(attrs) != len(op.attrs):
        return False
    for key, value in op.attrs.items():
        if key not in attrs or attrs[key] is not value:
            return False
    return are_identical(inside, known_inside)


def _same_types(where: Where, what: str, expected: list[Value], got: list[Value]) -> None:
    if [v.type for v in expected] != [v.type for v in got]:
        left, right = [str(v.type) for v in expected], [str(v.type) for v in got]
        where.fail(f"expected {what} {', '.join(left) or 'none'}, got {', '.join(right) or 'none'}")


def _infer(where: Where, op: Op) -> None:
    definition = lookup(op.name)
    if definition is None or op.name == FUSED:
        return
    try:
        types = list(definition.infer([v.type for v in op.operands], op.attrs))
    except OpError as error:
        where.fail(str(error), op.results[0] if op.results else None)
    except Exception as error:  # a rule that does not expect such operands or attributes
        where.fail(f"expected operands and attributes as {op.name} documents them, got {type(error).__name__}: {error}")
    if len(types) != len(op.results):
        where.fail(f"expected {len(types)} results, got {len(op.results)}")
    for type_, result in zip(types, op.results):
        if type_ != result.type:
            where.fail(f"expected type {type_}, got {result.type}", result)


def _tensor_type(where: Where, value: Value) -> None:
    found = value.type
    if not isinstance(found, TensorType) or not isinstance(found.dtype, DType) or not isinstance(found.shape, tuple):
        where.fail(f"expected a tensor type, got {found!r}", value)
    if found.rank > MAX_RANK:
        where.fail(f"expected a rank of at most {MAX_RANK}, got {found.rank}", value)
    for extent in found.shape:
        if type(extent) is not int or not 0 <= extent < MAX_BYTES:
            where.fail(f"expected dimensions in [0, 2^62), got {found}", value)
    if found.span >= MAX_BYTES:
        where.fail(f"expected a tensor below 2^62 bytes, extents of 0 left out, got {found}", value)


def _is_attr(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(_is_attr(v) for v in value)
    if isinstance(value, np.ndarray):
        return value.dtype in [d.numpy for d in DType]
    return type(value) in (bool, int, float, str, DType)


def _weights(module: Module, function: Function) -> None:
    for param in function.params:
        data = module.weights.get(param.name)
        if data is not None and param.role is not None and param.role.value == "weight":
            if data.dtype != param.type.dtype.numpy or data.shape != param.type.shape:
                got = f"{data.dtype}[{','.join(map(str, data.shape))}]"
                Where(function.name).fail(f"expected data of type {param.type}, got {got}", param)
