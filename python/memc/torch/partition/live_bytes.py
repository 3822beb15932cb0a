# SPDX-License-Identifier: Apache-2.0
"""The bytes that are live in a forward and a backward, by walking through their graphs: what budgets are held against.

It knows nothing of the search: an op's results lie in new storages unless their metadata says that they lie in one that the
op reads, and a storage is freed after the last op that reads something in it, as an interpreter of the graph does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch.fx import GraphModule, Node

from . import fx_values as fx
from .joint_graph import is_mutation


@dataclass(frozen=True)
class LiveBytes:
    """Bytes that the two graphs allocate. Inputs and gradients from outside, which are the caller's, do not count."""

    forward: int
    """The most that is live at one time in the forward, its results and what it saves included."""
    backward: int
    """The most in the backward, with what was saved and is not freed yet, and with the results of the forward."""
    saved: int
    """What is saved, results of the forward that are saved too included."""

    @property
    def peak(self) -> int:
        return max(self.forward, self.backward)


@dataclass
class _Walk:
    """One graph's storages, each with its bytes, numbered as they are made."""

    sizes: list[int] = field(default_factory=list)
    lies_in: dict[Node, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    """Of each node's tensors, the keys of their metadata and their storages."""
    inputs: dict[int, int] = field(default_factory=dict)
    """The storages of inputs, by the keys of their metadata."""
    peak: int = 0

    def run(
        self, module: GraphModule, given: Mapping[Node, int], held: int, alignment: int, stay: bool = False
    ) -> None:
        """Walk; `given`: inputs that count, with their bytes, `held`: bytes that stay all the time, with `stay` inputs too."""
        nodes = list(module.graph.nodes)
        for node in nodes:
            if node.op in ("placeholder", "get_attr"):
                self._input(node, given.get(node, 0))
        last: dict[int, int] = {}
        made: list[range] = []
        for step, node in enumerate(nodes):
            before = len(self.sizes)
            if node.op == "call_function":
                self._make(node, alignment)
            made.append(range(before, len(self.sizes)))
            read = (storage for other in (node, *node.all_input_nodes) for _, storage in self.lies_in.get(other, ()))
            end = len(nodes) if node.op == "output" else step
            last.update((storage, end) for storage in read)
        inputs = made[0].start if made else 0
        last.update((storage, len(nodes)) for storage in range(inputs) if stay)
        ends: dict[int, list[int]] = {}
        for storage, step in last.items():
            ends.setdefault(step, []).append(storage)
        live = held + sum(self.sizes[:inputs])
        live -= sum(self.sizes[s] for s in range(inputs) if s not in last)
        self.peak = live
        for step in range(len(nodes)):
            live += sum(self.sizes[s] for s in made[step])
            self.peak = max(self.peak, live)
            live -= sum(self.sizes[s] for s in ends.get(step, ()))

    def _input(self, node: Node, size: int) -> None:
        keys = [fx.storage_key(t) for t in fx.tensors(node)]
        for key in keys:
            if key not in self.inputs:
                self.inputs[key] = len(self.sizes)
                self.sizes.append(size)
        self.lies_in[node] = tuple((key, self.inputs[key]) for key in keys)

    def _make(self, node: Node, alignment: int) -> None:
        read = dict(pair for other in node.all_input_nodes for pair in self.lies_in.get(other, ()))
        found = []
        for tensor in fx.tensors(node):
            key = fx.storage_key(tensor)
            if key not in read:
                read[key] = len(self.sizes)
                self.sizes.append(fx.storage_bytes(tensor, alignment))
            found.append((key, read[key]))
        self.lies_in[node] = tuple(found)


def live_bytes(
    forward: GraphModule, backward: GraphModule, num_fwd_outputs: int, alignment: int, stay: bool = False
) -> LiveBytes:
    """The bytes live in both; `alignment`: what the allocator rounds sizes to; `stay`: what was saved stays until the backward ends."""
    first = _Walk()
    first.run(forward, {}, 0, alignment)
    (output,) = forward.graph.find_nodes(op="output")
    results = list(output.args[0])
    told = list(output.meta.get("desc") or [None] * len(results))
    outside = {s for n in forward.graph.nodes if n.op in ("placeholder", "get_attr") for _, s in first.lies_in[n]}

    def storages(nodes: list[object]) -> set[int]:
        return {s for n in nodes if isinstance(n, Node) for _, s in first.lies_in.get(n, ())} - outside

    kept = [r for r, d in zip(results[:num_fwd_outputs], told) if not is_mutation(d)]
    shown, saved = storages(kept), storages(results[num_fwd_outputs:])
    placeholders = backward.graph.find_nodes(op="placeholder")
    given: dict[Node, int] = {}
    symbols = [n for n in results[num_fwd_outputs:] if fx.is_symbol(n)]
    tensors = [n for n in results[num_fwd_outputs:] if not fx.is_symbol(n)]
    for placeholder, result in zip(placeholders[len(symbols) :], tensors):
        own = [s for s in storages([result]) if s not in shown]
        given[placeholder] = sum(first.sizes[s] for s in own)
    second = _Walk()
    second.run(backward, given, sum(first.sizes[s] for s in shown), alignment, stay)
    return LiveBytes(first.peak, second.peak, sum(first.sizes[s] for s in saved))
