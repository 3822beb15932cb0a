# SPDX-License-Identifier: Apache-2.0
"""Importers of ONNX op types. Importing this package registers all of them; a new file is one new line here."""

from . import (  # noqa: F401
    activation,
    attention,
    conv_pool,
    einsum,
    elementwise,
    image,
    indexing,
    loss,
    matmul,
    ml,
    normalization,
    optimizer,
    quantize,
    quantized_nn,
    random,
    recurrent,
    reduction,
    resize,
    scan_sort,
    signal,
    softmax,
    structure,
    trees,
)
