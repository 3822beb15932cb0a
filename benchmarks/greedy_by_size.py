# SPDX-License-Identifier: Apache-2.0
"""The planner of TFLite as a peer: *greedy by size for offset calculation* of Pisarchyk and Lee 2020, Algorithm 3.

Largest first, each buffer goes to the smallest gap that holds it between those placed already and live with it, and on
top of them if there is none ("Efficient Memory Management for Deep Neural Net Inference", MLSys workshop).
"""

from __future__ import annotations

import numpy as np

from memc.solvers.placement import BufferColumns, Problem, Solution, lower_bound


def greedy_by_size(problem: Problem) -> Solution:
    """A plan for a problem without fixed offsets. Quadratic."""
    columns = BufferColumns.of(problem.buffers)
    sizes = -(-columns.sizes // problem.alignment) * problem.alignment
    order = np.argsort(-sizes, kind="stable")
    lowers, uppers, sizes = columns.lowers[order], columns.uppers[order], sizes[order]
    offsets = np.zeros(len(order), np.int64)
    for k in range(len(order)):
        live = np.flatnonzero((lowers[:k] < uppers[k]) & (lowers[k] < uppers[:k]))
        begins = offsets[live]
        by_offset = np.argsort(begins, kind="stable")
        ends = np.maximum.accumulate(begins[by_offset] + sizes[live][by_offset])
        bottoms = np.concatenate([[0], ends])
        gaps = begins[by_offset] - bottoms[:-1]
        fitting = np.flatnonzero(gaps >= sizes[k])
        offsets[k] = bottoms[fitting[np.argmin(gaps[fitting])]] if fitting.size else bottoms[-1]
    peak = int((offsets + sizes).max(initial=0))
    placed = np.empty_like(offsets)
    placed[order] = offsets
    return Solution(tuple(placed.tolist()), peak, lower_bound(problem))
