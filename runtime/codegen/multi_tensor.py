# SPDX-License-Identifier: Apache-2.0
"""A multi-tensor kernel, of ops on tensors of many sizes as `join-updates` found them: its blocks are divided among the tensors.

Lanes that do the same to their tensors share code in the kernel. Tables hold how many elements each has and where its tensors
lie: the kernel is given the whole arena and weight slab, and every address in them is known. A block takes
`CHUNK` elements of one lane.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tvm import ir, tirx

from memc.ir.core import Block, Op, Value
from memc.ir.types import DType, TensorType
from memc.runtime.codegen import bf16
from memc.runtime.codegen.expressions import STORED, const, dtype_of
from memc.runtime.codegen.lower_op import kernel_key, literal_key, lower_body, splat
from memc.runtime.codegen.te_builder import Literal, TEBuilder

THREADS = 256

TOGETHER = 4
"""Elements that a thread reads before it writes one: reads that follow a write wait for it."""

CHUNK = 16 * THREADS
"""Elements for a block."""


@dataclass(frozen=True)
class Place:
    """Where a value lies."""

    storage: Any
    """The arena, the weight slab, or a tensor that is given by itself: anything that can be compared."""
    offset: int
    """Bytes."""


@dataclass(frozen=True)
class LaneTensor:
    """What a lane reads or writes at an element, or reads as a number that all elements share."""

    storage: Any
    dtype: DType
    is_number: bool


@dataclass
class Kind:
    """The lanes with one code."""

    ops: list[Op]
    """The ops of the first lane, on tensors of rank 1."""
    tensors: list[LaneTensor]
    """What the operands and results are, first uses first."""
    numbers: list[tuple[list[int | None], int]]
    """The tensors of each op's operands, None for a literal, and of its result."""
    literals: list[list[Any]]
    elements: list[int] = field(default_factory=list)
    """The elements of each lane's tensors."""
    offsets: list[list[int]] = field(default_factory=list)
    """The offsets of each lane's operands and results, in elements of their type."""

    @property
    def starts(self) -> list[int]:
        """The first block of each lane, and how many blocks there are."""
        found = [0]
        for elements in self.elements:
            found.append(found[-1] - (-elements // CHUNK))
        return found


def kinds_of(lanes: Sequence[Sequence[Op]], place: Callable[[Value], Place]) -> list[Kind]:
    """The lanes by what they do, in order of the first of each."""
    found: dict[Any, Kind] = {}
    for ops in lanes:
        tensors: dict[tuple[LaneTensor, int], int] = {}
        numbers: list[tuple[list[int | None], int]] = []
        for op in ops:
            read = [None if splat(v) is not None else _number(tensors, v, op, place) for v in op.operands]
            numbers.append((read, _number(tensors, op.result, op, place)))
        flat = [_of_rank_one(op) for op in ops]
        kinds = [tensor for tensor, _ in tensors]
        literals = [[splat(v) for v in op.operands] for op in ops]
        key = (
            tuple(kernel_key(op, 0) for op in flat),
            tuple(literal_key(v) for op in ops for v in op.operands),
            tuple(kinds),
            tuple((tuple(read), made) for read, made in numbers),
        )
        kind = found.setdefault(key, Kind(flat, kinds, numbers, literals))
        kind.elements.append(ops[0].result.type.elements)
        kind.offsets.append([offset for _, offset in tensors])
    return list(found.values())


def _number(tensors: dict[tuple[LaneTensor, int], int], value: Value, op: Op, place: Callable[[Value], Place]) -> int:
    where, dtype = place(value), value.type.dtype
    is_number = value.type.elements == 1 != op.result.type.elements
    return tensors.setdefault(
        (LaneTensor(where.storage, dtype, is_number), where.offset // dtype.itemsize), len(tensors)
    )


def _of_rank_one(op: Op) -> Op:
    """The op on vectors and numbers: shapes do not matter to it."""
    whole = op.result.type.shape

    def flat(value: Value) -> Value:
        return Value(value.name, TensorType(value.type.dtype, (2,) if value.type.shape == whole else ()))

    if op.region is None:
        return Op(op.name, [flat(v) for v in op.operands], [flat(op.result)], dict(op.attrs))
    known = {v: flat(v) for v in op.region.values()}
    inner = [Op(o.name, [known[v] for v in o.operands], [known[o.result]], _flat_attrs(o)) for o in op.region.ops]
    region = Block([known[v] for v in op.region.params], inner, [known[v] for v in op.region.returns])
    return Op(op.name, [flat(v) for v in op.operands], [flat(op.result)], dict(op.attrs), region=region)


def _flat_attrs(op: Op) -> dict[str, Any]:
    if op.name != "constant":
        return dict(op.attrs)
    return {"value": np.asarray(op.attrs["value"]).reshape(())}


@dataclass(frozen=True)
class Element:
    """The one element of a tensor that a thread works on."""

    value: Any
    type: TensorType

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    def __getitem__(self, index: Any) -> Any:
        return self.value


@dataclass(frozen=True)
class LanesKernel:
    """A kernel and what it is given."""

    func: tirx.PrimFunc
    storages: tuple[tuple[Any, DType], ...]
    """The storages that it is given, in order, each whole as a vector of that type."""


def lower_lanes(
    lanes: Sequence[Sequence[Op]], place: Callable[[Value], Place], sizes: Callable[[Any], int], target: str
) -> LanesKernel:
    """The kernel of lanes of flat ops. `place`: where values lie; `sizes`: bytes of a storage."""
    kinds = kinds_of(lanes, place)
    buffers: dict[tuple[Any, DType], Any] = {}
    for tensor in (tensor for kind in kinds for tensor in kind.tensors):
        count = tirx.IntImm("int64", sizes(tensor.storage) // tensor.dtype.itemsize)
        if (tensor.storage, tensor.dtype) not in buffers:
            name = f"storage{len(buffers)}"
            buffers[tensor.storage, tensor.dtype] = tirx.decl_buffer((count,), STORED[tensor.dtype], name=name)
    body = _on_gpu(kinds, buffers) if target == "cuda" else _on_cpu(kinds, buffers)
    return LanesKernel(tirx.PrimFunc(list(buffers.values()), body), tuple(buffers))


def _on_gpu(kinds: Sequence[Kind], buffers: Mapping[tuple[Any, DType], Any]) -> Any:
    """Blocks of threads, the first for the lanes of the first kind and so on."""
    block, thread = tirx.Var("block", "int32"), tirx.Var("thread", "int32")
    blocks = sum(kind.starts[-1] for kind in kinds)
    body: Any = None
    end = blocks
    for kind in reversed(kinds):
        begin = end - kind.starts[-1]
        code = _KindWriter(kind, buffers, "cuda").of_threads(block - begin, thread)
        body = code if body is None else tirx.IfThenElse(block < end, code, body)
        end = begin
    for variable, extent, tag in ((thread, THREADS, "threadIdx.x"), (block, blocks, "blockIdx.x")):
        axis = tirx.IterVar(ir.Range(0, extent), variable, tirx.IterVar.ThreadIndex, tag)
        body = tirx.AttrStmt(axis, "thread_extent", tirx.IntImm("int32", extent), body)
    return body


def _on_cpu(kinds: Sequence[Kind], buffers: Mapping[tuple[Any, DType], Any]) -> Any:
    """One loop after another: one thread has nothing to share out."""
    loops = [_KindWriter(kind, buffers, "llvm").of_loop(lane) for kind in kinds for lane in range(len(kind.elements))]
    return tirx.SeqStmt(loops)


@dataclass
class _KindWriter:
    """Writes the code of lanes of one kind."""

    kind: Kind
    buffers: Mapping[tuple[Any, DType], Any]
    target: str
    statements: list[Any] = field(default_factory=list)

    def of_loop(self, lane: int) -> Any:
        """All elements of one lane."""
        place = tirx.Var("place", "int64")
        offsets = [tirx.IntImm("int64", offset) for offset in self.kind.offsets[lane]]
        self._element(self._numbers(offsets) | self._early(offsets, place, None), offsets, place, None)
        extent = tirx.IntImm("int64", self.kind.elements[lane])
        return tirx.For(place, 0, extent, tirx.ForKind.SERIAL, tirx.SeqStmt(self.statements))

    def of_threads(self, block: Any, thread: Any) -> Any:
        """What thread `thread` of block `block` of this kind does."""
        starts = self.kind.starts[:-1]
        lane = self._bind("lane", lane_of(block, starts))
        start = self._bind("start", entry(lane, starts, "int32"))
        first = self._bind("first", named((block - start).astype("int64") * CHUNK + thread.astype("int64")))
        elements = self._bind("elements", entry(lane, self.kind.elements, "int64"))
        tables = zip(*self.kind.offsets)
        offsets = [self._bind("offset", entry(lane, table, "int64")) for table in tables]
        numbers = self._numbers(offsets)
        before, self.statements = self.statements, []
        turn = tirx.Var("turn", "int32")
        begin = first + turn.astype("int64") * (THREADS * TOGETHER)
        places = [self._bind("place", named(begin + number * THREADS)) for number in range(TOGETHER)]
        inside = [tirx.LT(place, elements) for place in places]
        known = [self._early(offsets, place, within) for place, within in zip(places, inside)]
        for early, place, within in zip(known, places, inside):
            self._element(numbers | early, offsets, place, within)
        turns = CHUNK // (THREADS * TOGETHER)
        return tirx.SeqStmt([*before, tirx.For(turn, 0, turns, tirx.ForKind.SERIAL, tirx.SeqStmt(self.statements))])

    def _numbers(self, offsets: Sequence[Any]) -> dict[int, Any]:
        """What all elements share, by tensor."""
        tensors = enumerate(self.kind.tensors)
        return {n: self._load(n, offsets[n], None) for n, tensor in tensors if tensor.is_number}

    def _early(self, offsets: Sequence[Any], place: Any, inside: Any) -> dict[int, Any]:
        """What is read of an element before anything of it is written, by tensor."""
        tensors = (n for n, tensor in enumerate(self.kind.tensors) if not tensor.is_number and self._is_read_first(n))
        return {n: self._load(n, offsets[n] + place, inside) for n in tensors}

    def _is_read_first(self, tensor: int) -> bool:
        """Whether a tensor is read before it is written."""
        for operands, made in self.kind.numbers:
            if tensor in operands:
                return True
            if tensor == made:
                return False
        return False

    def _element(self, known: dict[int, Any], offsets: Sequence[Any], place: Any, inside: Any) -> None:
        """All that is done with one element; `known`: what was read, by tensor."""
        for op, (operands, made), literals in zip(self.kind.ops, self.kind.numbers, self.kind.literals):
            builder = TEBuilder(self.target)
            builder.only_loads = False
            inputs: list[Any] = []
            for tensor, value, literal in zip(operands, op.operands, literals):
                if tensor is None:
                    inputs.append(Literal(builder.const(literal.item(), value.type.dtype), value.type, builder.target))
                else:
                    inputs.append(Element(_decoded(known[tensor], value.type.dtype), value.type))
            (result,) = lower_body(builder, op, inputs)
            stored = self._unwrapped(builder.element(result, (place,)))
            known[made] = self._store(made, offsets[made] + place, stored, inside)

    def _store(self, number: int, index: Any, value: Any, inside: Any) -> Any:
        """Store a result; what the next op reads of it."""
        tensor = self.kind.tensors[number]
        if self.target == "cuda":
            value = self._bind("made", named(value))
        store = tirx.BufferStore(self.buffers[tensor.storage, tensor.dtype], value, [index])
        self.statements.append(store if inside is None else tirx.IfThenElse(inside, store, None))
        return value if self.target == "cuda" else self._load(number, index, None)

    def _load(self, number: int, index: Any, inside: Any = None) -> Any:
        tensor = self.kind.tensors[number]
        load = tirx.BufferLoad(self.buffers[tensor.storage, tensor.dtype], [index])
        if inside is not None:
            load = tirx.if_then_else(inside, load, const(0, STORED[tensor.dtype]))
        return self._bind("read", load)

    def _unwrapped(self, value: Any) -> Any:
        """An expression without the bindings around it, which become statements."""
        while isinstance(value, tirx.Let):
            self.statements.append(tirx.Bind(value.var, value.value))
            value = value.body
        return value

    def _bind(self, name: str, value: Any) -> Any:
        variable = tirx.Var(name, str(value.ty.dtype))
        self.statements.append(tirx.Bind(variable, value))
        return variable


def _decoded(stored: Any, dtype: DType) -> Any:
    return bf16.value_of_bf16(stored) if dtype is DType.BF16 else stored


def named(value: Any) -> Any:
    """A value that TVM does not write out again wherever it is used."""
    return tirx.call_extern(dtype_of(value), "memc_same", value)


def lane_of(block: Any, starts: Sequence[int]) -> Any:
    """The lane that a block belongs to: the last that starts at or before it. Threads of a warp look for it together."""
    if len(starts) == 1:
        return tirx.IntImm("int32", 0)
    return tirx.call_extern("int32", "MEMC_LANE", block, *[tirx.IntImm("int32", start) for start in starts])


def entry(lane: Any, table: Sequence[int], dtype: str) -> Any:
    """What a table says for a lane."""
    if len(set(table)) == 1:
        return tirx.IntImm(dtype, table[0])
    return tirx.call_extern(dtype, f"MEMC_ENTRY_{dtype.upper()}", lane, *[tirx.IntImm(dtype, n) for n in table])
