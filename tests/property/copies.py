# SPDX-License-Identifier: Apache-2.0
"""Random legal copies between spaces, inserted into functions without plans."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from memc.ir.copies import with_host_space
from memc.ir.core import Function, Op, Role, Value, fresh_names
from memc.ir.module import Module


@dataclass
class Insertion:
    """Ops to put in front of others, by these others' positions."""

    function: Function
    rng: random.Random
    found: list[tuple[int, int, Op]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.names = fresh_names((v.name for v in self.function.values()), "copy")

    def pair(self, kind: str, source: Value, start: int, done: int, lane: str) -> Value:
        """A copy of `source` that begins in front of op number `start` and is waited for in front of `done`."""
        attrs = {"lane": lane}
        begin = Op(f"{kind}_start", [source], [Value(next(self.names), source.type)], dict(attrs))
        wait = Op(f"{kind}_done", [begin.result, source], [Value(next(self.names), source.type)])
        for at, op in ((start, begin), (done, wait)):
            self.found.append((at, len(self.found), op))
        return wait.result

    def apply(self) -> None:
        """Put the ops in their places."""
        new: list[Op] = []
        waiting = sorted(self.found, key=lambda item: item[:2])
        for index, op in enumerate([*self.function.ops, None]):
            while waiting and waiting[0][0] <= index:
                new.append(waiting.pop(0)[2])
            if op is not None:
                new.append(op)
        self.function.ops = new


def insert_copies(module: Module, seed: int, share: float = 0.6) -> int:
    """Copy about a `share` of the values of @main out and back, some twice, and prefetch some of its weights from `host`. Returns
    how many copies there are."""
    function, rng = module.main, random.Random(seed)
    insertion = Insertion(function, rng)
    readers = {value: sorted({function.ops.index(op) for op in ops}) for value, ops in function.uses().items()}
    defined = {value: index for index, op in enumerate(function.ops) for value in op.results}
    for value, reads in readers.items():
        constant = value.op is not None and value.op.name == "constant"
        if value.type.nbytes == 0 or not reads or constant or rng.random() > share:
            continue
        if value.role is Role.WEIGHT and value not in function.returns:
            _stream(insertion, value, reads)
        else:
            _out_and_back(insertion, value, defined.get(value, -1) + 1, reads)
    insertion.apply()
    module.target = with_host_space(module.target, module.functions)
    return len(insertion.found) // 2


def _stream(insertion: Insertion, weight: Value, reads: list[int]) -> None:
    """Prefetch a weight before its first reader, or anew before each."""
    once = insertion.rng.random() < 0.5
    for number, read in enumerate(reads):
        if number and once:
            break
        low = 0 if not number else reads[number - 1]
        start = insertion.rng.randint(low, read)
        lane = insertion.rng.choice(("h2d", "h2d", "h2d.1"))
        here = insertion.pair("prefetch", weight, start, insertion.rng.randint(start, read), lane)
        _rewire(insertion.function, weight, here, reads if once else [read])


def _out_and_back(insertion: Insertion, value: Value, first: int, reads: list[int]) -> None:
    """Copy a value out after its definition, and back before some of its readers, which then read the copy."""
    rng = insertion.rng
    back = rng.randrange(len(reads))
    if first > reads[back]:
        return
    start = rng.randint(first, reads[back])
    done = rng.randint(start, reads[back])
    host = insertion.pair("offload", value, start, done, rng.choice(("d2h", "d2h", "d2h.1")))
    for number in range(back, len(reads)):
        low = done if number == back else max(done, reads[number - 1])
        if number > back and rng.random() < 0.5:
            continue  # This reader reads what was copied back for an earlier one.
        start = rng.randint(low, reads[number])
        here = insertion.pair("prefetch", host, start, rng.randint(start, reads[number]), rng.choice(("h2d", "h2d.1")))
        _rewire(insertion.function, value, here, reads[number:])
        value = here


def _rewire(function: Function, old: Value, new: Value, ops: list[int]) -> None:
    for index in ops:
        op = function.ops[index]
        op.operands = [new if v is old else v for v in op.operands]
