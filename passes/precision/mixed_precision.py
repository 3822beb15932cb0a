# SPDX-License-Identifier: Apache-2.0
"""mixed-precision: products, and what lies between them, in half precision.

What a product gives is rounded to half precision, and stays so through pointwise ops, pools, normalizations and moves of
data, up to an op that wants f32 (`precision_rules.py`), which reads it by a cast of its own that later fuses with it.
Inputs, outputs and, for training, weights keep their types.

An op of which only some operands are half follows the larger ones. Where the others are smaller and follow from half
values or numbers (statistics of rows, masks of integers), it computes in f32 and its result is rounded. Where they are as
large, or of unknown range (inputs in f32, constants that half precision does not have), the result is f32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import ClassVar, Literal

import numpy as np

from memc.ir.build import IRBuilder
from memc.ir.core import Array, Function, Op, OpPlan, Role, Value
from memc.ir.module import Module
from memc.ir.op_queries import has
from memc.ir.ops.shared.casts import PRODUCTS
from memc.ir.ops.shared.op_def import Trait, lookup
from memc.ir.snapshot import is_raw
from memc.ir.types import DType
from memc.passes.base import Pass
from memc.passes.kernels.select_kernels import library_kernel
from memc.passes.precision import precision_rules as rules
from memc.passes.rewrite.canonicalize import remove_dead
from memc.passes.rewrite.recognize import recognize

HalfName = Literal["f16", "bf16"]


class Grade(Enum):
    """What is known of an f32 value that is not half."""

    NUMBERS = auto()
    """Constants that half precision has, or moved ones."""
    MODERATE = auto()
    """Computed from half values, integers and NUMBERS."""
    WIDE = auto()
    """Values of unknown range."""


@dataclass
class _Rewriter:
    """One function being rewritten."""

    module: Module
    function: Function
    to: DType
    keep: bool
    """Weights stay f32 and are rounded at each run."""
    builder: IRBuilder
    half: dict[Value, Value] = field(default_factory=dict)
    """What stands for an f32 value in half precision. Nothing reads the f32 value itself then."""
    rounded: dict[Value, Value] = field(default_factory=dict)
    """Half copies of other values."""
    grades: dict[Value, Grade] = field(default_factory=dict)
    replaced: dict[Value, Value] = field(default_factory=dict)
    """Results of ops that stand for those of replaced ops."""
    widenings: int = 0

    def run(self) -> None:
        for param in self.function.params:
            data = self.module.weights.get(param.name) if param.role is Role.WEIGHT else None
            number = param.role is Role.WEIGHT and (data is None or self.fits(data))
            self.grades[param] = Grade.NUMBERS if number else Grade.WIDE
        for op in self.function.ops:
            self.builder.location = op.location
            op.operands = [self.replaced.get(v, v) for v in op.operands]
            self.rewrite(op)
        self.function.ops = self.builder.ops
        self.function.returns = [self.wide(self.replaced.get(v, v)) for v in self.function.returns]

    def rewrite(self, op: Op) -> None:
        """Append what computes `op`."""
        floats = [v for v in op.operands if v.type.dtype.is_float]
        plain = lookup(op.name) is not None and op.region is None and all(v.type.dtype is DType.F32 for v in floats)
        if op.name == "constant":
            data = op.attrs["value"]
            assert isinstance(data, np.ndarray)
            self.grades[op.result] = Grade.NUMBERS if self.fits(data) else Grade.WIDE
            self.builder.ops.append(op)
        elif plain and floats and op.name in PRODUCTS and not any(self.is_wide_constant(v) for v in floats):
            op.operands = [self.narrow(v) for v in op.operands]
            self.builder.ops.append(op)
            self.round_result(op)
        elif plain and op.name == "attention_training":
            self.attend(op)
        elif plain and op.name in rules.NORMS and op.operands[0] in self.half:
            self.remade(op, [self.half[op.operands[0]], *(self.wide(v) for v in op.operands[1:])])
        elif plain and floats and op.name in rules.WIDENED and self.to is DType.BF16:
            narrowed = op.operands[0] in self.half
            self.stay(op)
            if narrowed:
                self.round_result(op)
        elif plain and floats and op.name in rules.FOLLOWERS and not rules.is_square(op) and self.pads_in_range(op):
            self.follow(op, floats)
        else:
            self.stay(op)

    def attend(self, op: Op) -> None:
        """Attention of half queries, keys and values where a kernel of the target takes them; a mask stays as it is."""
        operands = [*(self.narrow(v) for v in op.operands[:3]), *(self.wide(v) for v in op.operands[3:])]
        scratch = IRBuilder(self.module, self.function, [], iter(("result", "log_sum")))
        if library_kernel(scratch.multi(op.name, operands, **op.attrs), self.module.target.kind) is None:
            self.stay(op)
        else:
            self.remade(op, operands)

    def follow(self, op: Op, floats: Sequence[Value]) -> None:
        """An op that is half if what it reads is."""
        others = [v for v in floats if v not in self.half]
        numbers = all(self.grades.get(v) is Grade.NUMBERS for v in others)
        if len(others) < len(floats) and numbers:
            self.remade(op, [self.narrow(v) if v in floats else v for v in op.operands])
        elif len(others) == len(floats):
            self.follow_numbers(op, numbers)
        else:
            self.stay(op)
            result = op.result
            smaller = all(v.type.elements < result.type.elements for v in others)
            if has(op, Trait.ELEMENTWISE) and smaller and self.grades[result] is Grade.MODERATE:
                self.round_result(op)

    def follow_numbers(self, op: Op, numbers: bool) -> None:
        """An op without half operands: stays, but that rows picked from a table of constants are half from then on."""
        picked = numbers and op.name in rules.MOVES and any(not v.type.dtype.is_float for v in op.operands)
        if picked and not self.keep:
            self.remade(op, [self.narrow(v) if v.type.dtype.is_float else v for v in op.operands])
            return
        self.stay(op)
        if picked:
            self.round_result(op)
        elif numbers and op.name in rules.MOVES:
            self.grades[op.result] = Grade.NUMBERS

    def stay(self, op: Op) -> None:
        """The op in f32."""
        op.operands = [self.wide(v) for v in op.operands]
        self.builder.ops.append(op)
        known = [
            self.grades.get(v, Grade.WIDE) for v in op.operands if v.type.dtype.is_float and not self.is_widened(v)
        ]
        wide = Grade.WIDE in known and op.name not in rules.BOUNDED
        self.grades.update((v, Grade.WIDE if wide else Grade.MODERATE) for v in op.results)

    def remade(self, op: Op, operands: Sequence[Value]) -> None:
        """The op with half operands, and half results where it makes such."""
        made = self.builder.multi(op.name, operands, op.plan, **op.attrs)
        for old, new in zip(op.results, made.results):
            new.name = old.name
            if new.type.dtype is self.to:
                self.half[old] = new
            else:
                self.replaced[old] = new
                self.grades[new] = Grade.MODERATE

    def round_result(self, op: Op) -> None:
        self.half[op.result] = self.builder.op("cast", [op.result], to=self.to)

    def narrow(self, value: Value) -> Value:
        """The value in half precision."""
        if value in self.half:
            return self.half[value]
        if value not in self.rounded:
            data = self.data(value)
            if data is not None:
                name = f"{value.name}.{self.to.value}"
                self.rounded[value] = self.builder.constant(data.astype(self.to.numpy), name)
            else:
                self.rounded[value] = self.builder.op("cast", [value], to=self.to)
                if value.op is None:
                    self.put_before_product()
        return self.rounded[value]

    def put_before_product(self) -> None:
        """Move the cast of a parameter, just made, in front of a product and its rounding, if those are right before it: what
        follows a product at once, such as a bias, may join it."""
        ops = self.builder.ops
        if len(ops) > 2 and ops[-2].name == "cast" and ops[-2].operands[0].op is ops[-3] and ops[-3].name in PRODUCTS:
            ops.insert(-2, ops.pop())

    def wide(self, value: Value) -> Value:
        """The value as other than half ops read it: by a cast for this reader alone, which fuses with it. A backward pass
        recomputes it."""
        if value not in self.half:
            return value
        self.widenings += 1
        # Of two numbers, so that it differs from the recomputations of gradients.
        plan = OpPlan(mirror=int(self.keep), recompute=(0, self.widenings))
        return self.builder.op("cast", [self.half[value]], plan, to=DType.F32)

    def is_widened(self, value: Value) -> bool:
        return value.op is not None and value.op.name == "cast" and value.op.operands[0].type.dtype is self.to

    def data(self, value: Value) -> Array | None:
        """What a constant holds, where it may be rounded now: not for a weight that training changes."""
        if value.op is not None:
            found = value.op.attrs["value"] if value.op.name == "constant" else None
            return found if isinstance(found, np.ndarray) else None
        return self.module.weights.get(value.name) if value.role is Role.WEIGHT and not self.keep else None

    def fits(self, data: Array) -> bool:
        return data.dtype != np.float32 or rules.fits(data, self.to)

    def is_wide_constant(self, value: Value) -> bool:
        constant = value.role is Role.WEIGHT or (value.op is not None and value.op.name == "constant")
        return constant and self.grades.get(value) is Grade.WIDE

    def pads_in_range(self, op: Op) -> bool:
        value = rules.pads_with(op)
        return value is None or self.fits(np.full(1, value, np.float32))


def mixed_precision(module: Module, function: Function, to: DType, keep: bool) -> None:
    """Rewrite a function that computes in f32. `keep`: weights stay f32, for training."""
    recognize(module, function)
    _Rewriter(module, function, to, keep, IRBuilder(module, function, [])).run()
    remove_dead(module, function)


@dataclass(frozen=True)
class MixedPrecision(Pass):
    """Products, and what lies between them, in f16 or bf16; what needs range or long sums in f32."""

    name: ClassVar[str] = "mixed-precision"
    to: HalfName = "bf16"
    weights: Literal["convert", "keep"] = "convert"
    """`keep`: they stay f32 and are rounded at each run, for a training step that is made of the function then."""

    def apply(self, module: Module) -> None:
        for function in module.functions:
            if is_raw(function):
                mixed_precision(module, function, DType(self.to), self.weights == "keep")
