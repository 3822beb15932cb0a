# SPDX-License-Identifier: Apache-2.0
"""The kernel of a row-wise fusion, as `join-rows` found it: a team of threads computes one row of all ops' results.

A thread has the columns `lane`, `lane + team`, ... of its row, of all tensors alike, so it reads what it wrote itself. What
a reduction gives is known to the whole team. `row_plan.py` decides how many threads that are and what stays in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import ir, tirx

from memc.ir.core import Op, Value
from memc.ir.ops.shared.op_def import inner_ops
from memc.ir.types import DType, TensorType
from memc.runtime.codegen import bf16, reducers
from memc.runtime.codegen.exact_arithmetic import exact
from memc.runtime.codegen.expressions import COMPUTED, STORED, const, node
from memc.runtime.codegen.horizontal_fusion import JointKey, joint_key
from memc.runtime.codegen.lower_op import lower_body, splat
from memc.runtime.codegen.multi_tensor import named
from memc.runtime.codegen.row_plan import WARP, RowPlan
from memc.runtime.codegen.row_statements import Statements
from memc.runtime.codegen.te_builder import INDEX_LIMIT, Inline, Literal, Scope, TEBuilder

WARPS = 4
"""Rows in a block where a warp does a row."""

TOGETHER = 4
"""Columns of a longer row that a thread reads before it writes one: reads that follow a write wait for it."""


@dataclass(frozen=True)
class RowsKey:
    """Equal exactly for runs whose row-wise kernels are the same."""

    axes: int
    """How many leading axes tell rows apart."""
    run: JointKey
    stored: tuple[int, ...]
    """The numbers of the values that are written, among all."""


def rows_key(ops: Sequence[Op], plan: RowPlan) -> RowsKey:
    """The key of a run of ops on the same rows."""
    numbers: dict[Value, int] = {}
    for op in ops:
        for value in (*op.operands, op.result):
            numbers.setdefault(value, len(numbers))
    return RowsKey(plan.axes, joint_key(ops), tuple(numbers[v] for v in plan.stored))


def lower_rows(ops: Sequence[Op], plan: RowPlan, target: str) -> tirx.PrimFunc:
    """The kernel, ready to be built: `plan.parameters` are what it takes. On llvm, one thread does row after row."""
    writer = _RowWriter(ops, plan, target)
    body = writer.of_threads() if target == "cuda" else writer.of_loop()
    # Results may lie where operands do: nothing is said of that.
    return tirx.PrimFunc(list(writer.buffers.values()), body)


class _RowBuilder(TEBuilder):
    """Lowers one op, whose reductions are loops over the columns that `fold` writes."""

    def __init__(self, target: str, fold: Callable[[str, Callable[[], Any]], Any]) -> None:
        super().__init__(target)
        self.only_loads = False
        self.fold = fold

    def compute(self, type: TensorType, body: Callable[..., Any]) -> Any:
        return Inline(self, type, body)

    def reduce(self, kind: str, extents: Sequence[int], body: Callable[..., Any]) -> Any:
        axes = [self.variable(n) for n in extents]

        def element() -> Any:
            self.scopes.append(Scope())
            value = node(body(*axes))
            return exact(self.scopes.pop().close(value), self.target, self.only_loads)

        return self.fold(kind, element)

    def variable(self, extent: int) -> Any:
        """An index. Operands are read where the thread is, whatever the index, so that it is in no expression."""
        found = tirx.Var("i", self.index_dtype)
        self.bind_ranges([found], [extent])
        return found


@dataclass(frozen=True)
class _Cell:
    """An operand, of which a thread sees one element."""

    read: Callable[[], Any]
    type: TensorType

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    def __getitem__(self, index: Any) -> Any:
        return self.read()


@dataclass
class _Turn:
    """One column of a thread."""

    inside: Any
    """Whether there is such a column; None: certainly."""
    position: list[Any]
    """Its index along the axes of the columns."""
    known: dict[Value, Any] = field(default_factory=dict)
    """Elements as they are stored."""


class _RowWriter(Statements):
    """Writes what a thread does."""

    def __init__(self, ops: Sequence[Op], plan: RowPlan, target: str) -> None:
        values = plan.parameters
        super().__init__(target, "int64" if max(v.type.elements for v in values) > INDEX_LIMIT else "int32")
        self.ops, self.plan = ops, plan
        self.buffers: Mapping[Value, Any] = {
            v: tirx.decl_buffer(v.type.shape, STORED[v.type.dtype], name=f"buffer{n}") for n, v in enumerate(values)
        }
        self.row: list[Any] = []
        """The row's index along the axes of the rows."""
        self.numbers: dict[Value, Any] = {}
        """What all columns of the row share, as it is stored."""
        self.lane: Any = None
        self.turns: list[_Turn] = []
        """The thread's columns, if they stay in registers."""
        self.turn: _Turn | None = None
        """The column that is computed now."""
        self.waiting: list[Op] = []
        """Ops on every column that no loop has yet."""

    # Threads

    def of_threads(self) -> Any:
        plan = self.plan
        beside = min(WARPS, plan.rows) if plan.team == WARP else 1
        block, lane, number = (tirx.Var(n, "int32") for n in ("block", "lane", "number"))
        row = block.astype(self.index) * beside + number.astype(self.index) if beside > 1 else block.astype(self.index)
        place = tirx.Var("row", self.index)
        self._row(place, lane)
        body = self.taken()
        if plan.rows % beside:  # The same for all threads of a warp.
            body = tirx.IfThenElse(tirx.LT(place, self.const(plan.rows)), body, None)
        body = tirx.SeqStmt([tirx.Bind(place, named(row)), body])
        blocks = -(-plan.rows // beside)
        axes = [(lane, plan.team, "threadIdx.x"), (number, beside, "threadIdx.y"), (block, blocks, "blockIdx.x")]
        for variable, extent, tag in axes if beside > 1 else [axes[0], axes[2]]:
            axis = tirx.IterVar(ir.Range(0, extent), variable, tirx.IterVar.ThreadIndex, tag)
            body = tirx.AttrStmt(axis, "thread_extent", tirx.IntImm("int32", extent), body)
        return body

    def of_loop(self) -> Any:
        row = tirx.Var("row", self.index)
        self._row(row, tirx.IntImm("int32", 0))
        return tirx.For(row, self.const(0), self.const(self.plan.rows), tirx.ForKind.SERIAL, self.taken())

    # Rows

    def _row(self, row: Any, lane: Any) -> None:
        """All that is done with a row."""
        self.lane = lane
        self.row = self.split(row, self.plan.shape[: self.plan.axes])
        for value in self.plan.given:
            if not self.plan.varies(value):
                self.numbers[value] = self._load(value, self._index(value, None))
        if self.plan.stays:
            self.turns = [self._turn(self.lane, number) for number in range(self.plan.turns)]
            for turn in self.turns:
                self._read(turn, self.ops)
        for op in self.ops:
            if self.plan.varies(op.result):
                self.waiting.append(op)
                continue
            self._number(op)
        self._over_columns(lambda: None)

    def _number(self, op: Op) -> None:
        """A number of the row: all threads compute it, the first stores it."""
        stored = self._value(op)
        self.numbers[op.result] = stored
        if op.result in self.plan.stored:
            store = tirx.BufferStore(self.buffers[op.result], stored, self._index(op.result, None))
            first = tirx.EQ(self.lane, tirx.IntImm("int32", 0))
            self.statements.append(tirx.IfThenElse(first, store, None) if self.plan.team > 1 else store)

    def _fold(self, op: Op, kind: str, element: Callable[[], Any]) -> Any:
        """The number that a reduction gives: threads fold their columns, then the team folds what they found."""
        dtype = COMPUTED[_reduced(op).type.dtype]
        part = tirx.decl_buffer((1,), dtype, name="part", scope="local")
        at = [tirx.IntImm("int32", 0)]
        self.statements.append(tirx.AllocBuffer(part))
        self.statements.append(tirx.BufferStore(part, reducers.identity(kind, dtype), at))

        def step() -> None:
            value = self.unwrapped(element())
            folded = reducers.combine(kind, tirx.BufferLoad(part, at), value, self.target)
            self._guarded(tirx.BufferStore(part, folded, at))

        self._over_columns(step, op)
        whole: Any = tirx.BufferLoad(part, at)
        if self.plan.team > 1:
            whole = tirx.call_extern(dtype, f"memc_team_{kind}_{dtype}", whole, tirx.IntImm("int32", self.plan.team))
        return self.bind("whole", whole)

    # Columns

    def _over_columns(self, step: Callable[[], None], last: Op | None = None) -> None:
        """The ops that wait, at every column of the thread, then `step`, which reads operands of `last`."""
        ops, self.waiting = self.waiting, []
        if not ops and last is None:
            return
        if self.plan.stays:
            self._at_turns(self.turns, ops, step)
            return
        before, self.statements = self.statements, []
        chunk = tirx.Var("chunk", "int32")
        wide = self.plan.team * TOGETHER
        first = self.bind("first", self.opaque(chunk * wide + self.lane))
        turns = [self._turn(first, number, True) for number in range(TOGETHER)]
        for turn in turns:
            self._read(turn, [*ops, *([last] if last is not None else [])])
        self._at_turns(turns, ops, step)
        chunks = -(-self.plan.columns // wide)
        self.statements = [*before, tirx.For(chunk, 0, chunks, tirx.ForKind.SERIAL, self.taken())]

    def _at_turns(self, turns: Sequence[_Turn], ops: Sequence[Op], step: Callable[[], None]) -> None:
        for turn in turns:
            self.turn = turn
            for op in ops:
                turn.known[op.result] = stored = self._value(op)
                if op.result in self.plan.stored:
                    index = self._index(op.result, turn)
                    self._guarded(tirx.BufferStore(self.buffers[op.result], stored, index))
            step()
        self.turn = None

    def _turn(self, first: Any, number: int, in_loop: bool = False) -> _Turn:
        """The thread's column `number` from its `first` on."""
        column = self.bind("column", self.opaque(first + number * self.plan.team))
        whole = self.plan.columns % (self.plan.team * (TOGETHER if in_loop else 1)) == 0
        certain = whole or not in_loop and number < self.plan.columns // self.plan.team
        inside = None if certain else tirx.LT(column, tirx.IntImm("int32", self.plan.columns))
        return _Turn(inside, self.split(column, self.plan.shape[self.plan.axes :]))

    def _read(self, turn: _Turn, ops: Sequence[Op]) -> None:
        """Read what `ops` read at a column and do not make themselves."""
        made = {op.result for op in ops}
        for operand in (v for op in ops for v in op.operands):
            if operand not in made | turn.known.keys() and splat(operand) is None and self.plan.varies(operand):
                turn.known[operand] = self._load(operand, self._index(operand, turn), turn.inside)

    # Elements

    def _value(self, op: Op) -> Any:
        """What an op gives, as it is stored: at a column, or for the row."""

        def fold(kind: str, element: Callable[[], Any]) -> Any:
            return self._fold(op, kind, element)

        builder = _RowBuilder(self.target, fold)
        inputs: list[Any] = []
        for operand in op.operands:
            literal = splat(operand)
            if literal is not None:
                inputs.append(Literal(builder.const(literal.item(), operand.type.dtype), operand.type, builder.target))
            else:
                inputs.append(_Cell(self._reader(operand), operand.type))
        (result,) = lower_body(builder, op, inputs)
        value = builder.element(result, [builder.variable(n) for n in op.result.type.shape])
        return self.bind("value", self.opaque(self.unwrapped(value)))

    def _reader(self, operand: Value) -> Callable[[], Any]:
        def read() -> Any:
            known = self.turn.known if self.turn is not None and self.plan.varies(operand) else self.numbers
            stored = known[operand]
            return bf16.value_of_bf16(stored) if operand.type.dtype is DType.BF16 else stored

        return read

    def _load(self, value: Value, index: Sequence[Any], inside: Any = None) -> Any:
        load: Any = tirx.BufferLoad(self.buffers[value], index)
        if inside is not None:
            load = tirx.if_then_else(inside, load, const(0, STORED[value.type.dtype]))
        return self.bind("read", load)

    def _index(self, value: Value, turn: _Turn | None) -> list[Any]:
        """Where the element of a value is that belongs to the row, and to a column unless it has none."""
        position = [*self.row, *(turn.position if turn is not None else [self.const(0)] * len(self.plan.shape))]
        aligned = self.plan.aligned(value)
        found = [self.const(0) if extent == 1 else position[axis] for axis, extent in enumerate(aligned)]
        return found[len(aligned) - value.type.rank :]

    def _guarded(self, statement: Any) -> None:
        inside = self.turn.inside if self.turn is not None else None
        self.statements.append(statement if inside is None else tirx.IfThenElse(inside, statement, None))


def _reduced(op: Op) -> Value:
    """What the one reduction of an op gives."""
    return next(o.result for o in inner_ops(op) if o.name.startswith("reduce_"))
