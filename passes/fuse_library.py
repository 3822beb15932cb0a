# SPDX-License-Identifier: Apache-2.0
"""fuse-library: what a library kernel computes in the same call joins its op, and what it does not leaves it.

A convolution or product takes in the bias, residual and ReLU that follow it at once and that only one op reads, as far
as the library has a kernel for them all. A product that is the gradient of a weight takes in the update of that weight
(`early_updates.py`). Any other bias of a convolution becomes an `add`, which later fuses with what
comes next: alone, it would be a pass over memory of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from memc.ir.build import IRBuilder
from memc.ir.core import Function, Module, Op, Value, replace_all_uses
from memc.ir.liveness import ALIGNMENT
from memc.ir.types import TensorType
from memc.passes.alias_plan import planned_peak
from memc.passes.base import Pass
from memc.passes.early_updates import move_updates
from memc.passes.fuse import Group, fused_op, rewrite
from memc.passes.select_kernels import KERNEL, library_kernel
from memc.passes.undo import Snapshot, is_raw

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
        if planned_peak(function, alignment) <= peak:
            return
        before.restore()


def form_groups(module: Module, function: Function, target: str) -> None:
    """Groups of ops that follow one another, as library calls; biases of other convolutions as ops of their own."""
    groups = find_groups(function, target)
    add_biases(module, function, groups)
    rewrite(function, groups)
    for op in function.ops:
        kernel = library_kernel(op, target) if op.region is not None and KERNEL not in op.attrs else None
        if kernel is not None:
            op.attrs[KERNEL] = kernel.symbol
    split_biases(module, function, target)


def find_groups(function: Function, target: str) -> list[Group]:
    """The groups, by position. A group's ops follow one another, so that nothing lives longer by it."""
    uses, returned = function.uses(), set(function.returns)
    order = [op for op in function.ops if op.name != "constant"]
    groups: list[Group] = []
    taken: set[Op] = set()
    for index, op in enumerate(order):
        kernel = library_kernel(op, target)
        if kernel is None or not kernel.groups or op.region is not None:
            continue
        found: Group | None = None
        chain = [op]
        for following in order[index + 1 : index + LONGEST]:
            result = chain[-1].result
            if following.region is not None or result in returned or set(uses[result]) != {following}:
                break
            chain.append(following)
            group = Group(list(chain), set(chain))
            if kernel.supports(fused_op(group)):
                found = group
        if found is not None and not taken & found.inside:
            taken |= found.inside
            groups.append(found)
    return groups


def add_biases(module: Module, function: Function, groups: Sequence[Group]) -> None:
    """Give the convolutions of the groups that have none a bias of zeros: the library has no kernel without."""
    builder = IRBuilder(module, function, [])
    zeros: dict[TensorType, Value] = {}
    for group in groups:
        main = group.ops[0]
        if main.name != "conv" or len(main.operands) > 2:
            continue
        type = TensorType(main.result.type.dtype, main.result.type.shape[1:2])
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
        if op.name not in ("conv", "conv_transpose") or len(op.operands) < 3 or library_kernel(op, target) is None:
            ops.append(op)
            continue
        builder.ops, builder.location = ops, op.location
        x, w, bias = op.operands
        value = builder.op(op.name, [x, w], **op.attrs)
        spread: Sequence[int] = (bias.type.elements, *[1] * (x.type.rank - 2))
        replaced[op.result] = builder.op("add", [value, builder.op("reshape", [bias], shape=tuple(spread))])
        replaced[op.result].name = op.result.name
    function.ops = ops
    replace_all_uses(function, replaced)


@dataclass(frozen=True)
class FuseLibrary(Pass):
    """Bias, residual and ReLU in the library's own kernels. Never raises the peak."""

    name: ClassVar[str] = "fuse-library"
    target: Literal["llvm", "cuda", "none"] = "cuda"
    """The target whose library kernels may be used."""
    alignment: int = ALIGNMENT

    def apply(self, module: Module) -> None:
        for function in module.functions:
            if is_raw(function):
                fuse_library(module, function, self.target, self.alignment)
