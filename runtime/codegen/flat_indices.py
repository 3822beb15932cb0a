# SPDX-License-Identifier: Apache-2.0
"""Indices into tensors as offsets in memory, checked.

TVM's `FlattenBuffer` simplifies offsets by way of its iterator maps, which give other numbers where several quotients or
remainders of one loop variable are shifted, as where the rows and the columns of a tensor wrap. So every access is
evaluated before and after it, at many values of the loop variables; what differs is hidden from the simplifier.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx

from memc.runtime.codegen.expressions import DIVISIONS, walk
from memc.runtime.codegen.integers import sealed

MOST_POINTS = 1 << 16
"""Values of the loop variables at which an access is evaluated: all if there are no more, else some."""

SOME_POINTS = 1 << 12

BINARY: dict[type, Any] = {
    tirx.Add: np.add,
    tirx.Sub: np.subtract,
    tirx.Mul: np.multiply,
    tirx.Min: np.minimum,
    tirx.Max: np.maximum,
    tirx.FloorDiv: np.floor_divide,
    tirx.FloorMod: np.mod,
    tirx.EQ: np.equal,
    tirx.NE: np.not_equal,
    tirx.LT: np.less,
    tirx.LE: np.less_equal,
    tirx.GT: np.greater,
    tirx.GE: np.greater_equal,
    tirx.And: np.logical_and,
    tirx.Or: np.logical_or,
}
"""How numpy computes what indices and conditions are made of."""

SAME = ("memc_same", "memc_same_int32", "memc_same_int64", "prim.likely")


class Unknown(Exception):
    """An expression that depends on data."""


@dataclass(frozen=True)
class Access:
    """A read or a write of a tensor."""

    buffer: Any
    indices: tuple[Any, ...]
    conditions: tuple[tuple[Any, bool], ...]
    """Under which it is executed, and whether they hold then."""


@dataclass
class Accesses:
    """The accesses of a function, in order, and its variables."""

    found: list[Access] = field(default_factory=list)
    extents: dict[Any, int] = field(default_factory=dict)
    """The extents of loop variables."""
    bound: dict[Any, Any] = field(default_factory=dict)
    """What other variables stand for."""
    conditions: tuple[tuple[Any, bool], ...] = ()

    def statement(self, stmt: Any) -> None:
        if isinstance(stmt, tirx.SeqStmt):
            for part in stmt.seq:
                self.statement(part)
        elif isinstance(stmt, tirx.For):
            self._loop(stmt.loop_var, stmt.min, stmt.extent)
            self.statement(stmt.body)
        elif isinstance(stmt, tirx.AttrStmt):
            if isinstance(stmt.node, tirx.IterVar):
                self._loop(stmt.node.var, tirx.IntImm("int32", 0), stmt.value)
            self.statement(stmt.body)
        elif isinstance(stmt, tirx.IfThenElse):
            self.expression(stmt.condition)
            self._under(stmt.condition, True, self.statement, stmt.then_case)
            if stmt.else_case is not None:
                self._under(stmt.condition, False, self.statement, stmt.else_case)
        elif isinstance(stmt, tirx.BufferStore):
            self.expression(stmt.value)
            self._access(stmt)
        elif isinstance(stmt, tirx.Bind):
            self.expression(stmt.value)
            self.bound[stmt.var] = stmt.value
        elif isinstance(stmt, tirx.Evaluate):
            self.expression(stmt.value)

    def expression(self, expr: Any) -> None:
        if isinstance(expr, tvm.ir.TensorLoad):
            self._access(expr)
        elif isinstance(expr, tirx.Let):
            self.expression(expr.value)
            self.bound[expr.var] = expr.value
            self.expression(expr.body)
        elif isinstance(expr, tirx.Select):
            self._choice(expr.condition, expr.true_value, expr.false_value)
        elif isinstance(expr, tvm.ir.Call):
            if getattr(expr.op, "name", "") == "prim.if_then_else":
                self._choice(*expr.args)
                return
            for argument in expr.args:
                self.expression(argument)
        elif isinstance(expr, (tirx.Cast, tirx.Broadcast)):
            self.expression(expr.value)
        elif isinstance(expr, tirx.Not):
            self.expression(expr.a)
        elif type(expr) in BINARY or isinstance(expr, DIVISIONS):
            self.expression(expr.a)
            self.expression(expr.b)

    def _choice(self, condition: Any, then: Any, otherwise: Any) -> None:
        self.expression(condition)
        self._under(condition, True, self.expression, then)
        self._under(condition, False, self.expression, otherwise)

    def _under(self, condition: Any, holds: bool, visit: Any, part: Any) -> None:
        before = self.conditions
        self.conditions = (*before, (condition, holds))
        visit(part)
        self.conditions = before

    def _access(self, node: Any) -> None:
        for index in node.indices:
            self.expression(index)
        self.found.append(Access(buffer_of(node), tuple(node.indices), self.conditions))

    def _loop(self, variable: Any, first: Any, extent: Any) -> None:
        if isinstance(first, tirx.IntImm) and isinstance(extent, tirx.IntImm) and int(first) == 0:
            self.extents[variable] = int(extent)


def buffer_of(node: Any) -> Any:
    """The tensor that a load or store is of."""
    return node.buffer if isinstance(node, tirx.BufferStore) else node.source


def accesses(func: tirx.PrimFunc) -> Accesses:
    """The accesses of a function without blocks."""
    found = Accesses()
    found.statement(func.body)
    return found


class Points:
    """Values of the variables that accesses use."""

    def __init__(self, all_accesses: Accesses, roots: Sequence[Any]) -> None:
        self.bound = all_accesses.bound
        used = list(_variables(roots, self.bound))
        loops = [v for v in used if v in all_accesses.extents]
        extents = [all_accesses.extents[v] for v in loops]
        total = int(np.prod(extents, dtype=object)) if extents else 1
        random = np.random.default_rng(0)
        self.are_all = total <= MOST_POINTS
        if self.are_all:
            grids = np.unravel_index(np.arange(total), extents) if extents else ()
            self.values: dict[Any, Any] = dict(zip(loops, (np.asarray(g, np.int64) for g in grids)))
        else:
            total = SOME_POINTS
            self.values = {v: random.integers(0, n, total) for v, n in zip(loops, extents)}
        for variable in used:
            if variable not in self.values and variable not in self.bound:
                self.values[variable] = random.integers(0, 64, total)
        self.random, self.total = random, total

    def of(self, expr: Any) -> Any:
        """What an expression of integers or truth values is, at every point. Raises Unknown."""
        if isinstance(expr, tirx.IntImm):
            return np.int64(expr.value)
        if isinstance(expr, tirx.Var):
            if expr not in self.values:
                try:
                    self.values[expr] = self.of(self.bound[expr])
                except Unknown:  # It is data, which no simplification knows anything of.
                    self.values[expr] = self.random.integers(0, 64, self.total)
            return self.values[expr]
        if type(expr) in BINARY:
            a, b = self.of(expr.a), self.of(expr.b)
            if isinstance(expr, DIVISIONS) and np.any(b == 0):
                raise Unknown
            return BINARY[type(expr)](a, b)
        if isinstance(expr, (tirx.Div, tirx.Mod)):
            a, b = np.asarray(self.of(expr.a)), np.asarray(self.of(expr.b))
            if a.dtype.kind != "i" or np.any(b == 0):
                raise Unknown
            quotient = np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))
            return quotient if isinstance(expr, tirx.Div) else a - quotient * b
        if isinstance(expr, tirx.Cast) and str(expr.ty.dtype) in ("int32", "int64"):
            return np.asarray(self.of(expr.value)).astype(np.int64)
        if isinstance(expr, tirx.Not):
            return np.logical_not(self.of(expr.a))
        if isinstance(expr, tirx.Select):
            return np.where(self.of(expr.condition), self.of(expr.true_value), self.of(expr.false_value))
        if isinstance(expr, tvm.ir.Call):
            return self._call(expr)
        raise Unknown

    def _call(self, call: Any) -> Any:
        name = getattr(call.op, "name", "")
        arguments = list(call.args)
        if name == "prim.if_then_else":
            return np.where(*[self.of(a) for a in arguments])
        if name in ("tirx.call_pure_extern", "tirx.call_extern") and arguments[0].value in SAME:
            return self.of(arguments[1])
        if name in SAME:
            return self.of(arguments[0])
        raise Unknown


def _variables(roots: Sequence[Any], bound: Mapping[Any, Any]) -> Iterator[Any]:
    """All variables that expressions depend on, each once."""
    seen: set[Any] = set()
    pending = list(roots)
    while pending:
        for variable in walk(pending.pop(), tirx.Var):
            if variable not in seen:
                seen.add(variable)
                yield variable
                if variable in bound:
                    pending.append(bound[variable])


def is_shifted(indices: Sequence[Any], bound: Mapping[Any, Any]) -> bool:
    """Whether indices have a quotient or remainder of a sum with a constant, or of a difference."""

    def parts(expr: Any) -> list[Any]:
        found = walk(expr, *DIVISIONS)
        for variable in walk(expr, tirx.Var):
            if variable in bound:
                found += parts(bound[variable])
        return found

    return any(_has_shift(d.a) for index in indices for d in parts(index))


def _has_shift(expr: Any) -> bool:
    sums = walk(expr, tirx.Add, tirx.Sub)
    return any(isinstance(s, tirx.Sub) or isinstance(s.a, tirx.IntImm) or isinstance(s.b, tirx.IntImm) for s in sums)


def is_same_place(before: Access, after: Access, known: Accesses, target: str) -> bool:
    """Whether an access to a flattened tensor is the access to the tensor."""
    roots = [*before.indices, *after.indices, *(c for c, _ in before.conditions)]
    points = Points(known, roots)
    try:
        wanted: Any = np.int64(0)
        for index, extent in zip(before.indices, before.buffer.shape):
            wanted = wanted * int(extent) + points.of(index)
        given = points.of(after.indices[0]) if after.indices else np.int64(0)
    except Unknown:  # The simplifier does not know what an iterator map is made of either.
        return True
    if not points.are_all and target == "cuda":
        return False  # Only kernels for CUDA have loops fused into one, so that this may happen, at few of many points.
    reached = np.ones(points.total, bool)
    for condition, holds in before.conditions:
        try:
            reached &= np.asarray(points.of(condition), bool) == holds
        except Unknown:
            continue
    return bool(np.all((wanted == given) | ~reached))


def differs(before: tirx.PrimFunc, after: tirx.PrimFunc, target: str) -> bool:
    """Whether a function has accesses that flattening moved elsewhere, or may have."""
    was = accesses(before)
    shifted = [n for n, access in enumerate(was.found) if is_shifted(access.indices, was.bound)]
    if not shifted:
        return False
    now = accesses(after)
    if len(was.found) != len(now.found):  # A condition was decided: which is which is not known.
        return True
    known = Accesses(extents=was.extents | now.extents, bound=now.bound | was.bound)
    return not all(is_same_place(was.found[n], now.found[n], known, target) for n in shifted)


def hidden(func: tirx.PrimFunc, target: str) -> tirx.PrimFunc:
    """The function, with the shifted quotients and remainders of indices hidden from TVM's simplifier."""
    bound = accesses(func).bound

    def opaque(indices: Sequence[Any]) -> list[Any]:
        return [sealed(i, target) if is_shifted([i], bound) else i for i in indices]

    def load(node: Any) -> Any:
        return tirx.BufferLoad(node.source, opaque(node.indices))

    def store(node: Any) -> Any:
        return tirx.BufferStore(node.buffer, node.value, opaque(node.indices))

    return func.with_body(tvm_ffi.structural_map(func.body, [(tvm.ir.TensorLoad, load), (tirx.BufferStore, store)]))


def flatten(module: tvm.ir.IRModule, target: str) -> tvm.ir.IRModule:
    """The module with flat tensors; `target`: llvm or cuda."""
    flat = tirx.transform.FlattenBuffer()(module)
    wrong = {name: hidden(f, target) for name, f in module.functions.items() if differs(f, flat[name], target)}
    if wrong:
        flat.update(tirx.transform.FlattenBuffer()(tvm.ir.IRModule(wrong)))
    return flat
