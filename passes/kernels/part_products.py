# SPDX-License-Identifier: Apache-2.0
"""Products of operands side by side, taken part by part in one library call.

    [a1 a2] [b1; b2]     a1 b1, then a2 b2 added to it

So what is read is the parts, and nothing as large as all of them lies side by side from the first part on: a training step
of a recurrent network makes the parts of a weight's gradient one by one. Slices of what lay side by side for a product read
the parts as well then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from memc.ir.build import IRBuilder
from memc.ir.core import FUSED, UNPLANNED, Block, Function, Op, Role, Value, replace_all_uses
from memc.ir.module import Module
from memc.ir.op_queries import depth_axis, origin_of, slice_offsets, view_offset
from memc.ir.ops.library.cuda_call import call_of
from memc.ir.ops.library.cuda_matmul import MATMUL_CUDA
from memc.ir.ops.shared.op_def import main_op
from memc.ir.snapshot import Snapshot
from memc.ir.types import DType
from memc.passes.kernels.select_kernels import library_kernel
from memc.passes.placement.alias_plan import planned_peak
from memc.passes.rewrite.canonicalize import remove_dead

LEAST_DEPTH = 128
"""The least average depth of the parts, since each part reads and writes the whole result once more."""


def part_products(module: Module, function: Function, alignment: int) -> None:
    """Part every product that this frees a concat for, where that does not raise the peak of the order of ops."""
    products = find_products(function)
    if not products:
        return
    before, peak = Snapshot.of(module, function), planned_peak(function, alignment)
    _Writer(IRBuilder(module, function, [])).write(function, products)
    remove_dead(module, function)
    read_parts(module, function)
    if planned_peak(function, alignment) > peak:
        before.restore()


def find_products(function: Function) -> dict[Op, list[int]]:
    """The products, each with the depths at which its parts end. Of each, a concat is left without readers."""
    uses, returned = function.uses(), set(function.returns)
    found = {op: ends for op in function.ops if _may_part(op) and len(ends := _ends(op)) > 1}

    def is_freed(value: Value) -> bool:
        return bool(_parts_of(value)) and value not in returned and all(user in found for user in uses[value])

    while kept := [op for op in found if not any(map(is_freed, op.operands[:2]))]:
        for op in kept:
            del found[op]
    return found


def _may_part(op: Op) -> bool:
    """Whether a library call computes, or will, one product of two matrices, whose sum is not rounded. What it writes over
    must not be read by a part that comes later: the operands are apart from states."""
    if library_kernel(op, "cuda") is not MATMUL_CUDA or op.workspace is not None:
        return False
    call = call_of(op)
    matrices = main_op(op).operands
    if call is None or any(n in (0, 1) for n in (call.bias, call.residual, call.scale)):
        return False
    plain = call.products == 1 and call.main.result.type == call.result
    if not plain or op.results[0].type.dtype is not DType.F32 or any(v.type.rank != 2 for v in matrices):
        return False
    sources = [part for v in op.operands[:2] for part in (_parts_of(v) or (v,))]
    return not any(map(_is_of_state, sources))


def _is_of_state(value: Value) -> bool:
    """Whether a value is a view of a state, or one."""
    return origin_of(value)[0].role is Role.STATE


def _parts_of(value: Value, axis: int | None = None) -> Sequence[Value]:
    """What a concat, along `axis` if given, puts side by side; nothing of other values."""
    op = value.op
    is_concat = op is not None and op.name == "concat" and axis in (None, op.attrs["axis"])
    return op.operands if op is not None and is_concat else ()


def _ends(op: Op) -> list[int]:
    """The depths at which parts of both operands end; the whole depth alone if there are too many or none."""
    depth = op.operands[0].type.shape[depth_axis(op, 0)]
    common = set(range(1, depth + 1))
    for side, value in enumerate(op.operands[:2]):
        axis = depth_axis(op, side)
        if parts := _parts_of(value, axis):
            common &= set(accumulate(part.type.shape[axis] for part in parts))
        elif axis != 0:
            return [depth]  # Its parts would be copies.
    return sorted(common) if len(common) * LEAST_DEPTH <= depth else [depth]


@dataclass
class _Writer:
    """Calls of several products in place of those of one."""

    builder: IRBuilder
    made: dict[tuple[int, tuple[Value, ...]], Value] = field(default_factory=dict)
    """Parts that are smaller ones side by side along an axis."""

    def write(self, function: Function, products: Mapping[Op, Sequence[int]]) -> None:
        """Put the parts that are not there yet in front of the first product that reads them."""
        ops: list[Op] = []
        replaced: dict[Value, Value] = {}
        for op in function.ops:
            if op in products:
                self.builder.ops, self.builder.location = ops, op.location
                sides = [self._parts(op.operands[k], depth_axis(op, k), products[op]) for k in range(2)]
                whole, op = op, parted(op, list(zip(*sides)))
                replaced[whole.result] = op.result
            ops.append(op)
        function.ops = ops
        replace_all_uses(function, replaced)

    def _parts(self, value: Value, axis: int, ends: Sequence[int]) -> list[Value]:
        starts = [0, *ends[:-1]]
        if not (whole := _parts_of(value, axis)):
            width = value.type.shape[1]
            return [
                self.builder.op("slice", [value], starts=(start, 0), stops=(end, width), steps=(1, 1))
                for start, end in zip(starts, ends)
            ]
        parts = list(zip(whole, accumulate(v.type.shape[axis] for v in whole)))
        return [
            self._joined(tuple(v for v, end in parts if start < end <= stop), axis) for start, stop in zip(starts, ends)
        ]

    def _joined(self, values: tuple[Value, ...], axis: int) -> Value:
        if len(values) == 1:
            return values[0]
        if (axis, values) not in self.made:
            self.made[axis, values] = self.builder.op("concat", values, axis=axis)
        return self.made[axis, values]


def parted(op: Op, pairs: Sequence[tuple[Value, Value]]) -> Op:
    """The op or group `op`, which begins with a product, with the sum of the products of `pairs` in its place."""
    main = main_op(op)
    steps, given = ([op], op.operands) if op.region is None else (op.region.ops, op.region.params)
    operands = [v for pair in pairs for v in pair] + op.operands[2:]
    params = [Value(f"a{i}", v.type) for i, v in enumerate(operands)]
    inner = dict(zip(given[2:], params[2 * len(pairs) :]))
    ops: list[Op] = []

    def run(like: Op, values: Sequence[Value]) -> Value:
        result = Value(str(len(ops)), main.result.type)
        plan = like.plan.inside()
        ops.append(Op(like.name, list(values), [result], dict(like.attrs), plan, location=op.location))
        return result

    total = run(main, params[:2])
    for k in range(1, len(pairs)):
        total = run(Op("add", [], []), [total, run(main, params[2 * k : 2 * k + 2])])
    inner[main.result] = total
    for step in steps[1:]:
        inner[step.result] = run(step, [inner[v] for v in step.operands])
    plan = replace(UNPLANNED if op.region is None else op.plan, library_kernel=MATMUL_CUDA.symbol)
    region = Block(params, ops, [inner[steps[-1].result]])
    return Op(FUSED, operands, [Value(op.result.name, op.result.type)], {}, plan, region, location=op.location)


def read_parts(module: Module, function: Function) -> None:
    """Give slices of a concat its parts to read, where all that reads it are such slices and each begins and ends with
    parts or lies within one. A part of a state may be overwritten by then."""
    uses, returned = function.uses(), set(function.returns)
    position = {op: index for index, op in enumerate(function.ops)}
    builder = IRBuilder(module, function, [])
    written: dict[Op, list[Op]] = {}
    replaced: dict[Value, Value] = {}
    for concat in function.ops:
        offsets = slice_offsets(concat) if concat.name == "concat" else ()
        lasting = offsets and None not in offsets and not any(map(_is_of_state, concat.operands))
        slices = _slices(concat.result, uses, returned) if lasting else None
        found = [_covered(concat, [o for o in offsets if o is not None], part) for part in slices or ()]
        if not slices or not all(found):
            continue
        joined: dict[tuple[Value, ...], Value] = {}
        for part, cover in sorted(zip(slices, found), key=lambda pair: position[pair[0]]):
            builder.ops = written.setdefault(part, [])
            builder.location = part.location
            parts = tuple(v for v, _ in cover)
            if len(parts) > 1 and parts not in joined:
                joined[parts] = builder.op("concat", parts, axis=concat.attrs["axis"])
            replaced[part.result] = _rows(builder, joined.get(parts, parts[0]), cover[0][1], part.result)
    function.ops = [new for op in function.ops for new in written.get(op, (op,))]
    replace_all_uses(function, replaced)
    remove_dead(module, function)


def _slices(value: Value, uses: Mapping[Value, Sequence[Op]], returned: set[Value]) -> list[Op] | None:
    """The slices that read a value or reshapes of it, all contiguous; None if anything else does."""
    if value in returned:
        return None
    found: list[Op] = []
    for op in dict.fromkeys(uses[value]):
        inner = _slices(op.result, uses, returned) if op.name == "reshape" else [op]
        if inner is None or op.name not in ("reshape", "slice") or view_offset(op) is None:
            return None
        found += inner
    return found


def _covered(concat: Op, offsets: Sequence[int], part: Op) -> list[tuple[Value, int]]:
    """The operands of a concat that a slice is made of, and from which byte of them on: several whole ones, or one that
    has the slice's rows in it. Empty if there are none such."""
    begin = view_offset(part)
    assert begin is not None
    type = part.result.type
    end = begin + type.nbytes
    touched = [
        (v, begin - at) for v, at in zip(concat.operands, offsets) if max(at, begin) < min(at + v.type.nbytes, end)
    ]
    if len(touched) == 1:
        row = type.nbytes // type.shape[0]
        fits = touched[0][1] % row == 0 and touched[0][0].type.nbytes % row == 0
        return touched if fits else []
    whole = bool(touched) and touched[0][1] == 0 and sum(v.type.nbytes for v, _ in touched) == type.nbytes
    return touched if whole else []


def _rows(b: IRBuilder, value: Value, begin: int, like: Value) -> Value:
    """As many bytes of `value` as `like` has, from byte `begin` on, in the shape of `like`."""
    rows, *rest = like.type.shape
    row = like.type.nbytes // rows
    shape = (value.type.nbytes // row, *rest)
    while value.type.shape != shape and value.op is not None and value.op.name == "reshape":
        value = value.op.operands[0]
    if value.type.shape != shape:
        value = b.op("reshape", [value], shape=shape)
    if value.type.nbytes == like.type.nbytes:
        return value
    start = begin // row
    whole = (0,) * len(rest)
    return b.op("slice", [value], starts=(start, *whole), stops=(start + rows, *rest), steps=(1,) * len(shape))
