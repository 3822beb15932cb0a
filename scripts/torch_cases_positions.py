# SPDX-License-Identifier: Apache-2.0
"""Cases of overloads that read at positions, sort, attend, resize, and of losses."""

from __future__ import annotations

from typing import Any

import torch
from torch_case_inputs import A, Case, each, f, i, m, u


def indexing() -> list[Case]:
    x, at = f(3, 4, 5), i(3, 2, 2)
    return [
        *each("embedding.default", f(5, 3), i(5, 2, 2)),
        (lambda a, b: A.index_select.default(a, 1, b), (x, i(4, 6))),
        (lambda a, b: A.gather.default(a, 1, b), (x, i(4, 2, 3, 5))),
        (lambda a, b: A.take_along_dim.default(a, b, 1), (f(3, 4), i(4, 1, 2))),
        (lambda a, b: A.index.Tensor(a, [None, b]), (x, i(4, 2, 2) - 2)),
        (lambda a, b, c: A.index.Tensor(a, [b, c]), (x, at, i(4, 2))),
        (lambda a, b, c: A.index.Tensor(a, [b, None, c]), (x, at, i(5, 2))),
        (lambda a, b, c: A.index.Tensor(a, [None, b, c]), (x, i(4, 2), i(5, 2))),
        (lambda a, b, v: A.index_put.default(a, [b], v), (x, torch.tensor([2, 0]), f(2, 4, 5))),
        (lambda a, b, v: A.index_put.default(a, [None, b], v, True), (x, torch.tensor([1, 1]), f(2, 5))),
        (lambda a, b, c, v: A.index_put.default(a, [b, c], v), (x, torch.tensor([2, 0]), torch.tensor([1, -1]), f(5))),
        (lambda a, b, v: A._unsafe_index_put.default(a, [b], v), (x, torch.tensor([2, 0]), f(2, 4, 5))),
        (lambda a, b, v: A.index_put.default(a, [b], v), (f(3, 4), m(3, 4), f())),
        (lambda a, b, s: A.scatter.src(a, 1, b, s), (f(3, 4), torch.tensor([[0, 2], [1, 3]]), f(2, 3))),
        (lambda a, b: A.scatter.value(a, 1, b, 2.0), (f(3, 4), i(4, 3, 2))),
        (lambda a, b, s: A.scatter_add.default(a, 1, b, s), (f(3, 4), i(4, 3, 2), f(3, 2))),
        *(
            (lambda a, b, s, k=k: A.scatter_reduce.two(a, 1, b, s, k), (f(3, 4), i(4, 3, 2), f(3, 2)))
            for k in ("sum", "prod", "amax", "amin")
        ),
        (lambda a, b, s: A.scatter.reduce(a, 1, b, s, reduce="add"), (f(3, 4), i(4, 3, 2), f(3, 2))),
        (
            lambda a, b: A.scatter.value_reduce(a, 1, b, 2.0, reduce="multiply"),
            (f(3, 4), torch.tensor([[0, 2], [1, 3]])),
        ),
        (lambda a, b, s: A.index_add.default(a, 1, b, s, alpha=2), (f(3, 4), torch.tensor([1, 1]), f(3, 2))),
        (lambda a, b, s: A.index_copy.default(a, 1, b, s), (f(3, 4), torch.tensor([3, 1]), f(3, 2))),
        (lambda a, b: A.index_fill.int_Scalar(a, 1, b, 2.0), (f(3, 4), torch.tensor([3, 1]))),
        (lambda a, b, s: A.masked_scatter.default(a, b, s), (f(3, 4), m(3, 4), f(12))),
    ]


def sorting() -> list[Case]:
    x = f(3, 5)
    return [
        (lambda a: (*A.topk.default(a, 2), *A.topk.default(a, 2, 0, False)), (x,)),
        (lambda a: (*A.sort.default(a, 0), *A.sort.stable(a, stable=True, dim=1, descending=True)), (x,)),
        (lambda a: (A.argsort.default(a, 0), A.argsort.stable(a, stable=True, dim=1)), (x,)),
    ]


def attention() -> list[Case]:
    sdpa = A.scaled_dot_product_attention.default
    q, k, v = f(2, 4, 3, 8), f(2, 4, 5, 8), f(2, 4, 5, 6)
    few = (q, f(2, 2, 5, 8), f(2, 2, 5, 6))
    return [
        (sdpa, (q, k, v)),
        (lambda a, b, c: sdpa(a, b, c, is_causal=True, scale=0.3), (q, k, v)),
        (sdpa, (q, k, v, f(3, 5))),
        (sdpa, (q, k, v, torch.tensor([[True, False, True, True, False]] * 3))),
        (lambda a, b, c: sdpa(a, b, c, enable_gqa=True), few),
        (lambda a, b, c: A._scaled_dot_product_flash_attention_for_cpu.default(a, b, c)[0], (q, k, f(2, 4, 5, 8))),
    ]


def encoder_layer() -> list[Case]:
    """In evaluation, with and without masks, normalized before and after."""
    x, padding = f(2, 5, 8), torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    seen = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)
    parts = (f(24, 8), f(24), f(8, 8), f(8), f(8), f(8), f(8), f(8), f(16, 8), f(16), f(8, 16), f(8))
    layer = A._transformer_encoder_layer_fwd.default

    def call(gelu: bool, first: bool, kind: int | None) -> Any:
        def run(a: torch.Tensor, qw: Any, qb: Any, pw: Any, pb: Any, *rest: Any) -> torch.Tensor:
            mask = () if kind is None else (rest[-1], kind)
            return layer(a, 8, 2, qw, qb, pw, pb, gelu, first, 1e-5, *rest[:8], *mask)

        return run

    return [
        (call(True, False, None), (x, *parts)),
        (call(False, True, 0), (x, *parts, seen)),
        (call(True, False, 1), (x, *parts, padding)),
    ]


def loss() -> list[Case]:
    z, t = f(4, 5), torch.tensor([0, 2, -100, 4])
    pairs = "mse_loss.default l1_loss.default smooth_l1_loss.default huber_loss.default binary_cross_entropy_with_logits.default"
    return [
        (A.cross_entropy_loss.default, (z, t)),
        (lambda a, b, w: A.cross_entropy_loss.default(a, b, w, 1, 2), (z, t.clamp(min=0), u(5))),
        (lambda a, b: A.cross_entropy_loss.default(a, b, None, 0, -100, 0.1), (z, t)),
        (lambda a, b: A.cross_entropy_loss.default(a, b, None, 1, -100, 0.1), (z, torch.softmax(f(4, 5), 1))),
        (A.cross_entropy_loss.default, (f(2, 5, 3), i(5, 2, 3))),
        *((lambda a, b, w, k=k: A.nll_loss_nd.default(a, b, w, k), (z, t, u(5))) for k in (0, 1, 2)),
        *each("nll_loss.default", z, t),
        *each("nll_loss2d.default", f(2, 5, 3, 3), i(5, 2, 3, 3)),
        (lambda a, b: A.nll_loss_forward.default(a, b, None, 1, -100)[0], (z, t)),
        (lambda a, b: A.nll_loss2d_forward.default(a, b, None, 1, -100)[0], (f(2, 5, 3, 3), i(5, 2, 3, 3))),
        *each(pairs, f(3, 4) * 2, u(3, 4)),
        (lambda a, b: (A.smooth_l1_loss.default(a, b, 2, 0.5), A.huber_loss.default(a, b, 0, 0.5)), (f(6), f(6))),
        *each("binary_cross_entropy.default", u(3, 4), u(3, 4)),
        (lambda a, b, w: A.binary_cross_entropy_with_logits.default(a, b, w, w, 2), (f(3, 4), u(3, 4), u(4))),
        *each("kl_div.default", torch.log_softmax(f(3, 4), 1), torch.softmax(f(3, 4), 1)),
        (
            lambda a, b: A.kl_div.default(a, b, 2, log_target=True),
            (torch.log_softmax(f(3, 4), 1), torch.log_softmax(f(3, 4), 1)),
        ),
        *((lambda a, b, w, k=k: A.cross_entropy_loss.default(a, b, w, k, -100, 0.1), (z, t, u(5))) for k in (0, 1, 2)),
        (lambda a, b, w: A.cross_entropy_loss.default(a, b, w, 1, 2, 0.2), (f(2, 5, 3), i(5, 2, 3), u(5))),
        (lambda a, b: A.poisson_nll_loss.default(a, b, True, True, 1e-8, 1), (f(3, 4), u(3, 4) * 4)),
        (lambda a, b: A.poisson_nll_loss.default(a, b, False, False, 1e-8, 0), (u(3, 4), u(3, 4))),
    ]


def margin_loss() -> list[Case]:
    signs = torch.tensor([1.0, -1.0, 1.0])
    pair, triple = (f(3, 4), f(3, 4)), (f(3, 4), f(3, 4), f(3, 4))
    classes, weights = torch.tensor([0, 3, 1]), u(4)
    return [
        *((lambda a, s, k=k: A.soft_margin_loss.default(a, s, k), (f(3), signs)) for k in (0, 1, 2)),
        *((lambda a, s, k=k: A.hinge_embedding_loss.default(a, s, 0.5, k), (f(3), signs)) for k in (0, 1, 2)),
        (lambda a, s: A.hinge_embedding_loss.default(a, s, 1.0, 0), (f(3), torch.tensor([1.0, 0.0, -1.0]))),
        *((lambda a, b, s, k=k: A.margin_ranking_loss.default(a, b, s, 0.1, k), (f(3), f(3), signs)) for k in (0, 1)),
        *((lambda a, b, s, k=k: A.cosine_embedding_loss.default(a, b, s, 0.1, k), (*pair, signs)) for k in (0, 2)),
        (lambda a, b: (A.pairwise_distance.default(a, b), A.pairwise_distance.default(a, b, 1.0, 0.1, True)), pair),
        (A.triplet_margin_loss.default, triple),
        (lambda a, b, c: A.triplet_margin_loss.default(a, b, c, 0.5, 1.5, 1e-6, True, 0), triple),
        *((lambda a, t, k=k: A.multi_margin_loss.default(a, t, 1, 1, None, k), (f(3, 4), classes)) for k in (0, 1, 2)),
        (lambda a, t, w: A.multi_margin_loss.default(a, t, 2, 0.5, w, 0), (f(3, 4), classes, weights)),
        (A.multi_margin_loss.default, (f(4), torch.tensor(2))),
    ]


def resize() -> list[Case]:
    x = f(1, 2, 5, 4)
    named = [A.upsample_bilinear2d, A.upsample_bicubic2d, A._upsample_bilinear2d_aa, A._upsample_bicubic2d_aa]
    return [
        *(
            (lambda a, t=t, n=n: t.vec(a, n, None), (f(1, 2, *[4] * r),))
            for t, n, r in (
                (A.upsample_nearest1d, [7], 1),
                (A.upsample_nearest2d, [7, 3], 2),
                (A.upsample_nearest3d, [2, 5, 3], 3),
                (A._upsample_nearest_exact1d, [7], 1),
                (A._upsample_nearest_exact2d, [7, 3], 2),
                (A._upsample_nearest_exact3d, [2, 5, 3], 3),
            )
        ),
        *(
            (lambda a, t=t, n=n: t.default(a, n), (f(1, 2, *[4] * len(n)),))
            for t, n in (
                (A.upsample_nearest1d, [7]),
                (A.upsample_nearest2d, [7, 3]),
                (A.upsample_nearest3d, [2, 5, 3]),
                (A._upsample_nearest_exact1d, [7]),
                (A._upsample_nearest_exact2d, [7, 3]),
                (A._upsample_nearest_exact3d, [2, 5, 3]),
            )
        ),
        *((lambda a, t=t, c=c: t.vec(a, None, c, [1.7, 0.6]), (x,)) for t in named for c in (False, True)),
        *((lambda a, t=t, c=c: t.default(a, [3, 9], c), (x,)) for t in named for c in (False, True)),
        *(
            (lambda a, t=t, c=c: t(a, [9], c), (f(1, 2, 4),))
            for t in (A.upsample_linear1d.default,)
            for c in (False, True)
        ),
        (lambda a: A.upsample_linear1d.vec(a, [9], True, None), (f(1, 2, 4),)),
        (lambda a: A.upsample_trilinear3d.vec(a, None, False, [2.0, 2.0, 0.5]), (f(1, 2, 2, 3, 4),)),
        (lambda a: A.upsample_trilinear3d.default(a, [3, 2, 5], True), (f(1, 2, 2, 3, 4),)),
    ]


def vision() -> list[Case]:
    import torchvision

    boxes = torch.tensor([[0, 0.5, 0.5, 4, 4], [1, 1, 0, 3, 5.0]])
    sampler = A.grid_sampler.default
    return [
        *(
            (lambda a, b, k=k, p=p: sampler(a, b, k, p, False), (f(1, 2, 4, 5), f(1, 3, 3, 2)))
            for k in (0, 1, 2)
            for p in (0, 1, 2)
        ),
        (lambda a, b: A.grid_sampler_2d.default(a, b, 0, 0, True), (f(1, 2, 4, 5), f(1, 3, 3, 2))),
        (lambda a, b: A.grid_sampler_3d.default(a, b, 0, 0, True), (f(1, 2, 3, 4, 5), f(1, 2, 3, 3, 3))),
        (lambda a, b: torchvision.ops.roi_align(a, b, (2, 3), 0.5, 2, True), (f(2, 3, 6, 6), boxes)),
    ]
