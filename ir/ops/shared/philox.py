# SPDX-License-Identifier: Apache-2.0
"""The counter-based generator of random numbers: Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
SC 2011), ten rounds that mix a counter under a key.

Element i of an op draws from the counter (i, stream) under the key `seed`, so a draw depends on nothing else: passes may compute
it again, and all targets draw the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...core import Array
from ...errors import OpError
from ...types import DType, TensorType
from .common import int_attr
from .op_def import Attrs, Builder, Expr, Tensor

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
"""What the two words of the key grow by in each round."""
WORD = 0xFFFFFFFF


def require_draw(seed: TensorType, attrs: Attrs) -> None:
    """Raise OpError unless an op's seed and its attribute `stream` are such."""
    if seed != TensorType(DType.I64, ()):
        raise OpError(f"expected a seed i64[], got {seed}")
    if not 0 <= int_attr(attrs, "stream") <= WORD:
        raise OpError(f"expected attribute `stream` from 0 to {WORD}, got {attrs['stream']}")


def philox(counter: Sequence[Array], key: tuple[int, int]) -> tuple[Array, ...]:
    """Four words of 32 bits (in u64) for each counter, of four words in u64."""
    mask, half = np.uint64(WORD), np.uint64(32)
    c = list(counter)
    for turn in range(ROUNDS):
        k = [np.uint64((word + turn * step) & WORD) for word, step in zip(key, WEYL)]
        products = [c[0] * np.uint64(MULTIPLIERS[0]), c[2] * np.uint64(MULTIPLIERS[1])]
        c = [
            (products[1] >> half) ^ c[1] ^ k[0],
            products[1] & mask,
            (products[0] >> half) ^ c[3] ^ k[1],
            products[0] & mask,
        ]
    return tuple(c)


def drawn(seed: Array, stream: int, shape: Sequence[int]) -> tuple[Array, ...]:
    """Four words of 32 bits (in u64) for each element of a tensor of `shape`."""
    index = np.arange(int(np.prod(shape, dtype=np.int64)), dtype=np.uint64)
    bits = int(seed) & (2**64 - 1)
    zero = np.zeros_like(index)
    counter = (index & np.uint64(WORD), index >> np.uint64(32), zero + np.uint64(stream), zero)
    return tuple(word.reshape(tuple(shape)) for word in philox(counter, (bits & WORD, bits >> 32)))


def lowered(b: Builder, seed: Tensor, stream: int, shape: tuple[int, ...]) -> Sequence[Tensor]:
    """`drawn` as stages of a kernel."""
    words = TensorType(DType.U64, shape)
    mask, half = b.const(WORD, DType.U64), b.const(32, DType.U64)

    def stage(body: Callable[..., Expr]) -> Tensor:
        """A stage of its own, whose value is worked out once however often it is used."""
        return b.compute(words, body)

    def key(number: int, turn: int) -> Tensor:
        def body(*index: Expr) -> Expr:
            bits = b.bitcast(seed[()], DType.U64)
            word = b.binary("shift_right", bits, half) if number else bits
            return b.binary("bitwise_and", word + b.const(turn * WEYL[number] & WORD, DType.U64), mask)

        return stage(body)

    def product(word: Tensor, number: int) -> Tensor:
        return stage(lambda *index: word[index] * b.const(MULTIPLIERS[number], DType.U64))

    def low(word: Tensor) -> Tensor:
        return stage(lambda *index: b.binary("bitwise_and", word[index], mask))

    def mixed(word: Tensor, other: Tensor, key_word: Tensor) -> Tensor:
        def body(*index: Expr) -> Expr:
            high = b.binary("shift_right", word[index], half)
            return b.binary("bitwise_xor", b.binary("bitwise_xor", high, other[index]), key_word[index])

        return stage(body)

    def position(*index: Expr) -> Expr:
        flat: Expr = b.const(0, DType.U64)
        for i, extent in zip(index, shape):
            flat = flat * b.const(extent, DType.U64) + b.cast(i, DType.U64)
        return flat

    place = stage(position)
    c = [
        low(place),
        stage(lambda *index: b.binary("shift_right", place[index], half)),
        stage(lambda *index: b.const(stream, DType.U64)),
        stage(lambda *index: b.const(0, DType.U64)),
    ]
    for turn in range(ROUNDS):
        first, second = product(c[0], 0), product(c[2], 1)
        c = [mixed(second, c[1], key(0, turn)), low(second), mixed(first, c[3], key(1, turn)), low(first)]
    return c
