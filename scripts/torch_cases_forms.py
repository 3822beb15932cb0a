# SPDX-License-Identifier: Apache-2.0
"""Cases of overloads of two tensors, of elements in other places, of forms with numbers, and of sums and orders."""

from __future__ import annotations

import torch
from torch_case_inputs import A, Case, each, f, i, m, u


def pairs() -> list[Case]:
    x, y = f(2, 3), f(2, 3)
    signed = torch.tensor([0.0, -0.0, 2.0, -torch.inf])
    return [
        *each("copysign.Tensor hypot.default logaddexp.default logaddexp2.default", x, y),
        *each("copysign.Tensor hypot.default logaddexp.default logaddexp2.default", signed, signed.flip(0)),
        *each("hypot.default", torch.tensor([3e30, torch.inf]), torch.tensor([4e30, torch.nan])),
        *each("copysign.Tensor", i(5, 4) - 2, signed),
        (lambda a: A.copysign.Scalar(a, -2.0), (x,)),
        *each("xlogy.Tensor", torch.tensor([0.0, 0.0, 2.0, 0.5]), torch.tensor([0.0, torch.nan, 0.5, 3.0])),
        (lambda a: (A.xlogy.Scalar_Other(a, 0.5), A.xlogy.Scalar_Self(2.0, a)), (u(4),)),
        *each("cosine_similarity.default", f(2, 3, 4), f(3, 1)),
        (lambda a, b: A.cosine_similarity.default(a, b, 0, 0.5), (f(3) * 0.1, f(3) * 0.1)),
        *each("linalg_cross.default", f(2, 3), f(2, 3)),
        (lambda a, b: A.linalg_cross.default(a, b, dim=0), (f(3, 2), f(3, 1))),
        *each("inner.default", f(2, 3), f(4, 3)),
        *each("inner.default", f(2, 3), f()),
        (lambda a, b: A.tensordot.default(a, b, [1, 2], [2, 0]), (f(2, 3, 4), f(4, 5, 3))),
        *each("linalg_vecdot.default", f(2, 3), f(3)),
        (lambda a, b, c: A.addmv.default(a, b, c, beta=0.5, alpha=2.0), (f(2), f(2, 3), f(3))),
        (lambda a, b, c: A.addbmm.default(a, b, c, beta=0, alpha=2.0), (f(2, 4), f(2, 2, 3), f(2, 3, 4))),
        *each("addr.default", f(2, 3), f(2), f(3)),
        (lambda a, b: A.einsum.default("...ij,...jk->...ik", [a, b]), (f(2, 1, 2, 3), f(4, 3, 2))),
        (lambda a, b: A.einsum.default("bi...,bi->b...", [a, b]), (f(2, 3, 2), f(2, 1))),
        (lambda a: (A.einsum.default("ii->i", [a]), A.einsum.default("ii", [a])), (f(3, 3),)),
    ]


def rearranged() -> list[Case]:
    x, square = f(2, 3, 4), f(3, 4)
    return [
        (lambda a: (*A.tensor_split.sections(a, 3, 2), *A.tensor_split.indices(a, [1, -1, 9], 2)), (x,)),
        (lambda a: (*A.hsplit.int(a, 3), *A.hsplit.array(a, [1])), (x,)),
        (lambda a: (*A.vsplit.int(a, 2), *A.vsplit.array(a, [1])), (x,)),
        (lambda a: (*A.dsplit.int(a, 2), *A.dsplit.array(a, [1, 3])), (x,)),
        *each("diag.default trace.default linalg_diagonal.default fliplr.default flipud.default ravel.default", square),
        *each("trace.default", i(9, 3, 3)),
        (lambda a: (A.diag.default(a, 1), A.diag.default(a, -2)), (f(3),)),
        *each("diag_embed.default", f(2, 3)),
        (lambda a: A.diag_embed.default(a, -1, 0, 2), (f(2, 3),)),
        *((lambda a, k=k: A.rot90.default(a, k, [0, 2]), (x,)) for k in (0, 1, 2, 3)),
        *each("atleast_1d.default atleast_2d.default atleast_3d.default", f()),
        *each("atleast_2d.default atleast_3d.default", f(3)),
        *each("atleast_3d.default", square),
        (lambda a, b: A.column_stack.default([a, b]), (f(3), square)),
        (lambda a, b: A.dstack.default([a, b]), (square, square + 1)),
    ]


def forms() -> list[Case]:
    n, x = i(9, 4), f(2, 3)
    kinds = ("and", "or", "xor")
    return [
        *((lambda a, t=getattr(A, f"__{k}__").Scalar: t(a, 6), (n,)) for k in kinds),
        *((lambda a, t=getattr(A, f"bitwise_{k}").Scalar_Tensor: t(6, a), (n,)) for k in kinds),
        *((lambda a, t=t: t(a, 1), (n,)) for t in (A.__lshift__.Scalar, A.__rshift__.Scalar)),
        *each("__lshift__.Tensor __rshift__.Tensor", n - 4, i(3, 4)),
        *each("bitwise_left_shift.Tensor bitwise_right_shift.Tensor", n - 4, torch.tensor([0, 70, -1, 2])),
        (lambda a: (A.bitwise_left_shift.Tensor_Scalar(a, 2), A.bitwise_left_shift.Scalar_Tensor(3, a)), (n,)),
        (lambda a: A.bitwise_right_shift.Scalar_Tensor(300, a), (n,)),
        *each("divide.Tensor", torch.tensor([3, 200], dtype=torch.uint8), i(3, 2) - 3),
        (lambda a: (A.divide.Scalar(a, 2), A.remainder.Scalar_Tensor(7, a)), (n + 1,)),
        *each("deg2rad.default rad2deg.default frac.default sinc.default", f(2, 3)),
        *each("sinc.default", torch.tensor([0.0, 1.0])),
        *each("hardshrink.default softshrink.default", torch.tensor([0.5, -0.5, 1.0, -2.0, 0.1, torch.nan])),
        (lambda a: (A.logit.default(a), A.logit.default(a, 0.3)), (u(5),)),
        *each("isposinf.default isneginf.default isreal.default", torch.tensor([torch.inf, -torch.inf, 1.0])),
        *each("isposinf.default", n),
        (lambda a: A.index_fill.int_Tensor(a, 0, torch.tensor([1]), torch.tensor(2.0)), (x,)),
        *each("addcmul.default addcdiv.default", i(9, 2), f(2), u(2)),
        (lambda a, b: A.add.Tensor(a, b, alpha=0), (m(4), m(4))),
        *each("aminmax.default nansum.default nanmean.default", torch.tensor([1.0, torch.nan, 3.0])[1:]),
        (lambda a: A.aminmax.default(a, dim=1, keepdim=True), (x,)),
        (lambda a: (A.nansum.default(a, [1]), A.nanmean.default(a, [0])), (torch.where(x > 0, x, torch.nan),)),
        (
            lambda a: (*A.std_mean.default(a), *A.std_mean.dim(a, [1]), *A.std_mean.correction(a, [0], correction=0)),
            (x,),
        ),
        *each("logsumexp.default", n, dim=[0]),
        *each("msort.default", f(3, 2)),
        (lambda a: (*A.kthvalue.default(a, 2), *A.kthvalue.default(a, 1, 0, True)), (x,)),
        *each("sort.default", m(4)),
        (lambda a: (*A.topk.default(a, 1), *A.sort.default(a), *A.max.dim(a, 0), A.argmax.default(a)), (f(),)),
        *(
            (
                lambda a, b, s, k=k: A.scatter_reduce.two(a, 1, b, s, k, include_self=False),
                (f(3, 4), i(4, 3, 2), f(3, 2)),
            )
            for k in ("sum", "prod", "mean", "amax", "amin")
        ),
        (lambda a, b, s: A.scatter_reduce.two(a, 1, b, s, "mean"), (f(3, 4), i(4, 3, 2), f(3, 2))),
    ]
