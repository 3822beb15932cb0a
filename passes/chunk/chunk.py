# SPDX-License-Identifier: Apache-2.0
"""chunk: stretches of ops around large values run slice by slice, and the values exist one slice at a time.

First of all the head of a language model in training: the product with the embedding, its cross entropy, and the gradients of
both. The gradient of the loss in the logits depends on nothing behind it, so each slice of tokens makes its logits, their loss, their
gradient over them, its rows of the gradient in the hidden states, and its share of the gradient of the weight.

The slices are plain ops: views of what is read, results in their places in concats, sums added up in place. Where sums over the rows
are split that way they are rounded otherwise; the results of everything else have the same bits, as far as a library's
kernels for fewer rows add up in the same sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Optional

from memc.ir.checked_options import Alignment, Range
from memc.ir.cost_model import DEVICES, CostModel
from memc.ir.module import Module
from memc.ir.snapshot import is_raw
from memc.passes.base import Finding, LibraryTarget, Pass, alignment_of, library_target
from memc.passes.chunk.choice import Chooser, Chunked
from memc.passes.chunk.trial import By, Limits


@dataclass(frozen=True)
class Chunks(Finding):
    """What runs in slices, and what does not though it is large."""

    chosen: tuple[Chunked, ...]
    missed: tuple[str, ...]
    """Of each large value at the peak that stays whole: its name, and why."""


@dataclass(frozen=True)
class Chunk(Pass):
    """Large values one slice at a time. Never raises the peak of the order of ops."""

    name: ClassVar[str] = "chunk"
    slices: Optional[Annotated[int, Range(least=2)]] = None
    """Of each stretch; by default, the fewest that lower the peak most."""
    by: By = "auto"
    """`rows`; `classes`, of heads alone, whatever the time; `auto`, what lowers the peak more within the time."""
    slowdown: Annotated[float, Range(least=0)] = 0.05
    """The time that slices may add to a stretch in the cost model, as a share of it."""
    heads: bool = False
    """Heads of classifiers in training alone, with scores of 16 MiB or more: what levels ask for."""
    target: Optional[LibraryTarget] = None
    """The target whose library kernels ops are fused for."""
    alignment: Optional[Alignment] = None

    def apply(self, module: Module) -> Chunks:
        found: list[Chunked] = []
        missed: list[str] = []
        target, alignment = library_target(self.target, module), alignment_of(self.alignment, module)
        costs = CostModel(DEVICES[module.target.kind])
        limits = Limits(self.slices, self.slowdown, self.by, self.heads, target, alignment)
        for function in module.functions:
            if is_raw(function):
                chooser = Chooser(module, function, limits, costs)
                chooser.run()
                found += chooser.chosen
                missed += [f"%{name}: {why}" for name, why in chooser.missed.items()]
        return Chunks(tuple(found), tuple(missed))
