# SPDX-License-Identifier: Apache-2.0
"""Cases of the overloads that backward graphs of AOT autograd call."""

from __future__ import annotations

import torch
from torch_case_inputs import Case, f

aten = torch.ops.aten


def backward() -> list[Case]:
    """Gradients of convolutions, pooling, resizing and sampling."""
    conv = aten.convolution_backward.default
    x = f(2, 3, 7, 7).relu()  # Windows of zeros: their first element has the gradient.
    pooled, at = aten.max_pool2d_with_indices(x, [3, 3], [2, 2], [1, 1])
    deep = f(1, 2, 5, 6, 4)
    _, at3 = aten.max_pool3d_with_indices(deep, [2, 2, 2], [2, 2, 2])
    grid = 2.2 * torch.rand(2, 4, 5, 2) - 1.1
    every = [True, True, True]
    return [
        (
            lambda g, x, w: conv(g, x, w, [4], [2, 2], [1, 1], [1, 1], False, [0, 0], 1, every),
            (f(2, 4, 4, 4), f(2, 3, 7, 7), f(4, 3, 3, 3)),
        ),
        (
            lambda g, x, w: conv(g, x, w, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 2, [False, True, False]),
            (f(2, 4, 5, 5), f(2, 6, 5, 5), f(4, 3, 1, 1)),
        ),
        (
            lambda g, x, w: conv(g, x, w, [3], [2, 2], [1, 1], [1, 1], True, [1, 1], 1, every),
            (f(2, 3, 8, 8), f(2, 4, 4, 4), f(4, 3, 3, 3)),
        ),
        (
            lambda g, x, at: aten.max_pool2d_with_indices_backward(g, x, [3, 3], [2, 2], [1, 1], [1, 1], False, at),
            (f(*pooled.shape), x, at),
        ),
        (
            lambda g, x, at: aten.max_pool3d_with_indices_backward(
                g, x, [2, 2, 2], [2, 2, 2], [0, 0, 0], [1, 1, 1], False, at
            ),
            (f(1, 2, 2, 3, 2), deep, at3),
        ),
        (
            lambda g, x: aten.avg_pool2d_backward(g, x, [3, 3], [2, 2], [1, 1], False, False, None),
            (f(2, 3, 4, 4), f(2, 3, 7, 7)),
        ),
        (
            lambda g, x: aten.avg_pool3d_backward(g, x, [2, 2, 2], [2, 2, 2], [0, 0, 0], False, True, None),
            (f(1, 2, 2, 3, 2), deep),
        ),
        (aten._adaptive_avg_pool2d_backward.default, (f(2, 3, 3, 2), f(2, 3, 7, 5))),
        (
            lambda g: aten.upsample_bilinear2d_backward(g, [6, 8], [2, 3, 3, 4], False, None, None),
            (f(2, 3, 6, 8),),
        ),
        (lambda g: aten.upsample_nearest2d_backward(g, [6, 8], [2, 3, 3, 4], None, None), (f(2, 3, 6, 8),)),
        (
            lambda g: aten.upsample_bicubic2d_backward(g, [6, 8], [2, 3, 3, 4], True, None, None),
            (f(2, 3, 6, 8),),
        ),
        (
            lambda g, x, grid: aten.grid_sampler_2d_backward(g, x, grid, 0, 0, False, [True, True]),
            (f(2, 3, 4, 5), f(2, 3, 6, 7), grid),
        ),
        (lambda x, src: aten.as_strided_scatter(x, src, [2, 2], [4, 1], 1), (f(3, 4), f(2, 2))),
        (lambda x: x + aten.new_empty_strided(x, [3, 2], [2, 1]).zero_(), (f(3, 2),)),
    ]
