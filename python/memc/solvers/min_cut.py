# SPDX-License-Identifier: Apache-2.0
"""Minimum cuts: choices between two sides that cost where they differ."""

from __future__ import annotations

from collections.abc import Sequence

UNCUT = 1 << 60
"""The capacity of an edge that no cut may pay for. All others together must be below it."""

Edge = tuple[int, int, int]
"""From, to, and what it costs if the first is on the source's side and the second on the sink's."""


def sink_side(nodes: int, edges: Sequence[Edge], source: int = 0, sink: int = 1) -> set[int]:
    """The nodes on the sink's side of a cut of least cost: of all such sides the smallest, `sink` included."""
    from ortools.graph.python import max_flow  # Takes longer to load than most functions to cut.

    if any(not 0 <= node < nodes for tail, head, _ in edges for node in (tail, head)):
        raise ValueError(f"expected edges among {nodes} nodes, got {list(edges)[:3]}")
    flow = max_flow.SimpleMaxFlow()
    for tail, head, capacity in [*edges, (source, sink, 0)]:
        flow.add_arc_with_capacity(tail, head, capacity)
    if flow.solve(source, sink) != flow.OPTIMAL:
        raise ValueError("expected capacities whose sum is below 2^63")
    return {int(node) for node in flow.get_sink_side_min_cut()}
