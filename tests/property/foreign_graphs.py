# SPDX-License-Identifier: Apache-2.0
"""Random dataflow graphs of unregistered ops that overwrite storages, and what they compute: bytes hashed from bytes."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from memc.frontend.graph import import_graph
from memc.frontend.graph.read import graph_of
from memc.ir.core import Function, Op, Role, Value
from memc.ir.liveness import ARENA, output_roots
from memc.ir.module import Module
from memc.ir.text.parser import parse

Draw = Callable[[st.SearchStrategy[int]], int]

POISON = b"\xa5"


@st.composite
def foreign_modules(draw: Draw, max_ops: int = 24) -> Module:
    """Ops make storages, read and overwrite them, some more than one, some of the inputs', and some may not be recomputed."""

    def number(low: int, high: int) -> int:
        return draw(st.integers(low, high))

    tensors: list[dict[str, Any]] = []
    current: list[int] = []
    """By storage: the tensor that stands for it."""

    def tensor(storage: int) -> int:
        if storage == len(current):
            current.append(-1)
            nbytes = 64 * number(1, 4)
        else:
            nbytes = tensors[current[storage]]["bytes"]
        current[storage] = len(tensors)
        tensors.append({"bytes": nbytes, "storage": storage, "storage_bytes": nbytes})
        return current[storage]

    def read_storages() -> list[int]:
        """What was made last, and either some other storage, or in the second half one that waits from the first."""
        last = len(current) - 1
        if index >= count // 2 and waiting and number(0, 3):
            return [last, waiting.pop()]
        return [last] if number(0, 2) else [last, number(0, last)]

    inputs = [tensor(storage) for storage in range(number(1, 2))]
    waiting: list[int] = []
    ops = []
    count = number(4, max_ops)
    for index in range(count):
        read = list(dict.fromkeys(read_storages()))
        given = [current[storage] for storage in read]
        kind = number(0, 9) if index < count - 1 else 0  # The last op makes an output.
        over = read[: max(0, kind - 6)]
        fresh = range(len(current), len(current) + (1 if kind < 7 else number(0, 1)))
        if index < count // 2:
            waiting += fresh
        written = [*over, *fresh]
        made = [tensor(storage) for storage in written]
        once = number(0, 9) == 9
        ops.append({"name": f"op{index}", "inputs": given, "outputs": made, "writes": written, "once": once})
    outputs = list(dict.fromkeys([current[-1], current[number(len(inputs), len(current) - 1)]]))
    data = {"tensors": tensors, "ops": ops, "inputs": inputs, "outputs": outputs}
    module = import_graph(graph_of(data, "random"))
    assert str(parse(str(module))) == str(module)
    return module


class _Interpreter:
    """Where values lie, and what ops compute of what they read."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.runs: Counter[str] = Counter()
        self.effects: list[tuple[str, list[bytes]]] = []
        self.held: dict[Value, bytearray] = {}
        """Bytes of what lies outside the arena, by root; in `plain` of every value."""

    def compute(self, op: Op, given: list[bytes]) -> list[bytes]:
        """Every run of an op that says `once` gives other bytes."""
        self.runs[op.name] += 1
        if not op.results:
            self.effects.append((op.name, given))
        draw = self.runs[op.name] if op.attrs.get("once") else 0
        text = f"{op.name} {draw} ".encode() + b"".join(given)
        return [hashlib.shake_256(text + bytes([k])).digest(v.type.nbytes) for k, v in enumerate(op.results)]

    def give(self, param: Value) -> bytes:
        return hashlib.shake_256(param.name.encode()).digest(param.type.nbytes)


Outcome = tuple[list[bytes], list[tuple[str, list[bytes]]]]
"""Contents of returned values and of states in the end, and what ops without results were given."""


def run_plainly(module: Module) -> Outcome:
    """Every value with bytes of its own."""
    function, interpreter = module.main, _Interpreter(module.main)
    held = {p: interpreter.give(p) for p in function.params}
    for op in function.ops:
        held.update(zip(op.results, interpreter.compute(op, [held[v] for v in op.operands])))
    last = {v.root: v for v in function.values()}
    states = [held[last[p]] for p in function.params_of(Role.STATE)]
    return [*(held[v] for v in function.returns), *states], interpreter.effects


def run_in_arena(module: Module, arena: int) -> Outcome:
    """Every value where it is placed, in a poisoned arena; what an op makes is poisoned before the op writes it, and what
    only it reads stays until then."""
    function, interpreter = module.main, _Interpreter(module.main)
    outside = output_roots(function)
    memory = bytearray(POISON * arena)
    own = {p: bytearray(interpreter.give(p)) for p in function.params}

    def place(value: Value) -> tuple[bytearray, int]:
        root = value.root
        if root.op is None or root in outside:
            return own.setdefault(root, bytearray(POISON * root.type.nbytes)), value.offset_in_root
        assert value.placement is not None and value.placement.space == ARENA
        return memory, value.placement.offset

    def content(value: Value) -> bytes:
        held, offset = place(value)
        return bytes(held[offset : offset + value.type.nbytes])

    for op in function.ops:
        results = interpreter.compute(op, [content(v) for v in op.operands])
        for value, made in zip(op.results, results):
            held, offset = place(value)
            held[offset : offset + len(made)] = made
    states = [bytes(own[p]) for p in function.params_of(Role.STATE)]
    return [*map(content, function.returns), *states], interpreter.effects
