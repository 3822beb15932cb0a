# SPDX-License-Identifier: Apache-2.0
"""Cases of overloads that reduce, view, place and make tensors."""

from __future__ import annotations

import torch
from torch_case_inputs import A, Case, each, f, i, m


def reduction() -> list[Case]:
    x, n = f(2, 3, 4), i(5, 2, 3)
    whole = "sum mean prod amax max amin min any all argmax argmin var std var_mean"
    return [
        *each(" ".join(f"{name}.default" for name in whole.split()), x),
        *each("sum.default prod.default any.default all.default max.default", n),
        *(
            (lambda a, t=t: t(a, [1, -1], True), (x,))
            for t in (A.sum.dim_IntList, A.mean.dim, A.amax.default, A.amin.default)
        ),
        *(
            (lambda a, t=t: t(a, [1]), (x,))
            for t in (A.any.dims, A.all.dims, A.count_nonzero.dim_IntList, A.logsumexp.default)
        ),
        *(
            (lambda a, t=t: t(a, 1), (x,))
            for t in (A.any.dim, A.all.dim, A.max.dim, A.min.dim, A.prod.dim_int, A.cumsum.default, A.cumprod.default)
        ),
        (lambda a: A.argmax.default(a, 1, True), (x,)),
        (lambda a: A.argmin.default(a, -1), (x,)),
        *(
            (lambda a, t=t: t(a, [1], correction=0), (x,))
            for t in (A.var.correction, A.std.correction, A.var_mean.correction)
        ),
        *((lambda a, t=t: t(a, [1], False), (x,)) for t in (A.var.dim, A.std.dim, A.var_mean.dim)),
        *((lambda a, p=p: A.linalg_vector_norm.default(a, p, [1]), (x,)) for p in (2, 1, 3, float("inf"), 0)),
        (lambda a: A.norm.ScalarOpt_dim(a, 2, [1]), (x,)),
        (lambda a: A.norm.Scalar(a, 2), (x,)),
        (lambda a: A.diff.default(a), (x,)),
        (lambda a: A.diff.default(a, 2, 1), (x,)),
        (lambda a: A.cumsum.default(a, 0), (m(4, 2),)),
        (lambda a: A.sum.dim_IntList(a, [0]), (m(4, 2),)),
        *each("count_nonzero.default", n),
        (lambda a: A.histc.default(a, 4, 0, 3), (torch.tensor([0.0, 1.0, 1.5, 3.0, 4.0, 2.9]),)),
    ]


def views() -> list[Case]:
    x = f(2, 3, 4)
    return [
        *(
            (lambda a, t=t: t(a, [4, -1]), (x,))
            for t in (A.view.default, A.reshape.default, A._unsafe_view.default, A.view_copy.default)
        ),
        *each("view_as.default reshape_as.default", x, f(4, 6)),
        (lambda a: A.unsqueeze.default(a, -1), (x,)),
        (lambda a: (A.squeeze.default(a), A.squeeze.dim(a, 1), A.squeeze.dims(a, [0, 1])), (f(1, 1, 3),)),
        (lambda a: A.flatten.using_ints(a, 1), (x,)),
        (lambda a: A.unflatten.int(a, 2, [2, -1]), (x,)),
        (lambda a: A.permute.default(a, [2, 0, -2]), (x,)),
        *((lambda a, t=t: t(a, 0, -1), (x,)) for t in (A.transpose.int, A.swapaxes.default)),
        *each("t.default numpy_T.default mT.default", f(2, 3)),
        (lambda a: (A.movedim.int(a, 0, 2), A.movedim.intlist(a, [0, 1], [1, 2])), (x,)),
        *(
            (lambda a, t=t: t(a, [2, 3, 4]), (f(3, 1),))
            for t in (A.expand.default, A.broadcast_to.default, A.expand_copy.default)
        ),
        *each("expand_as.default", f(3, 1), x),
        (lambda a: (A.slice.Tensor(a, 1, 1, 9), A.slice.Tensor(a, -1, -3, -1), A.slice.Tensor(a, 2, 0, 4, 2)), (x,)),
        (lambda a: A.narrow.default(a, 1, 1, 2), (x,)),
        (lambda a: A.select.int(a, 1, -1), (x,)),
        (lambda a: A.unbind.int(a, 1), (x,)),
        (lambda a: A.split.Tensor(a, 3, 2), (x,)),
        *(
            (lambda a, t=t: t(a, [1, 3], 2), (x,))
            for t in (A.split_with_sizes.default, A.split.sizes, A.split_with_sizes_copy.default)
        ),
        (lambda a: A.chunk.default(a, 3, 2), (x,)),
        *each(
            "alias.default lift_fresh.default detach.default contiguous.default clone.default alias_copy.default positive.default",
            x,
        ),
        (lambda a: A.view.dtype(a, torch.int32), (x,)),
        (lambda a: A.to.dtype(a, torch.float64), (x,)),
        (lambda a: A.to.dtype(a, torch.int64), (x * 4,)),
        *each("to.other type_as.default", x, i(4, 2)),
        (lambda a: A._to_copy.default(a, dtype=torch.float64), (x,)),
        *each("lift_fresh_copy.default", x),
        (lambda a: A.to.dtype_layout(a, dtype=torch.bool), (x,)),
        (lambda a: A.to.device(a, "cpu", torch.float64), (x,)),
    ]


def layout() -> list[Case]:
    x = f(2, 3, 4)
    return [
        *((lambda a, b, t=t: t([a, b], 1), (f(2, 1), i(4, 2, 2))) for t in (A.cat.default, A.concat.default)),
        (lambda a, b: A.stack.default([a, b], -1), (x, x + 1)),
        *((lambda a, b, t=t: t([a, b]), (f(2, 3), f(2, 3))) for t in (A.hstack.default, A.vstack.default)),
        *((lambda a, t=t: t(a, [2, 1, 1, 3]), (x,)) for t in (A.repeat.default, A.tile.default)),
        (lambda a, b: A.broadcast_tensors.default([a, b]), (f(2, 1), f(3))),
        (lambda a: A.repeat_interleave.self_int(a, 2, 1), (x,)),
        (lambda a: (A.roll.default(a, [1, -1], [0, 2]), A.roll.default(a, [5])), (x,)),
        (lambda a: A.flip.default(a, [0, -1]), (x,)),
        (lambda a: A.constant_pad_nd.default(a, [1, -1, 0, 2], 3.0), (x,)),
        *(
            (lambda a, k=k: A.pad.default(a, [1, 2, 1, 0], k), (f(1, 2, 4, 4),))
            for k in ("reflect", "replicate", "circular")
        ),
        *((lambda a, t=t: t(a, [1, 2]), (x,)) for t in (A.reflection_pad1d.default, A.replication_pad1d.default)),
        *(
            (lambda a, t=t: t(a, [1, 2, 0, 1]), (f(1, 2, 3, 4),))
            for t in (A.reflection_pad2d.default, A.replication_pad2d.default)
        ),
        *(
            (lambda a, t=t: t(a, [1] * 6), (f(1, 2, 3, 3, 3),))
            for t in (A.reflection_pad3d.default, A.replication_pad3d.default)
        ),
        *((lambda a, t=t: t(a, 1), (x,)) for t in (A.tril.default, A.triu.default)),
        *((lambda a, t=t: t(a, -1, 1, 2), (x,)) for t in (A.diagonal.default, A.diagonal_copy.default)),
        *((lambda a, t=t: t(a, [3, 2], [2, 5], 1), (x,)) for t in (A.as_strided.default, A.as_strided_copy.default)),
        (lambda a: A.unfold.default(a, 1, 2, 1), (x,)),
        (lambda a: A.pixel_shuffle.default(a, 2), (f(1, 8, 2, 3),)),
        (lambda a: A.pixel_unshuffle.default(a, 2), (f(1, 2, 4, 6),)),
        (lambda a: A.channel_shuffle.default(a, 2), (f(1, 4, 2, 2),)),
        (lambda a, b: A.slice_scatter.default(a, b, 1, 0, 3, 2), (x, f(2, 2, 4))),
        (lambda a, b: A.slice_scatter.default(a, b, 1, 1, 3), (x, f(2, 2, 4))),
        (lambda a, b: A.select_scatter.default(a, b, 1, -1), (x, f(2, 4))),
        *each("copy.default", f(2, 3), i(4, 3)),
    ]


def creation() -> list[Case]:
    x = f(2, 3)
    return [
        (lambda a: (A.zeros.default([2]) + a, A.ones.default([2, 3]) + a[:, :1]), (f(2, 2),)),
        (lambda a: A.new_zeros.default(a, [3]), (x,)),
        (
            lambda a: (A.new_ones.default(a, [3]), A.new_full.default(a, [2], 4), A.new_empty.default(a, [2]).fill_(1)),
            (x,),
        ),
        *each("zeros_like.default ones_like.default", x),
        (lambda a: A.full_like.default(a, 2.5), (x,)),
        (lambda a: A.empty_like.default(a).fill_(2), (x,)),
        (lambda a: a + A.full.default([3], 2.5), (x,)),
        (lambda a: a + A.empty.memory_format([3]).zero_(), (x,)),
        (lambda a: a + A.empty_strided.default([3], [1]).zero_(), (x,)),
        (lambda a: a + A.empty_permuted.default([3], [0]).zero_(), (x,)),
        (lambda a: A.fill.Scalar(a, 3), (x,)),
        (lambda a, b: A.fill.Tensor(a, b), (x, f())),
        (lambda a: A.zero.default(a), (x,)),
        (lambda a: a + A.scalar_tensor.default(2.0), (x,)),
        (lambda a: (A.arange.default(3) + a, A.arange.start(1, 4) + a, A.arange.start_step(0, 1.5, 0.5) + a), (x,)),
        (lambda a: a + A.linspace.default(0, 1, 3), (x,)),
        (lambda a: (A.eye.default(3) + a[:1], A.eye.m(2, 3) + a), (x,)),
        (lambda a: A.one_hot.default(a, 4), (i(4, 3),)),
        (lambda a, b: (*A.meshgrid.default([a, b]), *A.meshgrid.indexing([a, b], indexing="xy")), (f(2), f(3))),
    ]
