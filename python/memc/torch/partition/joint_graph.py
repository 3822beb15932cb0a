# SPDX-License-Identifier: Apache-2.0
"""A joint graph of forward and backward as a problem of recomputation.

Storages are the values, with all of their bytes; views cost nothing and follow what they look into. An op and the items that are taken
of its results are one unit. Two units are no ops: `fence`, where the forward has all of its results, and whatever reads gradients
from outside comes later; and `end`, until when results and gradients stay. So a sequence of the problem, cut at the fence, is a forward
and a backward, and what the second reads of the first is what is saved.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch._functorch._aot_autograd.utils import _is_fwd_seed_offset, _is_primal
from torch.fx import Graph, Node

from memc.ir.cost_model import Device
from memc.solvers.recompute import RecomputeProblem

from . import fx_values as fx


@dataclass(eq=False)
class Unit:
    """What runs together: an op, and the items of its results."""

    nodes: tuple[Node, ...]
    reads: list[int] = field(default_factory=list)
    makes: list[int] = field(default_factory=list)
    once: bool = False


class JointGraph:
    """A joint graph, its ops in the order in which they run without recomputation."""

    def __init__(self, graph: Graph, num_fwd_outputs: int, device: Device, alignment: int) -> None:
        """`alignment`: bytes that the allocator rounds sizes to."""
        self.graph = graph
        self.alignment = alignment
        self.device = device
        (output,) = graph.find_nodes(op="output")
        results = list(output.args[0])
        descriptions = list(output.meta.get("desc") or [None] * len(results))
        self.forward_results, self.backward_results = results[:num_fwd_outputs], results[num_fwd_outputs:]
        self.forward_descriptions = descriptions[:num_fwd_outputs]
        self.backward_descriptions = descriptions[num_fwd_outputs:]
        self.views: set[Node] = set()
        self.base: dict[Node, Node] = {}
        """The node that made the storage in which a tensor lies; of a view of a tuple of views, the one that it is a part of."""
        self.needed: dict[Node, tuple[Node, ...]] = {}
        """The nodes, no views, that a node is made of, without running an op; itself if it is no view."""
        self.values: dict[Node, int] = {}
        self.sizes: list[int] = []
        self.units: list[Unit] = []
        self._look()
        self.late = self._after_gradients()
        """What depends on gradients from outside, or belongs to the backward by its mark."""
        self.token: int | None = None
        """A value of no bytes, made by the last op with effects, which the next one reads."""
        self.fence = -1
        self._number()

    def problem(self) -> RecomputeProblem:
        """What the search works on."""
        count = len(self.units)
        none: list[list[int]] = [[] for _ in range(count)]
        costs = [fx.cost(u.nodes[0], self.device) if u.nodes and not u.once else 0 for u in self.units]
        return RecomputeProblem(
            sizes=self.sizes,
            costs=costs,
            once=[u.once for u in self.units],
            scratch=[0] * count,
            reads=[u.reads for u in self.units],
            makes=[u.makes for u in self.units],
            over=none,
            parts=none,
            until=self._until(),
            in_order=any(fx.writes(u.nodes[0]) for u in self.units if u.nodes),
        )

    def total_cost(self) -> int:
        """Picoseconds of one run of every op."""
        return sum(fx.cost(u.nodes[0], self.device) for u in self.units if u.nodes)

    def _look(self) -> None:
        """Finds what each node lies in."""
        first: dict[int, Node] = {}
        for node in self.graph.nodes:
            if node.op == "output":
                continue
            item = fx.is_item(node) and node.args[0] in self.views
            keys = [fx.storage_key(t) for t in fx.tensors(node)]
            if item or fx.is_view(node):
                self.views.add(node)
            elif fx.is_tensor(node):
                first.setdefault(keys[0], node)
            self.base[node] = first.get(keys[0], node) if fx.is_tensor(node) else node
            parts = (p for other in node.all_input_nodes for p in self.needed[other])
            self.needed[node] = tuple(dict.fromkeys(parts)) if node in self.views else (node,)

    def _number(self) -> None:
        front, rest = self._halves()
        for nodes in (front, [None], rest):
            for node in nodes:
                self._add_unit(node)
        held = [r for r, d in zip(self.forward_results, self.forward_descriptions) if not is_mutation(d)]
        kept = set(self._reads(held))
        for unit in self.units:
            unit.once |= not kept.isdisjoint(unit.makes)  # Whoever called has those, recomputed or not.
        self.units.append(Unit((), reads=self._reads([*held, *self.backward_results]), once=True))

    def _halves(self) -> tuple[list[Node], list[Node]]:
        """The units' first nodes that run in the forward, and those after it, where nothing is recomputed."""
        late = self.late
        nodes = [n for n in self.graph.nodes if n.op == "call_function" and n not in self.views and not fx.is_item(n)]
        required = set(fx.leaves(self.forward_results))
        required.update(n for n in nodes if fx.has_effects(n) and n not in late)
        for node in reversed(self.graph.nodes):
            if node in required:
                required.update(node.all_input_nodes)
        wrong = next((n for n in required if n in late and not fx.writes(n)), None)
        if wrong is not None:
            raise ValueError(f"{wrong}: a result of the forward that needs a gradient")
        order = {node: number for number, node in enumerate(self.graph.nodes)}
        last = max((order[n] for n in nodes if n in required and not fx.writes(n)), default=-1)
        front = [n for n in nodes if n in required or (n not in late and order[n] < last)]
        chosen = set(front)
        return front, [n for n in nodes if n not in chosen]

    def _after_gradients(self) -> set[Node]:
        late: set[Node] = set()
        for node in self.graph.nodes:
            tag = node.meta.get("partitioner_tag")
            marked = tag == "must_be_in_backward" or (tag == "is_backward" and fx.has_effects(node))
            given = node.op == "placeholder" and not is_forward_input(node)
            if marked or given or any(n in late for n in node.all_input_nodes):
                late.add(node)
        return late

    def _add_unit(self, node: Node | None) -> None:
        """A unit for an op, or the fence for None."""
        if node is None:
            self.fence = len(self.units)
            tokens = [] if self.token is None else [self.token]
            reads = [*self._reads(self.forward_results), *tokens]
            self.units.append(Unit((), reads=list(dict.fromkeys(reads)), makes=[self._value(0)], once=True))
            self.token = self.fence_token = self.units[-1].makes[0]
            return
        items = self._items(node)
        unit = Unit((node, *items), reads=self._reads(node.all_input_nodes))
        if self.fence >= 0 and node in self.late:
            unit.reads.append(self.fence_token)
        if fx.has_effects(node):
            unit.reads += [] if self.token is None or self.token in unit.reads else [self.token]
            self.token = self._value(0)
            unit.makes.append(self.token)
        unit.once = fx.has_effects(node) or fx.is_symbol(node) or any(map(fx.must_stay, unit.nodes))
        self._make(unit)
        self.units.append(unit)

    def _make(self, unit: Unit) -> None:
        """Values for what a unit makes, also for what nobody takes."""
        node = unit.nodes[0]
        made = dict(zip(map(id, fx.tensors(node)), fx.tensors(node)))
        for part in unit.nodes:
            for tensor in [part.meta["val"]] if fx.is_tensor(part) else []:
                made = {k: t for k, t in made.items() if fx.storage_key(t) != fx.storage_key(tensor)}
            base = self.base[part]
            if base in self.values or base.op != "call_function" or not (fx.is_tensor(part) or fx.is_symbol(part)):
                continue
            size = fx.storage_bytes(part.meta["val"], self.alignment) if fx.is_tensor(part) else 0
            self.values[base] = self._value(size)
            unit.makes.append(self.values[base])
        if not fx.writes(node):
            unit.makes += [self._value(fx.storage_bytes(t, self.alignment)) for t in made.values()]

    def _value(self, size: int) -> int:
        self.sizes.append(size)
        return len(self.sizes) - 1

    def _items(self, node: Node) -> list[Node]:
        """The parts of an op's results, and the parts of those."""
        found = [n for n in node.users if fx.is_item(n) and n not in self.views]
        return [part for item in found for part in (item, *self._items(item))]

    def _reads(self, arguments: Iterable[Any]) -> list[int]:
        """The values that a unit needs to have these."""
        parts = (p for node in fx.leaves(list(arguments)) for p in self.needed[node])
        return list(dict.fromkeys(self.values[self.base[p]] for p in parts if self.base[p] in self.values))

    def _until(self) -> list[list[int]]:
        """Of each unit, the first after it that writes to an input which it reads."""
        found: list[list[int]] = [[] for _ in self.units]
        for number, unit in enumerate(self.units):
            for target in unit.nodes[:1]:
                if fx.writes(target):
                    for node in fx.leaves(target.args[0]):
                        self._before(number, self.base[self.needed[node][0]], found)
        return found

    def _before(self, writer: int, written: Node, found: Sequence[list[int]]) -> None:
        for number, unit in enumerate(self.units[:writer]):
            read = {self.base[p] for node in unit.nodes for n in node.all_input_nodes for p in self.needed[n]}
            if written in read:
                found[number].append(writer)


def is_forward_input(node: Node) -> bool:
    """Whether a node is an input of the forward."""
    return bool(_is_primal(node) or _is_fwd_seed_offset(node))


def is_mutation(description: object) -> bool:
    """Whether a result is copied into an input at once."""
    return type(description).__name__ == "InputMutationAOTOutput"
