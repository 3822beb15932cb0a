# SPDX-License-Identifier: Apache-2.0
"""attention_training and attention_grad: values, gradients against the written-out form, hard rows, and the contract."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

import numpy as np
import pytest

from memc.ir.build import IRBuilder
from memc.ir.core import Function, Role, Value
from memc.ir.errors import OpError
from memc.ir.evaluate import evaluate
from memc.ir.module import Module
from memc.ir.ops.shared.op_def import definition
from memc.ir.types import DType, TensorType
from memc.passes.training.backward_pass import append_gradients


@dataclass(frozen=True)
class Case:
    """Operands of shapes: a mask is random, or as given."""

    q: tuple[int, ...]
    k: tuple[int, ...]
    width: int
    attrs: dict[str, object] = field(default_factory=dict)
    mask: np.ndarray | tuple[int, ...] | None = None

    def __str__(self) -> str:
        mask = self.mask.dtype if isinstance(self.mask, np.ndarray) else self.mask
        return f"{self.q}-{self.k}-{self.width}-{self.attrs}-{mask}".replace(" ", "")

    @property
    def operands(self) -> list[np.ndarray]:
        rng = np.random.default_rng(zlib.crc32(str(self).encode()))
        found = [
            rng.standard_normal(shape).astype(np.float32) for shape in (self.q, self.k, (*self.k[:-1], self.width))
        ]
        if isinstance(self.mask, np.ndarray):
            found.append(self.mask)
        elif self.mask is not None:
            found.append(rng.standard_normal(self.mask).astype(np.float32))
        return found


def hidden(rows: int, columns: int) -> np.ndarray:
    """A mask of bool in which every query sees its first key, at least."""
    seen = np.random.default_rng(5).random((rows, columns)) < 0.6
    seen[:, 0] = True
    return seen


def infinite(rows: int, columns: int) -> np.ndarray:
    return np.where(hidden(rows, columns), np.float32(0.5), np.float32(-np.inf))


OUTSIDE = {"axis": 2, "scale": 0.4}
CASES = [
    Case((2, 3, 5, 8), (2, 3, 5, 8), 8, OUTSIDE),
    Case((2, 5, 3, 8), (2, 7, 3, 8), 6, {"axis": 1, "scale": 0.4}, (2, 1, 5, 7)),
    Case((5, 2, 3, 8), (7, 2, 3, 8), 6, {"axis": 0, "scale": 0.4}, (3, 5, 7)),
    Case((2, 6, 5, 4), (2, 2, 7, 4), 3, {**OUTSIDE, "diagonal": 2}),  # Three heads of q to each of k.
    Case((2, 5, 6, 4), (2, 7, 3, 4), 3, {"axis": 1, "scale": 0.4}, (1, 6, 1, 7)),
    Case((4, 6, 4), (2, 6, 4), 4, {"axis": 1, "scale": 0.4, "diagonal": 0}),
    Case((13, 4), (29, 4), 4, {"axis": 0, "scale": 0.4, "diagonal": 0}),  # Keys that no query sees.
    Case((13, 4), (29, 4), 4, {"axis": 0, "scale": 0.4, "diagonal": 16}, infinite(13, 29)),
    Case((2, 3, 9, 4), (2, 3, 11, 4), 4, OUTSIDE, hidden(9, 11)),
    Case((2, 3, 9, 4), (2, 3, 11, 4), 4, OUTSIDE, infinite(9, 11)),
    Case((1, 1), (1, 1), 1, {"axis": 0, "scale": 1.0}),
    Case((2, 1, 8), (2, 1, 8), 8, {"axis": 1, "scale": 0.4, "diagonal": 0}),
]


def written_out(case: Case) -> tuple[Module, list[Value]]:
    """softmax(scale q k^T + mask) v of f64, its sum with the weights `g`, and q, k, v and the float mask."""
    operands = case.operands
    kinds = [DType.BOOL if x.dtype == bool else DType.F64 for x in operands]
    params = [
        Value(f"x{n}", TensorType(kind, x.shape), role=Role.INPUT) for n, (kind, x) in enumerate(zip(kinds, operands))
    ]
    axis, heads = case.attrs["axis"], [n for d, n in enumerate(case.q[:-1]) if d != case.attrs["axis"]]
    g = Value("g", TensorType(DType.F64, (*case.q[:-1], case.width)), role=Role.INPUT)
    function = Function([*params, g])
    module = Module([function])
    b = IRBuilder(module, function, function.ops)

    def moved(x: Value) -> Value:
        rank = x.type.rank
        x = b.op("transpose", [x], perm=(*(d for d in range(rank - 1) if d != axis), axis, rank - 1))
        for d, wanted in enumerate(heads):
            parts = [n // (wanted // x.type.shape[d]) for n in range(wanted)]
            x = b.op("gather", [x, b.constant(np.array(parts, np.int64))], axis=d)
        return x

    q, k, v = (moved(x) for x in params[:3])
    scores = b.op("matmul", [q, k], transpose_a=False, transpose_b=True)
    scores = b.op("mul", [scores, b.scalar(case.attrs["scale"], DType.F64)])
    masks = list(params[3:])
    if "diagonal" in case.attrs:
        masks.append(b.constant(np.tri(*scores.type.shape[-2:], k=case.attrs["diagonal"], dtype=bool)))
    for mask in masks:
        if mask.type.dtype is DType.BOOL:
            scores = b.op("select", [mask, scores, b.scalar(-np.inf, DType.F64)])
        else:
            scores = b.op("add", [scores, mask])
    weights = b.op("softmax", [scores], axis=scores.type.rank - 1)
    result = b.op("matmul", [weights, v], transpose_a=False, transpose_b=False)
    product = b.op("mul", [result, moved(g)])
    loss = b.op("reduce_sum", [product], axes=tuple(range(product.type.rank)), keepdims=False)
    wrt = [p for p in params if p.type.dtype.is_float]
    gradients = append_gradients(module, function, loss, wrt)
    function.returns = [result, *(gradients[p] for p in wrt)]
    return module, wrt


@pytest.mark.parametrize("case", CASES, ids=str)
def test_against_the_written_out_form_in_f64(make_op, check_op, case: Case) -> None:
    """Results and every gradient of f32 are within 1e-5, as reference and compiled."""
    operands = case.operands
    g = np.random.default_rng(1).standard_normal((*case.q[:-1], case.width)).astype(np.float32)
    module, wrt = written_out(case)
    feeds = {f"x{n}": x if x.dtype == bool else x.astype(np.float64) for n, x in enumerate(operands)}
    wanted, *gradients = evaluate(module, {**feeds, "g": g.astype(np.float64)}).values()
    wanted = np.moveaxis(wanted, -2, case.attrs["axis"])
    log_sum = of_rows(case)
    plain = make_op("attention", operands, **case.attrs)
    (found,) = definition(plain).evaluate(operands, plain.attrs, [plain.result.type])
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    check_op("attention_training", operands, [wanted, log_sum], rtol=1e-5, atol=1e-5, **case.attrs)
    share = (g * wanted).sum(axis=-1)
    given = [*operands, log_sum.astype(np.float32), share.astype(np.float32), g]
    check_op("attention_grad", given, gradients[:3], rtol=1e-5, atol=1e-5, **case.attrs)


def of_rows(case: Case) -> np.ndarray:
    """log(sum(exp(scores))) of each row, one by one, in f64."""
    q, k, _, *mask = case.operands
    axis = case.attrs["axis"]
    q, k = (np.moveaxis(x, axis, -2).astype(np.float64) for x in (q, k))
    shape = (*q.shape[:-1], k.shape[-2])
    mask = np.broadcast_to(mask[0], shape) if mask else np.zeros(shape)
    found = np.zeros(q.shape[:-1])
    for *head, row in np.ndindex(*q.shape[:-1]):
        of_k = tuple(h * n // m for h, n, m in zip(head, k.shape, q.shape))
        total = 0.0
        for column in range(k.shape[-2]):
            entry = mask[(*head, row, column)]
            if column > row + case.attrs.get("diagonal", column) or entry is np.False_:
                continue
            score = case.attrs["scale"] * (q[(*head, row)] @ k[(*of_k, column)])
            total += np.exp(score if mask.dtype == bool else score + entry)
        found[(*head, row)] = np.log(total)
    return np.moveaxis(found[..., None], -2, axis)[..., 0]


@pytest.mark.parametrize("dtype, tolerance", [(np.float16, 4e-3), (np.float64, 1e-12)])
def test_other_floats(make_op, check_op, dtype, tolerance: float) -> None:
    q, k, v = (x.astype(dtype) for x in CASES[0].operands)
    narrow = make_op("attention_training", [q, k, v], **OUTSIDE)
    wide = [x.astype(np.float64) for x in (q, k, v)]
    exact = make_op("attention_training", wide, **OUTSIDE)
    expected = definition(exact).evaluate(wide, exact.attrs, [r.type for r in exact.results])
    check_op("attention_training", [q, k, v], expected, rtol=tolerance, atol=tolerance, **OUTSIDE)
    assert narrow.results[1].type.dtype is (DType.F32 if dtype == np.float16 else DType.F64)


def test_a_row_that_sees_no_key_is_nan(make_op, check_op) -> None:
    """As softmax of only -inf: result, log-sum-exp and q's gradient in that row, and all that it adds to; not other heads."""
    q, k, v, g = (np.ones((2, 3, 4), np.float32) for _ in range(4))
    mask = np.ones((2, 3, 3), bool)
    mask[0, 1] = False
    attrs = {"axis": 1, "scale": 0.5}
    result, log_sum = np.ones((2, 3, 4)), np.full((2, 3), 2 + np.log(3))
    result[0, 1], log_sum[0, 1] = np.nan, np.nan
    check_op("attention_training", [q, k, v, mask], [result, log_sum], **attrs)
    share = (g * result).sum(axis=-1)
    of_q, of_k, of_v = np.zeros((2, 3, 4)), np.zeros((2, 3, 4)), np.ones((2, 3, 4))
    of_q[0, 1], of_k[0], of_v[0] = np.nan, np.nan, np.nan
    given = [q, k, v, mask, log_sum.astype(np.float32), share.astype(np.float32), g]
    check_op("attention_grad", given, [of_q, of_k, of_v], **attrs)


SEED = np.array(1, np.int64)
SHAPES = {"q": (2, 4, 8), "k": (2, 5, 8), "v": (2, 5, 6), "log_sum": (2, 4), "share": (2, 4), "g": (2, 4, 6)}


@pytest.mark.parametrize(
    ("changed", "attrs", "message"),
    [
        ({"k": (4, 5, 8), "v": (4, 5, 6)}, {}, "as many heads or a divisor"),
        ({"v": (2, 6, 6)}, {}, "expected values"),
        ({"log_sum": (2, 5)}, {}, "expected log_sum"),
        ({"share": (2, 4, 1)}, {}, "expected share"),
        ({"g": (2, 4, 8)}, {}, "expected g"),
        ({}, {"diagonal": 0.5}, "an integer"),
        ({}, {"diagonal": 2**63 - 1}, "an integer within"),
        ({}, {"diagonal": -(2**63)}, "an integer within"),
        ({}, {"diagonal": 0, "window": 2**63 - 1}, "a number of keys"),
        ({}, {"axis": 2}, "before the last"),
        ({}, {"window": 2}, "with a `diagonal`"),
        ({}, {"window": 0, "diagonal": 0}, "a number of keys"),
        ({}, {"cap": 0.0}, "`cap` above 0"),
        ({}, {"blind": "nan"}, "missing or zero"),
        ({}, {"ratio": 0.5, "stream": 0}, "a seed, `ratio` and `stream`, or none"),
        ({}, {"ratio": 1.0, "stream": 0}, "from 0 to below 1"),
    ],
)
def test_contract(make_op, changed, attrs, message: str) -> None:
    shapes = {**SHAPES, **changed}
    with pytest.raises(OpError, match=message):
        make_op(
            "attention_grad", [np.ones(s, np.float32) for s in shapes.values()], **{"axis": 1, "scale": 1.0, **attrs}
        )


def test_operands_and_masks_of_other_types(make_op) -> None:
    given = [np.ones(s, np.float32) for s in SHAPES.values()]
    with pytest.raises(OpError, match="log_sum, share and g, got 5"):
        make_op("attention_grad", given[:5], axis=1, scale=1.0)
    with pytest.raises(OpError, match="a mask of bool"):
        make_op("attention_training", [*given[:3], np.ones((4, 5), np.int32)], axis=1, scale=1.0)
    mask, dropped = np.ones((4, 5), np.float32), {"ratio": 0.5, "stream": 0}
    for more, attrs in (([mask, mask], {}), ([SEED, mask], dropped), ([SEED, SEED], dropped)):
        with pytest.raises(OpError, match="expected .* mask"):
            make_op("attention_training", [*given[:3], *more], axis=1, scale=1.0, **attrs)


def test_flops_and_bytes(make_op) -> None:
    q, k, v, log_sum, share, g = (np.ones(s, np.float32) for s in SHAPES.values())
    made = make_op("attention_training", [q, k, v], axis=1, scale=1.0, diagonal=0)
    rules = definition(made)
    assert rules.flops(made) == 2 * (1 + 2 + 3 + 4) * (16 + 12 + 5)
    assert rules.in_place is not None and tuple(rules.in_place(made)) == ()
    back = make_op("attention_grad", [q, k, v, log_sum, share, g], axis=1, scale=1.0)
    rules = definition(back)
    assert rules.flops(back) == 2 * 4 * 5 * (48 + 24 + 7)
    assert rules.in_place is not None and tuple(rules.in_place(back)) == (0,)
    same = make_op("attention_grad", [q, k, k, log_sum, share, q], axis=1, scale=1.0)
    assert tuple(definition(same).in_place(same)) == (0, 5)
