# SPDX-License-Identifier: Apache-2.0
"""recognize-attention: products around a softmax become one op, whose kernel stores no scores.

    softmax(scale q k^T + mask) v     attention(q, k, v, mask) {scale, axis}

The factor may be at the scores, at q or at k; the mask may be missing. Transposes that bring the heads before the
positions, and those that bring them back, are left out: `axis` says where the positions are.

Only what the target's library kernel takes is recognized, where nothing else reads the scores. `decompose` leaves such
an op alone.

Of a model that is to be trained, `attention_training` takes that place, whose gradient needs no scores. There, masks that no input
changes become a `diagonal`, or nothing; and heads of k and v that are repeated for several of q are not.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Optional

from memc.ir.build import IRBuilder
from memc.ir.checked_options import Alignment
from memc.ir.core import UNPLANNED, Function, Op, Value, fresh_names, replace_all_uses
from memc.ir.liveness import ALIGNMENT
from memc.ir.module import Module
from memc.ir.ops.shared.attention_parts import heads_first
from memc.ir.snapshot import Snapshot, is_raw
from memc.passes.base import Finding, LibraryTarget, Pass, alignment_of, library_target
from memc.passes.kernels.attention_forms import HIDDEN, Mask, MaskForm, mask_form, trainable, trained_by
from memc.passes.kernels.attention_layouts import Transposed, heads_around, is_plain, once, transposed
from memc.passes.kernels.select_kernels import library_kernel
from memc.passes.placement.alias_plan import planned_peak
from memc.passes.rewrite.canonicalize import remove_dead
from memc.passes.rewrite.recognize import constant_number


@dataclass(frozen=True)
class _Pattern:
    """Attention as it was found; `result` is [heads..., positions, columns] too."""

    q: Transposed
    k: Transposed
    v: Transposed
    mask: Mask | None
    scale: float
    result: Value
    diagonal: int | None = None

    @property
    def scores(self) -> tuple[int, ...]:
        """The scores' shape."""
        return (*self.q.shape[:-1], self.k.shape[-2])


def recognize_attention(module: Module, function: Function, target: str = "cuda", alignment: int = ALIGNMENT) -> None:
    """Put attention in the place of every pattern that a library kernel of `target` can compute, unless that raises the peak
    of the function's order of ops."""
    if not any(op.name == "softmax" for op in function.ops):
        return
    before, peak = Snapshot.of(module, function), planned_peak(function, alignment)
    if not _Recognizer(module, function, target).run():
        return
    remove_dead(module, function)
    if planned_peak(function, alignment) > peak:
        before.restore()


@dataclass(frozen=True)
class Attentions(Finding):
    """What became of a model's attention."""

    recognized: int
    missed: tuple[str, ...]
    """Of each softmax before a product that was not: the name of its result, and why."""


def recognize_for_training(module: Module, function: Function, target: str, frozen: Sequence[str] = ()) -> Attentions:
    """Put `attention_training` in the place of every pattern that library kernels of `target` compute, and the gradient of.

    `frozen`: patterns of names of weights that are not trained. What nothing reads any more stays, for names and patterns that
    the caller still has to find.
    """
    found = _Recognizer(module, function, target, trainable(module, function, frozen))
    found.run()
    return Attentions(found.count, tuple(found.missed))


class _Recognizer:
    """Looks for the pattern in one function, and rewrites it."""

    def __init__(
        self, module: Module, function: Function, target: str, trained: Collection[Value] | None = None
    ) -> None:
        self.module = module
        self.function = function
        self.target = target
        self.training = trained is not None
        self.trained = trained or ()
        self.count = 0
        self.missed: list[str] = []
        self.factors: set[Value] = set()
        """Factors that are trained."""
        self.forms: dict[tuple[Mask, tuple[int, ...]], MaskForm | None] = {}
        self.alone: Collection[Value] = function.read_once()
        self.uses: Mapping[Value, Sequence[Op]] = function.uses()
        self.names = fresh_names(v.name for v in function.values())

    def run(self) -> bool:
        """Whether anything was found."""
        replaced: dict[Value, Value] = {}
        ops: list[Op] = []
        for op in self.function.ops:
            ops.append(op)
            found = self.match(op)
            made = self.write(found, replaced, op.location) if found is not None else []
            self.count += bool(made)
            if found is not None and not made:
                self.miss(op, f"no kernel of {self.target} takes it")
            ops += made
        self.function.ops = ops
        replace_all_uses(self.function, replaced)
        return bool(replaced)

    def match(self, op: Op) -> _Pattern | None:
        """The pattern whose last product is `op`."""
        if not is_plain(op, "matmul") or any(op.attrs.values()):
            return None
        weights, v = op.operands
        softmax = self.maker(weights, "softmax")
        if softmax is None or softmax.attrs["axis"] != weights.type.rank - 1:
            self.miss_weights(op, weights)
            return None
        self.factors.clear()
        found = self.scored(softmax, v, op)
        if found is None:
            self.miss(op, self.why(softmax.operands[0]))
        if found is None or found.mask is None or not self.training:
            return found
        return self.simpler(found, found.mask, op)

    def simpler(self, found: _Pattern, mask: Mask, op: Op) -> _Pattern | None:
        """With what a mask does in place of it, where that is known; None for one that no kernel takes."""
        name, weight = mask.value.name, trained_by(mask.value, self.trained)
        if weight is not None:
            self.miss(op, f"the mask %{name} is of the weight %{weight.name}, which is trained; freeze it")
            return None
        form = self.form(mask, found.scores)
        if form is not None:
            return replace(found, mask=None, diagonal=form.diagonal)
        if mask.number > -math.inf:
            self.miss(op, f"the mask %{name} hides keys by {mask.number:g}, not -inf: without a key, a query sees all")
            return None
        return found

    def miss_weights(self, op: Op, weights: Value) -> None:
        """Note why a product with what a softmax made, or what dropout left of it, is none of this."""
        made = weights.op
        if made is not None and made.name == "dropout":
            source = made.operands[0].op
            if source is not None and source.name == "softmax":
                self.miss(op, f"%{weights.name} is what dropout leaves of the weights")
        elif made is not None and made.name == "softmax":
            self.miss(op, f"%{weights.name} is read elsewhere, or is no softmax of the last axis")

    def why(self, scores: Value) -> str:
        if self.factors:
            names = ", ".join(sorted(f"%{v.name}" for v in self.factors))
            return f"the scores %{scores.name} have a factor that is trained, {names}; freeze it"
        return f"the scores %{scores.name} are no product of q and k that it alone reads, with a factor and a mask"

    def miss(self, op: Op, why: str) -> None:
        self.missed.append(f"%{op.result.name}: {why}")

    def form(self, mask: Mask, scores: tuple[int, ...]) -> MaskForm | None:
        """What a mask does, where that is known; many layers share one."""
        if (mask, scores) not in self.forms:
            self.forms[mask, scores] = mask_form(self.module, self.trained, mask, *scores[-2:])
        return self.forms[mask, scores]

    def scored(self, softmax: Op, v: Value, op: Op) -> _Pattern | None:
        """The pattern of a softmax and the product with v that reads it."""
        for scores, mask in self.masked(softmax.operands[0]):
            inner, scale = self.scaled(scores, alone=True)
            product = self.maker(inner, "matmul")
            if product is None or product.attrs.get("transpose_a"):
                continue
            (q, of_q), (k, of_k) = (self.scaled(x) for x in product.operands)
            crossed = not product.attrs.get("transpose_b", False)
            operands = transposed(q), transposed(k, crossed), transposed(v)
            types = {x.type.dtype for x in (q, k, v, scores)}
            if len({x.shape[:-2] for x in operands}) == len(types) == 1:
                found = _Pattern(*operands, mask, scale * of_q * of_k, op.result)
                return self.sharing(found) if self.training else found
        return None

    def sharing(self, found: _Pattern) -> _Pattern:
        """With k and v as they were before their heads were repeated, if both were."""
        k, v = (once(x) for x in (found.k, found.v))
        if k is None or v is None or k.shape[:-2] != v.shape[:-2]:
            return found
        return replace(found, k=k, v=v)

    def masked(self, scores: Value) -> list[tuple[Value, Mask | None]]:
        """Scores and mask of a sum, either way round, or of a choice between them and a number; or the scores alone."""
        add = self.maker(scores, "add")
        if add is not None:
            a, b = add.operands
            return [(x, Mask(mask)) for x, mask in ((a, b), (b, a)) if x.type == scores.type]
        choice = self.maker(scores, "select") if self.training else None
        if choice is None:
            return [(scores, None)]
        condition, a, b = choice.operands
        found: list[tuple[Value, Mask | None]] = []
        for x, other in ((a, b), (b, a)):
            number = self.number(other)
            if number is not None and number <= HIDDEN and x.type == scores.type:
                found.append((x, Mask(condition, x is b, number)))
        return found

    def maker(self, value: Value, name: str) -> Op | None:
        """The op that makes a value for one reader, if it is of that name and says nothing more than it must."""
        op = value.op
        return op if op is not None and value in self.alone and is_plain(op, name) else None

    def scaled(self, value: Value, alone: bool = False) -> tuple[Value, float]:
        """What a value is a multiple of, and the factor. `alone`: through values with one reader only."""
        factor = 1.0
        while (
            value.op is not None
            and not value.op.attrs
            and value.op.plan == UNPLANNED
            and not (alone and value not in self.alone)
        ):
            op = value.op
            pairs = {"mul": [(0, 1), (1, 0)], "div": [(0, 1)]}.get(op.name, [])
            known = [(op.operands[x], self.number(op.operands[n])) for x, n in pairs]
            fitting = [(x, n) for x, n in known if n and x.type == value.type]
            if not fitting:
                break
            value, number = fitting[0]
            factor = factor * number if op.name == "mul" else factor / number
        return value, factor

    def number(self, value: Value) -> float | None:
        """What a constant of one element holds; a stored one that may be trained is none."""
        number = constant_number(self.module, value)
        if number is not None and value in self.trained:
            self.factors.add(value)
            return None
        return number

    def write(self, found: _Pattern, replaced: dict[Value, Value], location: str | None) -> list[Op]:
        """Attention in the place of its last product, or of the transpose that follows; nothing where there is no kernel."""
        b = IRBuilder(self.module, self.function, [], self.names, location)
        parts = (found.q, found.k, found.v)
        result, axis = found.result, found.result.type.rank - 2
        heads = [x for x in map(heads_around, parts) if x is not None]
        back = self.back(result, heads[0].axis) if len(heads) == 3 and len({x.axis for x in heads}) == 1 else None
        if back is not None:
            result, axis = back, heads[0].axis
            operands = [_reshaped(b, x.source, x.shape) for x in heads]
        else:
            operands = [_moved(b, x.source, x.perm) for x in parts]
        if found.mask is not None:
            mask = found.mask.value
            operands.append(b.op("logical_not", [mask]) if found.mask.hides else mask)
        hidden = {} if found.diagonal is None else {"diagonal": found.diagonal}
        name = "attention_training" if self.training else "attention"
        made = b.multi(name, operands, axis=axis, scale=found.scale, **hidden)
        kernel = library_kernel(made, self.target)
        if kernel is None or (self.training and not self.has_gradient(made)):
            return []
        made.plan = replace(made.plan, library_kernel=kernel.symbol)
        replaced[result] = made.results[0]
        return b.ops

    def has_gradient(self, made: Op) -> bool:
        """Whether a kernel computes the gradient, too."""
        result, log_sum = made.results
        scratch = IRBuilder(self.module, self.function, [], iter(("of_q", "of_k", "of_v")))
        back = scratch.multi("attention_grad", [*made.operands, log_sum, log_sum, result], **made.attrs)
        return library_kernel(back, self.target) is not None

    def back(self, result: Value, axis: int) -> Value | None:
        """What has the positions at `axis` again: the result, or the transpose that alone reads it."""
        rank = result.type.rank
        if axis == rank - 2:
            return result
        perm = heads_first(rank, axis)
        if result not in self.alone:
            return None
        (reader,) = self.uses[result]
        if not is_plain(reader, "transpose"):
            return None
        return reader.result if reader.attrs["perm"] == tuple(perm.index(d) for d in range(rank)) else None


def _reshaped(b: IRBuilder, value: Value, shape: tuple[int, ...]) -> Value:
    return value if value.type.shape == shape else b.op("reshape", [value], shape=shape)


def _moved(b: IRBuilder, value: Value, perm: tuple[int, ...]) -> Value:
    return value if perm == tuple(range(len(perm))) else b.op("transpose", [value], perm=perm)


@dataclass(frozen=True)
class RecognizeAttention(Pass):
    """Attention as one op, where the target has a kernel for it. Never raises the peak."""

    name: ClassVar[str] = "recognize-attention"
    target: Optional[LibraryTarget] = None
    alignment: Optional[Alignment] = None

    def apply(self, module: Module) -> None:
        for function in module.functions:
            if is_raw(function):
                recognize_attention(
                    module, function, library_target(self.target, module), alignment_of(self.alignment, module)
                )
