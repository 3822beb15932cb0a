# SPDX-License-Identifier: Apache-2.0
"""Whether a training step has attention as one op, which keeps no scores: where that does not raise its peak."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from memc.ir.clone import clone_module
from memc.ir.module import Module
from memc.ir.snapshot import is_raw
from memc.passes.kernels.recognize_attention import Attentions, recognize_for_training
from memc.passes.placement.alias_plan import planned_peak
from memc.passes.rewrite.canonicalize import remove_dead
from memc.passes.training.step_builder import Training


def built_with_attention(module: Module, build: Callable[[Module], Training], frozen: Sequence[str]) -> Training:
    """What `build` makes of a model, with attention as one op where the target has kernels for it and for its gradient.

    `frozen`: patterns of names of weights that are not trained. The step is built with attention written out, too, and taken so if the peak of its order of ops is lower then.
    """
    function = module.main
    if not is_raw(function) or not any(op.name == "softmax" for op in function.ops):
        return build(module)
    written_out = clone_module(module)
    found = recognize_for_training(module, function, module.target.kind, frozen)
    training = replace(build(module), attention=found)
    if not found.recognized:
        return training
    other = build(written_out)
    peaks = []
    for step in (module, written_out):
        remove_dead(step, step.main)
        peaks.append(planned_peak(step.main, module.target.alignment))
    if peaks[0] <= peaks[1]:
        return training
    module.functions, module.weights = written_out.functions, written_out.weights
    why = f"the step would need {peaks[0]:,} B for its values, and {peaks[1]:,} B with attention written out"
    return replace(other, attention=Attentions(0, (why,)))
