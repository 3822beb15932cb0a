# SPDX-License-Identifier: Apache-2.0
"""fuse-library: what a library kernel computes in the same call joins its op, and what it does not leaves it.

A convolution or product takes in the bias, residual and ReLU that follow it at once and that only one op reads, as far
as the library has a kernel for them all. A product that is the gradient of a weight takes in the update of that weight
(`early_updates.py`). Products of operands side by side are taken part by part (`part_products.py`). Any other bias of a
convolution becomes an `add`, which later fuses with what comes next: alone, it would be a pass over memory of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Optional

import numpy as np

from memc.ir.build import IRBuilder
from memc.ir.checked_options import Alignment
from memc.ir.core import Function, Op, Value, replace_all_uses
from memc.ir.module import Module
from memc.ir.ops.library.cuda_call import BIASED, call_of
from memc.ir.ops.shared.layout import base_name, is_channels_last
from memc.ir.ops.shared.op_def import lookup
from memc.ir.snapshot import Snapshot, is_raw
from memc.ir.types import TensorType
from memc.passes.base import LibraryTarget, Pass, alignment_of, library_target
from memc.passes.kernels.early_updates import move_updates
from memc.passes.kernels.fused_groups import Group, fused_op, rewrite
from memc.passes.kernels.part_products import part_products
from memc.passes.kernels.select_kernels import library_kernel
from memc.passes.placement.alias_plan import planned_peak

LONGEST = 4
"""Ops of the longest group: main op, bias, residual, ReLU; or main op, scale, residual, assignment."""


def fuse_library(module: Module, function: Function, target: str, alignment: int) -> None:
    """Form the groups and split the biases off, without early updates or not at all where that would raise the peak."""
    peak = planned_peak(function, alignment)
    before = Snapshot.of(module, function)
    for early in (True, False):
        if early:
            move_updates(module, function, target)
        form_groups(module, function, target)
        if before.is_current() or planned_peak(function, alignment) <= peak:
            break
        before.restore()
    if target == "cuda":
        part_products(module, function, alignment)


def form_groups(module: Module, function: Function, target: str) -> None:
    """Groups of ops that follow one another, as library calls; biases of other convolutions as ops of their own."""
    round_before_biases(module, function, target)
    groups = find_groups(function, target)
    if target == "cuda":
        add_biases(module, function, groups)
    rewrite(function, groups)
    for op in function.ops:
        is_new = op.region is not None and op.plan.library_kernel is None
        kernel = library_kernel(op, target) if is_new else None
        if kernel is not None:
            op.plan = replace(op.plan, library_kernel=kernel.symbol)
    if target == "cuda":  # Others add a bias to what they have in registers.
        split_biases(module, function, target)


def find_groups(function: Function, target: str) -> list[Group]:
    """The groups, by position. A group's ops follow one another, so that nothing lives longer by it."""
    uses, returned = function.uses(), set(function.returns)
    order = [op for op in function.ops if op.name != "constant"]
    groups: list[Group] = []
    taken: set[Op] = set()
    for index, op in enumerate(order):
        if op.region is not None or not takes_groups(op, target):
            continue
        found: Group | None = None
        chain = [op]
        for following in order[index + 1 :]:
            result = chain[-1].result
            single = following.region is None and len(following.results) == 1
            if not single or result in returned or set(uses[result]) != {following}:
                break
            chain.append(following)
            if sum(each.name != "cast" for each in chain) > LONGEST:
                break
            group = Group(list(chain), set(chain))
            if library_kernel(fused_op(group), target) is not None:
                found = group
        if found is not None and not taken & found.inside:
            taken |= found.inside
            groups.append(found)
    return groups


def takes_groups(op: Op, target: str) -> bool:
    """Whether a library kernel of `target` takes groups that begin with such an op; maybe none takes it alone, as those of
    convolutions of halves, which round."""
    definition = lookup(op.name)
    return definition is not None and any(k.target == target and k.groups for k in definition.library)


def add_biases(module: Module, function: Function, groups: Sequence[Group]) -> None:
    """Give the convolutions with ReLU that have none a bias of zeros: the library has no kernel without."""
    builder = IRBuilder(module, function, [])
    zeros: dict[TensorType, Value] = {}
    for group in groups:
        main = group.ops[0]
        call = (
            call_of(fused_op(group)) if base_name(main) == "conv" else None
        )  # Whose ReLU has no kernel without a bias.
        if call is None or call.bias is not None or not call.relu:
            continue
        type = TensorType(main.operands[0].type.dtype, (main.operands[1].type.shape[0],))
        if type not in zeros:
            zeros[type] = builder.constant(np.zeros(type.shape, type.dtype.numpy), f"zeros.{type.elements}")
        main.operands = [*main.operands, zeros[type]]
    function.ops = [*builder.ops, *function.ops]


def split_biases(module: Module, function: Function, target: str) -> None:
    """Make an `add` of every bias of a convolution that a library kernel computes."""
    builder = IRBuilder(module, function, [])
    replaced: dict[Value, Value] = {}
    ops: list[Op] = []
    for op in function.ops:
        if op.name not in BIASED or len(op.operands) < 3 or library_kernel(op, target) is None:
            ops.append(op)
            continue
        builder.ops, builder.location = ops, op.location
        x, w, bias = op.operands
        value = builder.op(op.name, [x, w], op.plan, **op.attrs)
        replaced[op.result] = builder.op("add", [value, spread(builder, bias, op)])
        replaced[op.result].name = op.result.name
    function.ops = ops
    replace_all_uses(function, replaced)


def spread(b: IRBuilder, bias: Value, main: Op) -> Value:
    """The bias of a convolution, shaped to broadcast against its result."""
    if is_channels_last(main):
        return bias
    return b.op("reshape", [bias], shape=(bias.type.elements, *[1] * (main.result.type.rank - 2)))


def round_before_biases(module: Module, function: Function, target: str) -> None:
    """Take the bias out of each convolution of halves that a library kernel can round: an `add` of halves behind the cast,
    which joins the call again if ReLU follows."""
    uses, returned = function.uses(), set(function.returns)
    builder = IRBuilder(module, function, [])
    biases: dict[Op, Value] = {}
    replaced: dict[Value, Value] = {}
    for op in function.ops:
        builder.location = op.location
        readers = uses.get(op.result, []) if len(op.results) == 1 else []
        cast = readers[0] if len(readers) == 1 and op.result not in returned else None
        if op.name in BIASED and len(op.operands) == 3 and cast is not None and cast.name == "cast":
            *op.operands, bias = op.operands
            if library_kernel(fused_op(Group([op, cast], {op, cast})), target) is not None:
                biases[cast] = spread(builder, bias, op)
            else:
                op.operands = [*op.operands, bias]
        builder.ops.append(op)
        if op in biases:
            replaced[op.result] = builder.op("add", [op.result, biases[op]])
    function.ops = builder.ops
    added = {value.op for value in replaced.values()}
    for op in function.ops:
        if op not in added:
            op.operands = [replaced.get(v, v) for v in op.operands]
    function.returns = [replaced.get(v, v) for v in function.returns]


@dataclass(frozen=True)
class FuseLibrary(Pass):
    """Bias, residual and ReLU in the library's own kernels. Never raises the peak."""

    name: ClassVar[str] = "fuse-library"
    target: Optional[LibraryTarget] = None
    """The target whose library kernels may be used."""
    alignment: Optional[Alignment] = None

    def apply(self, module: Module) -> None:
        for function in module.functions:
            if is_raw(function):
                fuse_library(
                    module, function, library_target(self.target, module), alignment_of(self.alignment, module)
                )
