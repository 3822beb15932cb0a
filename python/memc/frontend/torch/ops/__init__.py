# SPDX-License-Identifier: Apache-2.0
"""Converters of overloads. Importing this package registers all of them; a new family is one new module named here."""

from . import (  # noqa: F401
    activation,
    attention,
    comparison,
    conversion,
    convolution,
    creation,
    elementwise,
    encoder_layer,
    indexing,
    layout,
    loss,
    margin_loss,
    matmul,
    normalization,
    pooling,
    random,
    reduction,
    resize,
    sorting,
    special,
    symbolic,
    views,
    vision,
)
