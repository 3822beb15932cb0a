# SPDX-License-Identifier: Apache-2.0
"""Seconds that the checks of a plan take, of generated training steps of many ops.

    python benchmarks/plan_checks.py [--ops 100000] [--only KIND ...]

A step is a stack of layers and the way back through them. A layer is a softmax, views, ops in place, and a join of two halves that
are written where they lie in it. Kinds: `plain`; `recompute`, where every second softmax runs again on the way back; `copies`, where
every second one leaves for the host and comes back instead; `twice`, where all do, and come back for two readers each; `states`,
where each layer has a state on the host that comes in, is updated, and leaves; `apart`, as `copies`, with all values in bytes of their
own. Seconds are the processor's, the least of three runs, without the collector of garbage, as in `memc compile`: of the check that
every plan passes, and of those with messages, which have the last word where it finds something wrong.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from memc.ir.build import IRBuilder
from memc.ir.copies import with_host_space
from memc.ir.core import Alias, Attr, Function, OpPlan, Role, Value
from memc.ir.module import Module
from memc.ir.types import DType, TensorType
from memc.ir.verify.copy_races import check_copy_races
from memc.ir.verify.memory_plan import check_plan
from memc.passes.check_plans import check_whole_plan, holds
from memc.passes.manager import PassManager

PER_LAYER = {"plain": 12, "recompute": 12.5, "copies": 14, "twice": 18, "states": 17, "apart": 14}
"""Ops, by kind of step."""
ROWS = TensorType(DType.F32, (4, 16))
AHEAD = 3
"""Layers that pass while a copy is under way."""


@dataclass
class Step:
    """A training step while it is built."""

    kind: str
    function: Function = field(default_factory=lambda: Function([Value("x", ROWS, role=Role.INPUT)]))
    layer: int = 0
    """How many layers have begun, those of the way back too."""
    waits: dict[int, list[Value]] = field(default_factory=dict)
    """Pending copies by `layer` when they are waited for."""
    over: dict[Value, Value] = field(default_factory=dict)
    """What copies brought, by what they are of."""
    states: list[Value] = field(default_factory=list)
    """The new contents of states, before they leave."""

    def __post_init__(self) -> None:
        self.module = Module([self.function])
        self.b = IRBuilder(self.module, self.function, self.function.ops)

    def op(self, name: str, *operands: Value, **attrs: Attr) -> Value:
        """Append an op."""
        return self.b.op(name, operands, **attrs)

    def begin(self, kind: str, source: Value) -> Value:
        """Begin a copy."""
        pending = self.op(f"{kind}_start", source, lane="d2h" if kind == "offload" else "h2d")
        self.waits.setdefault(self.layer + AHEAD - 1, []).append(pending)
        return pending

    def next_layer(self) -> None:
        """Wait for the copies that the next layer waits for."""
        for pending in self.waits.pop(self.layer, ()):
            start = pending.op
            assert start is not None
            source = start.operands[0]
            done = self.op(start.name.replace("start", "done"), pending, source)
            done.alias = pending.alias
            self.over[source] = done
        self.layer += 1

    def halves(self, value: Value) -> Value:
        """A view, ops in place, and a join of two halves."""
        flat = self.op("relu", self.op("tanh", self.op("reshape", value, shape=(64,))))
        rows = self.op("reshape", flat, shape=ROWS.shape)
        first, second = (self.op("slice", rows, starts=(n, 0), stops=(n + 2, 16), steps=(1, 1)) for n in (0, 2))
        return self.op("concat", self.op("neg", first), self.op("exp", second), axis=0)


def built(kind: str, ops: int) -> Module:
    """A step of about so many ops, without addresses."""
    step, layers = Step(kind), max(4 * AHEAD, int(ops / PER_LAYER[kind]))
    value, kept, entered = step.function.params[0], [], []
    for layer in range(layers):
        step.next_layer()
        entered.append(value)
        kept.append(step.op("softmax", value, axis=1))
        if kind == "twice" or (kind in ("copies", "apart") and layer % 2):
            step.begin("offload", kept[-1])
        value = step.halves(kept[-1])
    for _ in range(AHEAD + 1):
        step.next_layer()
    for layer in reversed(range(-AHEAD, layers)):
        value = _way_back(step, value, layer, kept, entered)
    while step.waits:
        step.next_layer()
    step.function.returns = [step.op("exp", value), *(step.over[state] for state in step.states)]
    step.module.target = with_host_space(step.module.target, step.module.functions)
    return step.module


def _way_back(step: Step, value: Value, layer: int, kept: Sequence[Value], entered: Sequence[Value]) -> Value:
    """The gradient of a layer's input. What the layers before it need of the host begins to come."""
    step.next_layer()
    ahead = layer - AHEAD
    if ahead >= 0 and kept[ahead] in step.over:
        step.begin("prefetch", step.over[kept[ahead]])
    if step.kind == "states" and ahead >= 0:
        step.function.params.append(Value(f"s{ahead}", ROWS, role=Role.STATE))
        step.begin("prefetch", step.function.params[-1])
    if not 0 <= layer < len(kept) - AHEAD:
        return step.op("exp", value) if layer < 0 else step.op("mul", value, kept[layer])
    read = kept[layer]
    host = step.over.get(read)
    if host is not None:
        read = step.over[host]
    elif step.kind == "recompute" and layer % 2:
        read = step.b.op("softmax", (entered[layer],), OpPlan(recompute=(1,)), axis=1)
    value = step.op("mul", value, read)
    if step.kind == "twice" and host is not None and layer % 2:
        step.begin("prefetch", host)
    if step.kind == "states":
        param = next(p for p in step.function.params[-1 - AHEAD :] if p.name == f"s{layer}")
        step.states.append(step.op("add", step.over[param], value))
        step.begin("offload", step.states[-1]).alias = Alias(param, 0)
    return step.op("softmax", step.op("sub", value, read), axis=1)


def planned(kind: str, ops: int) -> Module:
    """A step with addresses."""
    module = built(kind, ops)
    solver = "none" if kind == "apart" else "best-fit"
    PassManager.parse(f"in-place,assign-addresses{{solver={solver}}}").run(module)
    return module


def least_seconds(check: Callable[[Module], None], module: Module) -> float:
    """Of three runs, the processor's."""
    found = []
    for _ in range(3):
        begin = time.process_time()
        check(module)
        found.append(time.process_time() - begin)
    return min(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", type=int, default=100_000)
    parser.add_argument("--only", nargs="*", choices=tuple(PER_LAYER), default=tuple(PER_LAYER))
    arguments = parser.parse_args()
    print(
        "| kind | ops | copies | check_whole_plan s | s per 100,000 ops | check_plan s | check_copy_races s |\n"
        "| --- | --: | --: | --: | --: | --: | --: |"
    )
    gc.disable()
    for kind in arguments.only:
        module = planned(kind, arguments.ops)
        ops = len(module.main.ops)
        copies = sum(op.name.endswith("_start") for op in module.main.ops)
        assert holds(module, module.target.alignment)
        whole = least_seconds(lambda m: check_whole_plan(m, m.target.alignment), module)
        plan = least_seconds(lambda m: check_plan(m, m.target.alignment), module)
        races = least_seconds(check_copy_races, module)
        head = f"| {kind} | {ops:,} | {copies:,} | {whole:.2f} | {whole * 100_000 / ops:.2f} |"
        print(f"{head} {plan:.2f} | {races:.2f} |", flush=True)


if __name__ == "__main__":
    main()
