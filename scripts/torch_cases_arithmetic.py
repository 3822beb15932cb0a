# SPDX-License-Identifier: Apache-2.0
"""Cases of overloads that compute: elements, products, windows, normalizations."""

from __future__ import annotations

import torch
from torch_case_inputs import A, Case, each, f, i, m, u


def elementwise() -> list[Case]:
    defaults = "sin cos tan asin acos atan sinh cosh tanh asinh atanh exp log sqrt rsqrt erf sigmoid reciprocal"
    same = "abs neg sign floor ceil round trunc relu sgn"
    names = " ".join(f"{name}.default" for name in f"{defaults} {same} square exp2 log2 log10 expm1 log1p erfc".split())
    pairs = "maximum.default max.other fmax.default minimum.default min.other fmin.default remainder.Tensor fmod.Tensor"
    scalars = "add.Scalar sub.Scalar rsub.Scalar mul.Scalar div.Scalar remainder.Scalar fmod.Scalar"
    x, n = f(2, 3), i(9, 2, 3)
    return [
        *each(names, u(2, 3)),
        *each("abs.default neg.default floor.default expm1.default log1p.default", u(3) * 4),
        *each("acosh.default", u(2, 3) + 1),
        *each("bitwise_not.default", m(4)),
        *each("bitwise_not.default neg.default sin.default", i(9, 4)),
        *each(pairs, f(2, 3), f(3)),
        *each("add.Tensor sub.Tensor mul.Tensor div.Tensor true_divide.Tensor", f(2, 3), f(2, 1)),
        *each("add.Tensor sub.Tensor mul.Tensor", i(9, 2, 3), f(3)),
        *each("add.Tensor mul.Tensor", m(3), m(3)),
        *each("div.Tensor floor_divide.default remainder.Tensor fmod.Tensor", i(9, 4) - 5, i(4, 4) + 1),
        *each("floor_divide.default", f(4), u(4)),
        *((lambda a, t=getattr(A, s.split(".")[0]).Scalar: t(a, 2.5), (x,)) for s in scalars.split()),
        (lambda a, b: A.add.Tensor(a, b, alpha=3), (f(3), f(3))),
        (lambda a, b: A.rsub.Tensor(a, b, alpha=2), (f(3), f(3))),
        (lambda a: A.floor_divide.Scalar(a, 2), (n - 4,)),
        *(
            (lambda a, b, r=r: A.div.Tensor_mode(a, b, rounding_mode=r), (y, z))
            for r in ("trunc", "floor", None)
            for y, z in ((f(4), f(4)), (i(9, 4) - 5, i(4, 4) + 1))
        ),
        (lambda a: A.div.Scalar_mode(a, 2, rounding_mode="floor"), (n - 4,)),
        *((lambda a, e=e: A.pow.Tensor_Scalar(a, e), (u(3),)) for e in (1, 2, 3, 0.5, -0.5, -1, 2.3)),
        (lambda a, b: A.pow.Tensor_Tensor(a, b), (u(3), f(3))),
        (lambda a: A.pow.Scalar(2.0, a), (f(3),)),
        (lambda a, b, c: A.addcmul.default(a, b, c, value=2.0), (f(3), f(3), f(3))),
        (lambda a, b, c: A.addcdiv.default(a, b, c, value=2.0), (f(3), f(3), u(3))),
        (lambda a, b: A.lerp.Scalar(a, b, 0.3), (f(3), f(3))),
        (lambda a, b, c: A.lerp.Tensor(a, b, c), (f(3), f(3), u(3))),
        (lambda a: A.clamp.default(a, -0.5, 0.5), (f(5),)),
        (lambda a: A.clamp.default(a, None, 0.5), (f(5),)),
        (lambda a: A.clip.default(a, 2, 5), (i(9, 5),)),
        (lambda a: A.clamp_min.default(a, 0.1), (f(5),)),
        (lambda a: A.clamp_max.default(a, 0.1), (f(5),)),
        (lambda a, b: A.clamp.Tensor(a, b, None), (f(5), f(5))),
        *each("clamp_min.Tensor clamp_max.Tensor", f(5), f(5)),
        *each(
            "bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor __and__.Tensor __or__.Tensor __xor__.Tensor",
            m(4),
            m(4),
        ),
        *each("bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor", i(9, 4), i(9, 4)),
        *(
            (lambda a, t=t: t(a, 6), (i(9, 4),))
            for t in (A.bitwise_and.Scalar, A.bitwise_or.Scalar, A.bitwise_xor.Scalar)
        ),
        *each("bitwise_left_shift.Tensor bitwise_right_shift.Tensor", i(9, 4), i(3, 4)),
        (lambda a: A.bitwise_right_shift.Tensor_Scalar(a, 1), (i(9, 4),)),
        *each("atan2.default", f(6), f(6)),
    ]


def comparison() -> list[Case]:
    kinds = ("eq", "ne", "lt", "le", "gt", "ge")
    return [
        *each(" ".join(f"{k}.Tensor" for k in kinds), i(3, 6), i(3, 6)),
        *each("eq.Tensor ge.Tensor", m(4), m(4)),
        *((lambda a, k=k: getattr(A, k).Scalar(a, 1), (i(3, 6),)) for k in kinds),
        *each("logical_not.default", i(2, 4)),
        *each("logical_and.default logical_or.default logical_xor.default", i(2, 4), m(4)),
        *each(
            "isnan.default isinf.default isfinite.default nan_to_num.default",
            torch.tensor([1.0, torch.nan, -torch.inf]),
        ),
        *each("where.self", m(2, 3), f(2, 3), f(3)),
        (lambda c, a: A.where.ScalarOther(c, a, 2.0), (m(3), f(3))),
        (lambda c, a: A.where.ScalarSelf(c, 2.0, a), (m(3), f(3))),
        (lambda c: A.where.Scalar(c, 2.0, 3.0), (m(3),)),
        (lambda a, c: A.masked_fill.Scalar(a, c, -2.0), (f(2, 3), m(3))),
        (lambda a, c, v: A.masked_fill.Tensor(a, c, v), (f(2, 3), m(3), f())),
        *(
            (lambda a, t=t: t(a, 0.5, False), (f(3),))
            for t in (A.dropout.default, A.feature_dropout.default, A.native_dropout.default)
        ),
        *each("heaviside.default", torch.tensor([-1.0, 0.0, 2.0]), u(3)),
    ]


def activation() -> list[Case]:
    x = f(3, 4) * 4
    names = "gelu silu hardtanh relu6 hardsigmoid hardswish leaky_relu elu selu celu softplus mish log_sigmoid glu"
    return [
        *each(" ".join(f"{name}.default" for name in names.split()), x),
        (lambda a: A.gelu.default(a, approximate="tanh"), (x,)),
        (lambda a: A.hardtanh.default(a, -2.0, 3.0), (x,)),
        (lambda a: A.elu.default(a, 1.5, 1.1, 0.7), (x,)),
        (lambda a: A.celu.default(a, 1.5), (x,)),
        (lambda a: A.softplus.default(a, 2.0, 3.0), (x,)),
        (lambda a: A.threshold.default(a, 0.5, -3.0), (x,)),
        *each("prelu.default", f(2, 3, 4), u(3)),
        *each("_prelu_kernel.default", f(2, 3, 4), u(1, 3, 1)),
        *((lambda a, t=t: t(a, 1), (x,)) for t in (A.softmax.int, A.log_softmax.int)),
        *((lambda a, t=t: t(a, -1, False), (x,)) for t in (A._softmax.default, A._log_softmax.default)),
        (lambda a: A._safe_softmax.default(a, -1), (torch.tensor([[1.0, 2.0], [-torch.inf, -torch.inf]]),)),
    ]


def matmul() -> list[Case]:
    return [
        *each("linear.default", f(2, 3, 4), f(5, 4), f(5)),
        *each("linear.default", f(4), f(5, 4)),
        *each("mm.default", f(2, 3), f(3, 4)),
        *each("bmm.default", f(2, 2, 3), f(2, 3, 4)),
        (lambda a, b, c: A.addmm.default(a, b, c, beta=0.5, alpha=2.0), (f(4), f(2, 3), f(3, 4))),
        *each("baddbmm.default", f(2, 2, 4), f(2, 2, 3), f(2, 3, 4)),
        *each("matmul.default", f(2, 2, 3), f(3, 4)),
        *each("matmul.default", f(3), f(2, 3, 4)),
        *each("mv.default", f(2, 3), f(3)),
        *each("dot.default", f(3), f(3)),
        *each("outer.default", f(3), f(2)),
        *(
            (lambda a, b, e=e: A.einsum.default(e, [a, b]), (f(2, 3, 4), f(2, 4, 5)))
            for e in ("bij,bjk->bik", "bij,bjk->ki", "bij,bjk")
        ),
        (lambda a, b, c: A.einsum.default("ab,bc,cd->da", [a, b, c]), (f(2, 3), f(3, 4), f(4, 2))),
        (lambda a: A.einsum.default("ijk->kj", [a]), (f(2, 3, 4),)),
    ]


def convolution() -> list[Case]:
    x, w = f(2, 4, 7, 6), f(6, 2, 3, 3)
    return [
        (lambda a, b, c: A.conv2d.default(a, b, c, [2, 1], [1, 2], [1, 1], 2), (x, w, f(6))),
        *each("conv1d.default", f(2, 3, 7), f(4, 3, 2)),
        *each("conv1d.default", f(3, 7), f(4, 3, 2)),
        *each("conv3d.default", f(1, 2, 3, 4, 5), f(3, 2, 2, 2, 2)),
        (lambda a, b: A.conv2d.padding(a, b, None, [1, 1], "same", [2, 2], 2), (x, w)),
        (lambda a, b: A.conv1d.padding(a, b, None, [1], "same"), (f(2, 3, 7), f(4, 3, 2))),
        (lambda a, b: A.conv3d.padding(a, b, None, [1, 1, 1], "valid"), (f(1, 2, 3, 4, 5), f(3, 2, 2, 2, 2))),
        (lambda a, b: A.convolution.default(a, b, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 2), (x, w)),
        (lambda a, b: A.convolution.default(a, b, None, [2, 2], [1, 1], [1, 1], True, [1, 1], 2), (x, f(4, 3, 3, 3))),
        (lambda a, b, c: A.conv_transpose2d.input(a, b, c, [2, 2], [1, 1], [1, 1], 2), (x, f(4, 3, 3, 3), f(6))),
        *each("conv_transpose1d.default", f(2, 3, 7), f(3, 4, 2)),
        *each("conv_transpose3d.input", f(1, 2, 3, 4, 5), f(2, 3, 2, 2, 2)),
        (lambda a: A.im2col.default(a, [2, 3], [1, 2], [1, 1], [2, 1]), (x,)),
        (lambda a: A.col2im.default(a, [4, 5], [2, 2], [1, 1], [0, 0], [1, 1]), (f(2, 8, 12),)),
    ]


def pooling() -> list[Case]:
    x = f(2, 3, 7, 6)
    return [
        (lambda a: A.max_pool2d.default(a, [3, 2], [2, 2], [1, 1], [1, 1], True), (x,)),
        (lambda a: A.max_pool1d.default(a, [3]), (f(2, 3, 7),)),
        (lambda a: A.max_pool3d.default(a, [2]), (f(1, 2, 4, 4, 5),)),
        (lambda a: A.max_pool2d_with_indices.default(a, [3, 3], [2, 2], [1, 1]), (x,)),
        (lambda a: A.max_pool3d_with_indices.default(a, [2]), (f(1, 2, 4, 4, 5),)),
        (lambda a: A.avg_pool2d.default(a, [3, 3], [2, 2], [1, 1], True, False), (x,)),
        (lambda a: A.avg_pool2d.default(a, [3, 3], [2, 2], [1, 1], True, True), (x,)),
        (lambda a: A.avg_pool2d.default(a, [3, 3], [2, 2], [0, 0], False, True, 5), (x,)),
        (lambda a: A.avg_pool1d.default(a, [3]), (f(3, 7),)),
        (lambda a: A.avg_pool3d.default(a, [2]), (f(1, 2, 4, 4, 5),)),
        (lambda a: A.adaptive_avg_pool2d.default(a, [1, 1]), (x,)),
        (lambda a: A.adaptive_avg_pool2d.default(a, [4, 4]), (x,)),
        (lambda a: A._adaptive_avg_pool2d.default(a, [7, 3]), (x,)),
        (lambda a: A.adaptive_avg_pool1d.default(a, [4]), (f(2, 3, 7),)),
        (lambda a: A.adaptive_avg_pool3d.default(a, [2, 2, 2]), (f(1, 2, 4, 4, 5),)),
        (lambda a: A.adaptive_max_pool2d.default(a, [1, 3]), (x,)),
        (lambda a: A.adaptive_max_pool1d.default(a, [1]), (f(2, 3, 7),)),
        (lambda a: A.adaptive_max_pool3d.default(a, [2, 2, 5]), (f(1, 2, 4, 4, 5),)),
    ]


def normalization() -> list[Case]:
    x, w, b, mean, var = f(2, 4, 3, 3), f(4), f(4), f(4), u(4)
    return [
        (lambda *a: A.batch_norm.default(*a, False, 0.1, 1e-5, False), (x, w, b, mean, var)),
        (lambda a: A.batch_norm.default(a, None, None, None, None, True, 0.1, 1e-5, False), (x,)),
        (lambda *a: A._native_batch_norm_legit_no_training.default(*a, 0.1, 1e-5)[0], (x, w, b, mean, var)),
        (lambda *a: A._native_batch_norm_legit.no_stats(*a, True, 0.1, 1e-5), (x, w, b)),
        (
            lambda a, p, q, r, s: A._native_batch_norm_legit.default(a, p, q, r.clone(), s.clone(), True, 0.1, 1e-5),
            (x, w, b, mean, var),
        ),
        (
            lambda a, p, q, r, s: A.native_batch_norm.default(a, p, q, r.clone(), s.clone(), True, 0.1, 1e-5),
            (x, w, b, mean, var),
        ),
        (lambda *a: A.instance_norm.default(*a, None, None, True, 0.1, 1e-5, False), (x, w, b)),
        (lambda *a: A.group_norm.default(a[0], 2, a[1], a[2]), (x, w, b)),
        (lambda *a: A.native_group_norm.default(*a, 2, 4, 9, 2, 1e-5), (x, w, b)),
        (lambda *a: A.layer_norm.default(a[0], [3, 3], a[1], a[2]), (x, f(3, 3), f(3, 3))),
        (lambda a: A.layer_norm.default(a, [3]), (x,)),
        (lambda *a: A.native_layer_norm.default(a[0], [3], a[1], a[2], 1e-5), (x, f(3), f(3))),
        (lambda *a: A.rms_norm.default(a[0], [3], a[1]), (x, f(3))),
        *each("_weight_norm_interface.default _weight_norm.default", f(4, 3), u(4, 1)),
    ]
