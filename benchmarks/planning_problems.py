# SPDX-License-Identifier: Apache-2.0
"""Generated problems of address assignment, 1,000 to 1,000,000 buffers and more, the same for one seed everywhere.

Three families. *Training* follows one step of training: operator i runs at time step i forward and at 2m - 1 - i
backward; activations are saved from one to the other, so their lifetimes are nested; gradients of activations and
workspaces are short; gradients of weights live until an update, at once or at the end. *Random* has independent sizes
and lifetimes. *Adversarial* has what greedy placement handles badly. Beside these, *long* problems have few buffers live
at a time and many in all, as unrolled loops and deep chains of layers do.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from memc.solvers.placement import MAX_BYTES, BufferColumns, Problem

ALIGNMENT = 64

Array = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]
Columns = tuple[Array, Array, Array]
"""Sizes in bytes, first and last time steps (half-open)."""
Part = tuple[npt.NDArray[Any], ...]
"""Columns; a fourth array says which rows are there."""


@dataclass(frozen=True)
class Shape:
    """A kind of problem."""

    name: str
    family: str
    """`training`, `random` or `adversarial`."""
    columns: Callable[[np.random.Generator, int], Columns]
    """At least as many buffers as asked for."""

    def problem(self, count: int, seed: int = 0) -> Problem:
        """A problem of exactly `count` buffers."""
        rng = np.random.default_rng([seed, count, *self.name.encode()])
        sizes, lowers, uppers = self.columns(rng, count)
        kept = np.sort(rng.permutation(len(sizes))[:count])
        return Problem(BufferColumns(sizes[kept], lowers[kept], uppers[kept]), ALIGNMENT)


def read_problem(path: Path, *, alignment: int = 1, capacity: int = MAX_BYTES) -> Problem:
    """A problem from a file with the columns id, lower, upper and size, as MiniMalloc reads them."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    sizes, lowers, uppers = ([int(row[name]) for row in rows] for name in ("size", "lower", "upper"))
    return Problem(BufferColumns(sizes, lowers, uppers), alignment, capacity)


def overlap_pairs(problem: Problem) -> int:
    """How many pairs of buffers are live together."""
    columns = BufferColumns.of(problem.buffers)
    begun = np.arange(len(columns))
    return int((begun - np.searchsorted(np.sort(columns.uppers), np.sort(columns.lowers), side="right")).sum())


def training_step(
    rng: np.random.Generator,
    activations: Reals,
    weights: Reals,
    *,
    saved: float = 0.7,
    update_at_end: bool = False,
) -> Columns:
    """One step over m operators with these sizes of results and weights, in bytes.

    Operator i runs at step 4i, its gradient at 4(2m - 1 - i): the steps between are its workspace's. `saved` is the
    share of results that the backward half needs; `update_at_end` keeps all gradients of weights until then.
    """
    m = len(activations)
    forward = 4 * np.arange(m)
    backward = 4 * (2 * m - 1 - np.arange(m))
    end = 8 * m
    parts: list[Part] = []
    keep = rng.random(m) < saved
    reach = np.minimum(forward + 4 * rng.integers(1, 4, m) + 1, end)
    parts.append((activations, forward, np.where(keep, backward + 2, reach)))
    work = rng.random(m) < 0.3
    parts.append((activations * rng.uniform(0.1, 1.5, m), forward + 1, forward + 2, work))
    parts.append((activations, np.maximum(backward - 4, 0), backward + 1))
    parts.append((activations * rng.uniform(0.1, 1.5, m), backward + 1, backward + 2, rng.random(m) < 0.5))
    weighted = rng.random(m) < 0.5
    updated = np.full(m, end) if update_at_end else np.minimum(backward + 4 * rng.integers(1, 3, m), end)
    parts.append((weights, backward, updated, weighted))
    return _joined(parts)


def _joined(parts: list[Part]) -> Columns:
    """Columns of all parts."""
    columns = []
    for column in range(3):
        pieces = [part[column][part[3]] if len(part) > 3 else part[column] for part in parts]
        columns.append(np.concatenate([piece.astype(np.int64) for piece in pieces]))
    return np.maximum(columns[0], 1), columns[1], columns[2]


def _operators(count: int) -> int:
    """Operators whose step has at least `count` buffers: 3.3 each on average."""
    return count // 3 + 10


def convnet(rng: np.random.Generator, count: int) -> Columns:
    """Five stages: results shrink from stage to stage, weights grow; weights are updated at the end."""
    m = _operators(count)
    stage = 5 * np.arange(m) // m
    results = 2.0**24 * 0.5**stage * rng.choice([0.25, 0.5, 1.0, 1.0], m)
    return training_step(rng, results, 2.0**14 * 4.0**stage * rng.choice([0.1, 1.0], m), update_at_end=True)


def transformer(rng: np.random.Generator, count: int) -> Columns:
    """Blocks of one pattern: projections, attention of quadratic size, wide inner layers."""
    m = _operators(count)
    pattern = np.array([1.0, 3.0, 1.0, 2.7, 2.7, 2.7, 1.0, 1.0, 1.0, 4.0, 4.0, 1.0, 1.0])
    results = 2.0**20 * pattern[np.arange(m) % len(pattern)]
    return training_step(rng, results, np.full(m, 2.0**22), saved=0.8)


def mixed_layers(rng: np.random.Generator, count: int) -> Columns:
    """Sizes spread over four orders of magnitude, without a pattern."""
    m = _operators(count)
    return training_step(rng, np.exp(rng.uniform(6, 16, m)), np.exp(rng.uniform(6, 16, m)), saved=0.5)


def encoder_decoder(rng: np.random.Generator, count: int) -> Columns:
    """A U-Net: sizes fall to the middle and rise again, and the first half's results reach across to the second."""
    m = _operators(count)
    depth = np.minimum(np.arange(m), m - 1 - np.arange(m)) * 8 // m
    results = 2.0**24 * 0.5**depth * rng.choice([0.5, 1.0], m)
    sizes, lowers, uppers = training_step(rng, results, np.full(m, 2.0**18), saved=0.4)
    skips = np.flatnonzero(rng.random(m // 2) < 0.2)
    return (
        np.concatenate([sizes, results[skips].astype(np.int64)]),
        np.concatenate([lowers, 4 * skips]),
        np.concatenate([uppers, 4 * (m - skips)]),
    )


def checkpointed(rng: np.random.Generator, count: int) -> Columns:
    """Segments of square-root length keep only their first result; the backward half computes the rest again."""
    m = _operators(count)
    length = max(2, int(np.sqrt(m)))
    index = np.arange(m)
    segment = index // length
    last = np.minimum((segment + 1) * length, m)
    sizes = np.exp(rng.uniform(9, 16, m))
    # The backward half of a segment begins when those after it are done, and takes twice its length.
    begins = m + 2 * (m - last)
    again = begins + (index - segment * length)
    gradient = begins + (last - segment * length) + (last - 1 - index)
    first = index % length == 0
    return _joined(
        [
            (sizes, index, gradient + 1, first),
            (sizes, index, index + 2, ~first),
            (sizes, again, gradient + 1, ~first),
            (sizes, np.maximum(gradient - 1, 0), gradient + 1),
            (np.exp(rng.uniform(9, 14, m)), gradient, gradient + rng.integers(1, 4, m)),
        ]
    )


def random_dense(rng: np.random.Generator, count: int) -> Columns:
    """Lifetimes between two uniform moments: a third of all buffers is live at a time."""
    ends = np.sort(rng.integers(0, 4 * count, (count, 2)), axis=1)
    return rng.integers(1, 1 << 20, count), ends[:, 0], ends[:, 1] + 1


def random_sparse(rng: np.random.Generator, count: int) -> Columns:
    """Some fifty live at a time, sizes log-normal."""
    lowers = rng.integers(0, count, count)
    return _bytes(rng.lognormal(10, 2, count)), lowers, lowers + 1 + rng.exponential(50, count).astype(np.int64)


def random_scales(rng: np.random.Generator, count: int) -> Columns:
    """Lifetimes and sizes of all scales: the logarithm of each is uniform."""
    lowers = rng.integers(0, 2 * count, count)
    return (
        _bytes(np.exp(rng.uniform(4, 18, count))),
        lowers,
        lowers + _bytes(np.exp(rng.uniform(0, np.log(count), count))),
    )


def staircase(rng: np.random.Generator, count: int) -> Columns:
    """Lifetimes of nearly one length, each beginning a little later, of very different sizes."""
    lowers = np.arange(count)
    lengths = count // 8 + rng.integers(0, max(2, count // 64), count)
    return (
        np.where(rng.random(count) < 0.5, rng.integers(64, 512, count), rng.integers(1 << 14, 1 << 16, count)),
        (lowers),
        lowers + lengths,
    )


def straddling(rng: np.random.Generator, count: int) -> Columns:
    """A staircase of long lifetimes, and under each step a short one: few fit a line, many look as if they did."""
    half = count // 2 + 1
    steps = 4 * np.arange(half)
    length = 4 * (half // 4 + 1)
    return _joined(
        [
            (rng.integers(64, 1 << 16, half), steps, steps + length + rng.integers(0, 3, half)),
            (rng.integers(64, 1 << 12, half), steps + 1, steps + 2 + rng.integers(0, 2, half)),
        ]
    )


def comb(rng: np.random.Generator, count: int) -> Columns:
    """Rounds that free all but every second buffer and then ask for twice the size (after Robson 1971)."""
    sizes, lowers, uppers = [], [], []
    waves = max(1, count // 2000)
    size, begin = np.full(waves, 1 << 10), 4096 * np.arange(waves)
    per_wave = -(-count // waves)
    live = per_wave // 2
    for _ in range(16):
        moment = begin[:, None] + np.arange(live)[None, :]
        stays = np.arange(live) % 2 == 1
        leaves = np.where(stays, 4000, 2 * live) + 0 * moment + begin[:, None]
        sizes.append(np.broadcast_to(size[:, None], moment.shape).ravel())
        lowers.append(moment.ravel())
        uppers.append(np.maximum(leaves, moment + 1).ravel())
        begin, size, live = begin + 2 * live, 2 * size + 64 * rng.integers(0, 3, waves), live // 2
        if live == 0:
            break
    filler = 4096 * rng.integers(0, waves, count)
    lowers.append(filler + rng.integers(0, 4000, count))
    sizes.append(64 * rng.integers(1, 64, count))
    uppers.append(lowers[-1] + rng.integers(1, 8, count))
    joined = np.concatenate(sizes), np.concatenate(lowers), np.concatenate(uppers)
    return joined[0][:count], joined[1][:count], joined[2][:count]


def chain(length: int) -> Callable[[np.random.Generator, int], Columns]:
    """Buffer k lives from k to k + length."""

    def columns(rng: np.random.Generator, count: int) -> Columns:
        lowers = np.arange(count)
        return rng.integers(1, 1_000_001, count), lowers, lowers + length

    return columns


def chain_of_scales(rng: np.random.Generator, count: int) -> Columns:
    """Lives of three steps; a third each of sizes up to 100, of sizes up to a million, and of a million bytes."""
    lowers = np.arange(count)
    sizes = np.stack([rng.integers(1, 101, count), rng.integers(100_000, 1_000_001, count), np.full(count, 1_000_000)])
    return sizes[rng.integers(0, 3, count), lowers], lowers, lowers + 3


def periodic(rng: np.random.Generator, count: int) -> Columns:
    """Lives of 2, 3 and 4 steps in turn."""
    lowers = np.arange(count)
    return rng.integers(1, 1_000_001, count), lowers, lowers + 2 + lowers % 3


def random_lives(rng: np.random.Generator, count: int) -> Columns:
    """Some fifty live at a time: beginnings anywhere, lives of up to a hundred steps."""
    lowers = rng.integers(0, count, count)
    return rng.integers(1, 1_000_001, count), lowers, lowers + rng.integers(1, 101, count)


def residual(rng: np.random.Generator, count: int) -> Columns:
    """Blocks of a branch of two to four steps beside the input that is added to its result."""
    lengths = rng.integers(2, 5, count // 2 + 1)
    begins = np.cumsum(lengths) - lengths
    inside = np.concatenate([begin + np.arange(1, length) for begin, length in zip(begins, lengths)])
    sizes = rng.integers(1, 1_000_001, len(begins) + len(inside))
    return sizes, np.concatenate([begins, inside]), np.concatenate([begins + lengths + 1, inside + 2])


def _bytes(values: Reals) -> Array:
    """Whole numbers of at least 1."""
    return np.maximum(values.astype(np.int64), 1)


SHAPES = [
    Shape("convnet", "training", convnet),
    Shape("transformer", "training", transformer),
    Shape("mixed-layers", "training", mixed_layers),
    Shape("encoder-decoder", "training", encoder_decoder),
    Shape("checkpointed", "training", checkpointed),
    Shape("random-dense", "random", random_dense),
    Shape("random-sparse", "random", random_sparse),
    Shape("random-scales", "random", random_scales),
    Shape("staircase", "adversarial", staircase),
    Shape("straddling", "adversarial", straddling),
    Shape("comb", "adversarial", comb),
]

LONG = [
    Shape("chain of 2", "long", chain(2)),
    Shape("chain of 3", "long", chain(3)),
    Shape("chain of 5", "long", chain(5)),
    Shape("chain of 8", "long", chain(8)),
    Shape("chain of 3, mixed sizes", "long", chain_of_scales),
    Shape("periods of 2, 3, 4", "long", periodic),
    Shape("random lives", "long", random_lives),
    Shape("residual blocks", "long", residual),
]


def with_alignments(problem: Problem, seed: int = 0) -> Problem:
    """Every other buffer, by chance, at multiples of 4,096 bytes."""
    columns = BufferColumns.of(problem.buffers)
    rng = np.random.default_rng(seed)
    own = np.where(rng.random(len(columns)) < 0.5, 4096, ALIGNMENT)
    return replace(problem, buffers=BufferColumns(columns.sizes, columns.lowers, columns.uppers, alignments=own))


def with_gaps(problem: Problem, seed: int = 0) -> Problem:
    """Half of the buffers that live for three steps or more are not live between their first and their last."""
    columns = BufferColumns.of(problem.buffers)
    gaps = (columns.uppers - columns.lowers >= 3) & (np.random.default_rng(seed).random(len(columns)) < 0.5)
    ends = zip(columns.lowers.tolist(), columns.uppers.tolist(), gaps.tolist())
    lives = [((lower, lower + 1), (upper - 1, upper)) if gap else () for lower, upper, gap in ends]
    return replace(problem, buffers=BufferColumns(columns.sizes, columns.lowers, columns.uppers, lives=lives))


def with_fixed(problem: Problem, offsets: Array, seed: int = 0) -> Problem:
    """Every fiftieth buffer, by chance, where a plan has it."""
    columns = BufferColumns.of(problem.buffers)
    fixed = np.where(np.random.default_rng(seed).random(len(columns)) < 0.02, offsets, -1)
    return replace(problem, buffers=BufferColumns(columns.sizes, columns.lowers, columns.uppers, fixed))
