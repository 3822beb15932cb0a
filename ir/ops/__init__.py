# SPDX-License-Identifier: Apache-2.0
"""The ops. Importing this package registers all of them; a new op is one new module named here."""

from . import (  # noqa: F401
    activation,
    arg_reduce,
    binary,
    broadcast,
    cast,
    concat,
    constant,
    copy,
    cumulative,
    gather,
    iota,
    layer_norm,
    pad,
    reduce,
    reshape,
    scatter,
    scatter_combine,
    select,
    slice,
    softmax,
    sort,
    transpose,
    unary,
)
