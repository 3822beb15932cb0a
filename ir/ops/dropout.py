# SPDX-License-Identifier: Apache-2.0
"""dropout: elements set to zero at random, by a counter-based generator whose mask is never stored.

The generator is Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): ten rounds that
mix a counter under a key. Element i draws from the counter (i, stream) under the key `seed`, so a mask depends on nothing
else: the backward pass and recomputations generate it again, and all targets generate the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..build import IRBuilder
from ..core import Array, Op, Value
from ..errors import OpError
from ..types import DType, TensorType
from .rules.base import Attrs, Builder, Compute, Expr, OpDef, Tensor, Trait, register
from .rules.common import compute_dtype, count, float_attr, int_attr

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
"""What the two words of the key grow by in each round."""
WORD = 0xFFFFFFFF


def infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    count(operands, 2)
    x, seed = operands
    if not x.dtype.is_float:
        raise OpError(f"expected floats, got {x}")
    if seed != TensorType(DType.I64, ()):
        raise OpError(f"expected a seed i64[], got {seed}")
    if not 0 <= float_attr(attrs, "ratio") < 1:
        raise OpError(f"expected attribute `ratio` from 0 to below 1, got {attrs['ratio']}")
    if not 0 <= int_attr(attrs, "stream") <= WORD:
        raise OpError(f"expected attribute `stream` from 0 to {WORD}, got {attrs['stream']}")
    return [x]


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


def _threshold(attrs: Attrs) -> int:
    """Words below it drop their element."""
    return round(float_attr(attrs, "ratio") * 2**32)


def evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    x, seed = inputs
    index = np.arange(x.size, dtype=np.uint64)
    bits = int(seed) & (2**64 - 1)
    zero = np.zeros_like(index)
    counter = (index & np.uint64(WORD), index >> np.uint64(32), zero + np.uint64(int_attr(attrs, "stream")), zero)
    word = philox(counter, (bits & WORD, bits >> 32))[0].reshape(x.shape)
    wide = compute_dtype(results[0].dtype).numpy
    kept = x.astype(wide) * wide.type(1 / (1 - float_attr(attrs, "ratio")))
    return [np.where(word < np.uint64(_threshold(attrs)), wide.type(0), kept).astype(x.dtype)]


def lower(b: Builder, op: Op, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    x = op.result.type
    wide = compute_dtype(x.dtype)
    words = x.with_dtype(DType.U64)
    mask, half = b.const(WORD, DType.U64), b.const(32, DType.U64)

    def stage(body: Callable[..., Expr]) -> Tensor:
        """A stage of its own, whose value is worked out once however often it is used."""
        return b.compute(words, body)

    def key(number: int, turn: int) -> Tensor:
        def body(*index: Expr) -> Expr:
            seed = b.bitcast(inputs[1][()], DType.U64)
            word = b.binary("shift_right", seed, half) if number else seed
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
        for i, extent in zip(index, x.shape):
            flat = flat * b.const(extent, DType.U64) + b.cast(i, DType.U64)
        return flat

    place = stage(position)
    c = [
        low(place),
        stage(lambda *index: b.binary("shift_right", place[index], half)),
        stage(lambda *index: b.const(int_attr(op.attrs, "stream"), DType.U64)),
        stage(lambda *index: b.const(0, DType.U64)),
    ]
    for turn in range(ROUNDS):
        first, second = product(c[0], 0), product(c[2], 1)
        c = [mixed(second, c[1], key(0, turn)), low(second), mixed(first, c[3], key(1, turn)), low(first)]
    word = c[0]

    def element(*index: Expr) -> Expr:
        value = b.cast(inputs[0][index], wide) * b.const(1 / (1 - float_attr(op.attrs, "ratio")), wide)
        dropped = b.cast(word[index], DType.I64) < b.const(_threshold(op.attrs), DType.I64)
        return b.cast(b.select(dropped, b.const(0, wide), value), x.dtype)

    return [b.compute(x, element)]


def gradient(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    """The same elements of the gradient. Reads the seed only."""
    (g,) = grads
    seed = op.operands[1]
    attrs = {name: op.attrs[name] for name in ("ratio", "stream")}
    return [None if g is None else b.op("dropout", [g, seed], **attrs), None]


register(
    OpDef(
        name="dropout",
        doc="x with each element set to zero with probability `ratio`, else divided by 1 - ratio.\n\n"
        "Operands x (floats) and seed, i64[], for example a step counter. Attributes `ratio`, in [0, 1), and `stream`, the\n"
        "number of the op among those that share a seed. Equal seed and stream give the same mask for one number of\n"
        "elements, on every target: by Philox 4x32-10 with the key seed and the counter (position, stream).",
        spec="https://onnx.ai/onnx/operators/onnx__Dropout.html",
        infer=infer,
        evaluate=evaluate,
        gradient=gradient,
        in_place=lambda op: (0,),
        view=None,
        slices=None,
        flops=lambda op: 2 * op.result.type.elements,
        lower=Compute(lower),
        library=(),
        traits=frozenset({Trait.ELEMENTWISE, Trait.RANDOM, Trait.CHEAP}),
    )
)
