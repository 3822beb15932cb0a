# SPDX-License-Identifier: Apache-2.0
"""Importers of ONNX op types. Importing this package registers all of them; a new file is one new line here."""

from . import (  # noqa: F401
    activation,
    attention,
    elementwise,
    indexing,
    ml,
    normalization,
    optimizer,
    quantize,
    reduction,
    scan_sort,
    signal,
    softmax,
    structure,
    trees,
)
