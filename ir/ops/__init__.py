# SPDX-License-Identifier: Apache-2.0
"""The ops. Importing this package registers all of them; a new op is one new module named here."""

from . import (  # noqa: F401
    arg_reduce,
    constant,
    cumulative,
    layer_norm,
    reduce,
    reshape,
    softmax,
    sort,
)
