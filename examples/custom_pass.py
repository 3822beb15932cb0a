# SPDX-License-Identifier: Apache-2.0
"""A pass of one's own, run through memc's pass manager.

    python examples/custom_pass.py

A package makes such a pass known to `memc opt -p` and `memc compile --pass-pipeline` by an entry point of its name:

    [project.entry-points."memc.passes"]
    sink = "my_package.my_module:Sink"
"""

from dataclasses import dataclass
from typing import ClassVar

import memc
from memc.ir.core import Function
from memc.ir.liveness import ALIGNMENT, arena_bytes, peak
from memc.ir.module import Module
from memc.passes.base import Pass

TEXT = """\
func @main(%x: f32[1024] {role = input}, %s: f32[] {role = input}) -> f32[1] {
  %mask = broadcast(%s) {shape = [1024]} : f32[1024]
  %a = exp(%x) : f32[1024]
  %b = reduce_sum(%a) {axes = [0], keepdims = true} : f32[1]
  %c = tanh(%b) : f32[1]
  %d = mul(%mask, %c) : f32[1024]
  %e = relu(%d) : f32[1024]
  %f = reduce_max(%e) {axes = [0], keepdims = true} : f32[1]
  return %f
}
"""


def sink(function: Function, smallest: int) -> None:
    """Move each op whose result takes at least `smallest` bytes down to just above the first op that reads it."""
    for op in reversed(function.ops[:]):
        readers = [n for n, other in enumerate(function.ops) if any(r in other.operands for r in op.results)]
        if readers and sum(r.type.nbytes for r in op.results) >= smallest:
            here = function.ops.index(op)
            function.ops.insert(readers[0], op)
            del function.ops[here]


@dataclass(frozen=True)
class Sink(Pass):
    """Compute large tensors as late as possible. Never raises the peak: a worse order is taken back."""

    name: ClassVar[str] = "sink"
    smallest: int = 1024
    """Bytes; smaller results stay where they are."""
    alignment: int = ALIGNMENT

    def apply(self, module: Module) -> None:
        for function in module.functions:
            before, order = peak(function, self.alignment), function.ops[:]
            sink(function, self.smallest)
            if peak(function, self.alignment) > before:
                function.ops[:] = order


def main() -> None:
    arenas = []
    for own in ([], [Sink()]):
        module = memc.parse(TEXT)
        manager = memc.PassManager.parse("in-place,assign-addresses")
        manager.passes[:0] = own
        manager.run(module)  # Verifies the IR after each pass, and checks the plan.
        arenas.append(arena_bytes(module.main))
        print(f"{manager}: {arenas[-1]:,} bytes")
    print(module)


if __name__ == "__main__":
    main()
