# SPDX-License-Identifier: Apache-2.0
"""The kernels of ops that state a `Routine`: loops that go from one element to the next, for one target each."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import tvm
from tvm.script import from_source

from memc.ir.core import Op, Value
from memc.runtime.codegen.expressions import STORED, KernelError

THREADS = 256
"""Threads of a block on CUDA."""

TEMPLATE = """
# from tvm.script import tirx as T
@T.prim_func(s_tir=True)
def main({parameters}):
{body}
"""

EACH = {
    "llvm": """
for k in T.serial({count}):
{body}
""",
    "cuda": """
for block in T.thread_binding({blocks}, thread="blockIdx.x"):
    for thread in T.thread_binding({threads}, thread="threadIdx.x"):
        k = block * {threads} + thread
        if k < {count}:
{body}
""",
}
"""One turn, or one thread, for each `k`."""

SEARCH_SORTED = """
low = T.alloc_buffer((1,), "int64", scope="local")
low[0] = T.int64(0)
for step in T.serial({steps}):
    size = T.shift_left(T.int64(1), T.int64({steps} - 1) - T.Cast("int64", step))
    if low[0] + size <= T.int64({extent}):
        if operand0[low[0] + size - T.int64(1)] <= operand1[k]:
            low[0] = low[0] + size
result[k] = low[0]
"""
"""`low`: so many numbers are known to be at most the value."""

OVERLAPS = """
sides = T.alloc_buffer((2,), "float32", scope="local")
areas = T.alloc_buffer((2,), "float32", scope="local")
areas[0] = T.float32(1)
areas[1] = T.float32(1)
for axis in T.serial(2):
    low = T.alloc_buffer((2,), "float32", scope="local")
    high = T.alloc_buffer((2,), "float32", scope="local")
    for side in T.serial(2):
        at = T.if_then_else(side == 0, box, other)
        first = operand0[batch, at, axis]
        second = operand0[batch, at, axis + 2]
        low[side] = {low}
        high[side] = {high}
        areas[side] = areas[side] * (high[side] - low[side])
    sides[axis] = T.min(high[0], high[1]) - T.max(low[0], low[1])
shared = sides[0] * sides[1]
union = areas[0] + areas[1] - shared
if sides[0] > T.float32(0) and sides[1] > T.float32(0) and shared > T.float32(0):
    if areas[0] > T.float32(0) and areas[1] > T.float32(0) and union > T.float32(0):
        if shared / union > operand2[()]:
            hit[0] = 1
"""
"""Sets `hit` if `box` and `other` overlap too much."""

NON_MAX_SUPPRESSION = {
    "llvm": """
for row in T.serial({rows}):
    batch = T.Cast("int64", row // {classes})
    group = T.Cast("int64", row % {classes})
    chosen = T.alloc_buffer((1,), "int64", scope="local")
    chosen[0] = T.int64(0)
    for k in T.serial({candidates}):
        box = operand1[batch, group, T.Cast("int64", k)]
        if box >= T.int64(0) and chosen[0] < T.int64({most}):
            hit = T.alloc_buffer((1,), "int32", scope="local")
            place = T.alloc_buffer((1,), "int64", scope="local")
            hit[0] = 0
            place[0] = T.int64(0)
            while hit[0] == 0 and place[0] < chosen[0]:
                other = result[batch, group, place[0]]
{overlaps}
                place[0] = place[0] + T.int64(1)
            if hit[0] == 0:
                result[batch, group, chosen[0]] = box
                chosen[0] = chosen[0] + T.int64(1)
    for k in T.serial({most}):
        if T.Cast("int64", k) >= chosen[0]:
            result[batch, group, T.Cast("int64", k)] = T.int64(-1)
""",
    "cuda": """
for row in T.thread_binding({rows}, thread="blockIdx.x"):
    for thread in T.thread_binding({threads}, thread="threadIdx.x"):
        batch = T.Cast("int64", row // {classes})
        group = T.Cast("int64", row % {classes})
        chosen = T.alloc_buffer((1,), "int64", scope="local")
        chosen[0] = T.int64(0)
        for k in T.serial({candidates}):
            box = operand1[batch, group, T.Cast("int64", k)]
            if box >= T.int64(0) and chosen[0] < T.int64({most}):
                hit = T.alloc_buffer((1,), "int32", scope="local")
                place = T.alloc_buffer((1,), "int64", scope="local")
                hit[0] = 0
                place[0] = T.Cast("int64", thread)
                while hit[0] == 0 and place[0] < chosen[0]:
                    other = result[batch, group, place[0]]
{overlaps}
                    place[0] = place[0] + T.int64({threads})
                hit[0] = T.call_extern("int32", "__syncthreads_or", hit[0])
                if hit[0] == 0:
                    if thread == 0:
                        result[batch, group, chosen[0]] = box
                    chosen[0] = chosen[0] + T.int64(1)
                    T.evaluate(T.call_extern("int32", "__syncthreads_or", 0))
        for turn in T.serial({turns}):
            last = T.Cast("int64", turn * {threads} + thread)
            if last >= chosen[0] and last < T.int64({most}):
                result[batch, group, last] = T.int64(-1)
""",
}
"""One box after another. On CUDA the threads of a block look at the chosen boxes together, and all know how many there are."""


def search_sorted(op: Op, target: str) -> str:
    extent, count = op.operands[0].type.elements, op.result.type.elements
    body = SEARCH_SORTED.format(steps=extent.bit_length(), extent=extent) if extent else "result[k] = T.int64(0)"
    threads = min(THREADS, count)
    depth = " " * (4 if target == "llvm" else 12)
    return EACH[target].format(count=count, blocks=-(-count // threads), threads=threads, body=indented(body, depth))


def non_max_suppression(op: Op, target: str) -> str:
    batches, classes, most = op.result.type.shape
    half = "second * T.float32(0.5)"
    ends = (f"first - {half}", f"first + {half}")
    low, high = ends if op.attrs["center"] else ("T.min(first, second)", "T.max(first, second)")
    overlaps = OVERLAPS.format(low=low, high=high)
    return NON_MAX_SUPPRESSION[target].format(
        rows=batches * classes,
        classes=classes,
        candidates=op.operands[1].type.shape[2],
        most=most,
        threads=THREADS,
        turns=-(-most // THREADS),
        overlaps=indented(overlaps, " " * (16 if target == "llvm" else 20)),
    )


ROUTINES: dict[str, Callable[[Op, str], str]] = {
    "search_sorted": search_sorted,
    "non_max_suppression": non_max_suppression,
}
"""The body of the kernel of each op with one result, for llvm or cuda. It reads `operand0` ... and writes `result`."""


def routine(op: Op, target: str) -> tvm.tirx.PrimFunc:
    """The kernel of an op, ready to be built, on all operands with elements and the result. Raises KernelError if there is none."""
    if op.name not in ROUTINES:
        raise KernelError(f"op {op.name} has no routine")
    named = [(f"operand{n}", value) for n, value in enumerate(op.operands) if value.type.elements]
    named.append(("result", op.result))
    parameters = ", ".join(f"{name}: {buffer(value)}" for name, value in named)
    return from_source(TEMPLATE.format(parameters=parameters, body=indented(ROUTINES[op.name](op, target), "    ")))


def buffer(value: Value) -> str:
    """A tensor's type in TVM's script."""
    sizes = "".join(f"{size}, " for size in value.type.shape)
    return f'T.Buffer(({sizes}), "{STORED[value.type.dtype]}")'


def indented(text: str, by: str) -> str:
    return textwrap.indent(text.strip("\n"), by)
