# SPDX-License-Identifier: Apache-2.0
"""channels-last: images between convolutions on tensor cores keep their channels last in memory.

Tensor cores read factors along the channels. Of images with channels first the library makes copies, and of its result another
one, at each call. Here all ops between such convolutions take channels last (`conv_channels_last` and others, whose types say
so), weights are laid out alike when the artifact is made, and transposes remain where other ops begin, if there is a gain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Optional

from memc.ir.build import IRBuilder
from memc.ir.checked_options import Alignment
from memc.ir.core import Function, Op, Role
from memc.ir.module import Module
from memc.ir.ops.shared.layout import is_channels_last
from memc.ir.ops.shared.op_def import inner_ops
from memc.ir.snapshot import Snapshot, is_raw
from memc.passes.base import LibraryTarget, Pass, alignment_of, library_target
from memc.passes.layout.layout_choice import choose_last
from memc.passes.layout.layout_forms import LayoutWriter
from memc.passes.placement.alias_plan import planned_peak
from memc.passes.rewrite.canonicalize import remove_dead

MORE = 0.005
"""By which share of all bytes weights may grow: by channels that are filled up, and by one that is needed in both layouts;"""
FEW = 1 << 16
"""and by so many bytes in any case."""


def channels_last(module: Module, function: Function, tf32: bool, training: bool, alignment: int) -> None:
    """Rewrite the ops that gain by it, unless that raises the peak, small workspaces aside, or makes weights much larger;
    `training`: those of steps of training, too."""
    if not training and any(op.name == "conv_grad_weight" for op in function.ops):
        return
    chosen = choose_last(module, function, tf32)
    if not chosen:
        return
    peak, weights = planned_peak(function, alignment), _weight_bytes(function)
    before = Snapshot.of(module, function)
    write_last(module, function, chosen)
    more = _weight_bytes(function) - weights
    if planned_peak(function, alignment) > peak or more > max(FEW, MORE * (peak + weights)):
        before.restore()


def _weight_bytes(function: Function) -> int:
    """Of weights and constants."""
    constants = (op.result for op in function.ops if op.name == "constant")
    return sum(v.type.nbytes for v in (*function.params_of(Role.WEIGHT), *constants))


def write_last(module: Module, function: Function, chosen: set[Op]) -> None:
    """Write the ops of `chosen` for channels last, with transposes to and from the others."""
    writer = LayoutWriter(IRBuilder(module, function, []), set(function.returns))
    for op in function.ops:
        if op in chosen:
            writer.write(op)
        else:
            writer.builder.location = op.location
            op.operands = [writer.as_first(v) for v in op.operands]
            writer.builder.ops.append(op)
    function.returns = [writer.as_first(v) for v in function.returns]
    function.ops = writer.builder.ops
    remove_dead(module, function)


def has_channels_last(module: Module) -> bool:
    """Whether an op of the module has its channels last."""
    ops = (inner for function in module.functions for op in function.ops for inner in inner_ops(op))
    return any(map(is_channels_last, ops))


@dataclass(frozen=True)
class ChannelsLast(Pass):
    """Images with their channels last between convolutions on tensor cores."""

    name: ClassVar[str] = "channels-last"
    target: Optional[LibraryTarget] = None
    """The target whose library kernels may be used: `cuda`, or there is nothing to gain."""
    tf32: bool = False
    """Whether convolutions of f32 will round their factors to TF32; else only those of halves are on tensor cores."""
    training: bool = False
    """Whether functions with gradients of weights are rewritten."""
    alignment: Optional[Alignment] = None

    def apply(self, module: Module) -> None:
        if library_target(self.target, module) != "cuda":
            return
        for function in module.functions:
            if is_raw(function):
                channels_last(module, function, self.tf32, self.training, alignment_of(self.alignment, module))
