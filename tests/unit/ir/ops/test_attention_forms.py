# SPDX-License-Identifier: Apache-2.0
"""What attention ops may say beside a scale: windows, capped scores, rows without keys that are zero, and dropout of the weights,
against the ops that they stand for, in f64."""

from __future__ import annotations

import numpy as np
import pytest

from memc.ir.build import IRBuilder
from memc.ir.core import Array, Function, Value
from memc.ir.evaluate import evaluate
from memc.ir.module import Module
from memc.ir.ops.shared.op_def import definition
from memc.ir.types import DType, TensorType
from memc.passes.kernels.select_kernels import library_kernel
from memc.passes.training.backward_pass import append_gradients

HEADS, QUERIES, KEYS, COLUMNS = 3, 7, 9, 4
SEED = np.array(11, np.int64)
SCALE = 0.5


def operands(mask: tuple[int, ...] | None) -> list[Array]:
    rng = np.random.default_rng(6)
    shapes = [(HEADS, QUERIES, COLUMNS), (HEADS, KEYS, COLUMNS), (HEADS, KEYS, COLUMNS)]
    return [rng.standard_normal(s).astype(np.float32) for s in (*shapes, *([mask] if mask is not None else []))]


def written_out(given: list[Array], attrs: dict[str, object]) -> tuple[list[Array], Array]:
    """The result, and the gradients of its sum with `g` in all operands, by ops of the graph; and g."""
    rng = np.random.default_rng(8)
    g = rng.standard_normal((HEADS, QUERIES, COLUMNS)).astype(np.float32)
    arrays = [*given, g]
    params = [Value(f"x{n}", TensorType(DType.F64, a.shape)) for n, a in enumerate(arrays)]
    function = Function(list(params))
    module = Module([function])
    b = IRBuilder(module, function, function.ops)
    q, k, v, *mask, _ = params
    scores = b.op("matmul", [q, k], transpose_a=False, transpose_b=True)
    scores = b.op("mul", [scores, b.scalar(SCALE, DType.F64)])
    if "cap" in attrs:
        cap = b.scalar(attrs["cap"], DType.F64)
        scores = b.op("mul", [b.op("tanh", [b.op("div", [scores, cap])]), cap])
    for m in mask:
        scores = b.op("add", [scores, m])
    if "diagonal" in attrs:
        ends = np.arange(QUERIES)[:, None] + attrs["diagonal"]
        keys = np.arange(KEYS)[None]
        seen = (keys <= ends) & (keys > ends - attrs.get("window", QUERIES + KEYS))
        scores = b.op("select", [b.constant(seen), scores, b.scalar(-np.inf, DType.F64)])
    weights = b.op("softmax", [scores], axis=2)
    if "ratio" in attrs:
        weights = b.op("dropout", [weights, b.constant(SEED)], ratio=attrs["ratio"], stream=attrs["stream"])
    result = b.op("matmul", [weights, v], transpose_a=False, transpose_b=False)
    product = b.op("mul", [result, params[-1]])
    loss = b.op("reduce_sum", [product], axes=(0, 1, 2), keepdims=False)
    gradients = append_gradients(module, function, loss, params[:-1])
    function.returns = [result, *(gradients[p] for p in params[:-1])]
    feeds = {p.name: a.astype(np.float64) for p, a in zip(params, arrays)}
    return list(evaluate(module, feeds).values()), g


DROPPED: dict[str, object] = {"ratio": 0.3, "stream": 2}


@pytest.mark.parametrize("mask", [None, (QUERIES, KEYS), (HEADS, 1, KEYS), (1, QUERIES, 1)], ids=str)
@pytest.mark.parametrize(
    "attrs",
    [
        {"diagonal": 0, "window": 1},
        {"diagonal": 2, "window": 3},
        {"diagonal": 1, "window": 20},
        {"cap": 0.8},
        DROPPED,
        {"diagonal": 3, "window": 4, "cap": 0.8, "blind": "zero", **DROPPED},
    ],
    ids=str,
)
def test_against_the_ops_that_it_stands_for(make_op, check_op, attrs, mask: tuple[int, ...] | None) -> None:
    """Results, gradients, and those of masks that are spread out, as reference and compiled."""
    given = operands(mask)
    (wanted, *gradients), g = written_out(given, attrs)
    seed = [SEED] if "ratio" in attrs else []
    attrs = {"axis": 1, "scale": SCALE, **attrs}
    op = make_op("attention_training", [*given, *seed], **attrs)
    reference = [x.astype(np.float64) for x in given]
    exact = make_op("attention_training", [*reference, *seed], **attrs)
    _, log_sum = definition(exact).evaluate([*reference, *seed], attrs, [r.type for r in exact.results])
    check_op("attention_training", [*given, *seed], [wanted, log_sum], rtol=1e-5, atol=1e-5, **attrs)
    if not seed:
        plain = make_op("attention", given, **attrs)
        check_op("attention", given, [wanted], rtol=1e-5, atol=1e-5, **attrs)
        assert definition(plain).flops(plain) == definition(op).flops(op)
    rows = [log_sum.astype(np.float32), (g * wanted).sum(axis=-1).astype(np.float32), g]
    check_op("attention_grad", [*given, *seed, *rows], gradients[:3], rtol=1e-5, atol=1e-5, **attrs)
    if mask is not None:
        check_op("attention_mask_grad", [*given, *seed, *rows], gradients[3:], rtol=1e-5, atol=2e-5, **attrs)


def test_rows_without_keys_may_be_zero(check_op) -> None:
    """Their result is 0, and they add nothing to any gradient: what is left is that of the other rows."""
    q, k, v = operands(None)
    seen = np.ones((HEADS, QUERIES, KEYS), bool)
    seen[0, 2] = seen[1] = False
    attrs = {"axis": 1, "scale": SCALE, "blind": "zero"}
    (whole, of_q, *_), g = written_out([q, k, v], {})
    blind = ~seen.any(axis=-1)
    whole[blind] = 0
    scores = (q.astype(np.float64) @ k.swapaxes(1, 2)) * SCALE
    log_sum = np.log(np.exp(scores).sum(axis=-1))
    log_sum[blind] = np.inf
    check_op("attention", [q, k, v, seen], [whole], rtol=1e-5, atol=1e-5, **attrs)
    check_op("attention_training", [q, k, v, seen], [whole, log_sum], rtol=1e-5, atol=1e-5, **attrs)
    of_q[blind] = 0
    g[blind] = 0  # What the other rows alone would add to the gradients of keys and values.
    weights = np.exp(scores - np.where(blind, np.inf, log_sum)[..., None])
    of_v = weights.swapaxes(1, 2) @ g
    of_scores = weights * (g @ v.swapaxes(1, 2) - (g * whole).sum(axis=-1)[..., None]) * SCALE
    rows = [log_sum.astype(np.float32), (g * whole).sum(axis=-1).astype(np.float32), np.ones_like(g)]
    rows[2] = np.where(blind[..., None], np.float32(1), g)  # What arrives there does not matter.
    wanted = [of_q, of_scores.swapaxes(1, 2) @ q, of_v]
    check_op("attention_grad", [q, k, v, seen, *rows], wanted, rtol=1e-5, atol=1e-5, **attrs)


def test_a_nan_stays_where_rows_without_keys_are_zero(check_op) -> None:
    """A row with a score of nan sees a key, so it is nan; the row that sees none is 0, and the others are as they were."""
    q, k, v = operands(None)
    mask = np.zeros((QUERIES, KEYS), np.float32)
    mask[1], mask[3] = -np.inf, -np.inf
    mask[3, 4] = np.nan
    (whole, *_), _ = written_out([q, k, v], {})
    whole[:, 1], whole[:, 3] = 0, np.nan
    scores = (q.astype(np.float64) @ k.swapaxes(1, 2)) * SCALE
    log_sum = np.log(np.exp(scores).sum(axis=-1))
    log_sum[:, 1], log_sum[:, 3] = np.inf, np.nan
    attrs = {"axis": 1, "scale": SCALE, "blind": "zero"}
    check_op("attention", [q, k, v, mask], [whole], rtol=1e-5, atol=1e-5, **attrs)
    check_op("attention_training", [q, k, v, mask], [whole, log_sum], rtol=1e-5, atol=1e-5, **attrs)


@pytest.mark.parametrize("attrs", [{"diagonal": 0, "window": 1}, {"cap": 0.8}, {"blind": "zero"}, DROPPED], ids=str)
@pytest.mark.parametrize("name", ["attention_training", "attention_grad"])
def test_cuda_has_no_kernel_of_these(make_op, name: str, attrs: dict[str, object]) -> None:
    """They are written out there; without them, the same op has a kernel."""
    given = operands(None)
    rows = np.ones((HEADS, QUERIES), np.float32)
    more = [rows, rows, np.ones((HEADS, QUERIES, COLUMNS), np.float32)] if name == "attention_grad" else []
    plain = make_op(name, [*given, *more], axis=1, scale=SCALE)
    assert library_kernel(plain, "cuda") is not None
    made = make_op(name, [*given, *([SEED] if "ratio" in attrs else []), *more], axis=1, scale=SCALE, **attrs)
    assert library_kernel(made, "cuda") is None
    assert library_kernel(made, "llvm") is not None


def test_a_dropout_that_drops_nothing_is_written_out(make_op, check_op) -> None:
    """No word is below 2^32 times such a ratio, and kernels know a dropout by those that are."""
    given = operands(None)
    attrs = {"axis": 1, "scale": SCALE}
    plain = make_op("attention_training", given, **attrs)
    wanted = definition(plain).evaluate(given, attrs, [r.type for r in plain.results])
    rarely = {**attrs, "ratio": 1e-11, "stream": 0}
    assert library_kernel(make_op("attention_training", [*given, SEED], **rarely), "llvm") is None
    check_op("attention_training", [*given, SEED], wanted, rtol=1e-5, atol=1e-5, **rarely)


def test_flops_count_the_keys_of_a_window(make_op) -> None:
    given = operands(None)
    made = make_op("attention_training", given, axis=1, scale=SCALE, diagonal=1, window=3)
    assert definition(made).flops(made) == HEADS * (2 + 3 * (QUERIES - 1)) * (16 + 5)
