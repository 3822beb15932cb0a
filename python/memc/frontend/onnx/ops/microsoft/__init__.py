# SPDX-License-Identifier: Apache-2.0
"""Importers of onnxruntime's own operators (domain com.microsoft), which its quantizers and optimizers write."""

from . import (  # noqa: F401
    activation,
    attention,
    channels_last,
    embedding,
    fused,
    multi_head_attention,
    normalization,
    packed_bits,
    quantized_elementwise,
    quantized_lstm,
    quantized_matmul,
    quantized_pool,
    rotary,
)
