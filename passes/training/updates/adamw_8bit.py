# SPDX-License-Identifier: Apache-2.0
"""AdamW whose moments are kept as bytes of the dynamic code (`ir/ops/dynamic_code.py`), 2 bytes and 1/32 for each weight's element:
each byte is for an element's part of the greatest magnitude in its block of 256, which is kept as f32.

As in the format's source, weights of less than `LEAST` elements keep moments in f32. The last block is filled up with zeros.
The update itself is AdamW's, in f32, by the moments before they are rounded.
"""

from __future__ import annotations

from memc.ir.core import Value
from memc.ir.ops.dynamic_code import ZERO
from memc.ir.ops.shared.derivatives import square
from memc.ir.types import DType, TensorType
from memc.passes.training.optimizers import Optimizer

from .adam import ADAMW, adam_scalars
from .rule import First, Site, UpdateRule

BLOCK = 256
"""Elements that share one magnitude."""

LEAST = 4096
"""Elements of the smallest weight whose moments are bytes."""


def _states(options: Optimizer, type: TensorType) -> First:
    if type.elements < LEAST:
        return ADAMW.states(options, type)
    blocks = -(-type.elements // BLOCK)
    codes, scales = TensorType(DType.U8, (blocks, BLOCK)), TensorType(DType.F32, (blocks, 1))
    return {
        "exp_avg": (codes, float(ZERO)),
        "exp_avg.absmax": (scales, 0.0),
        "exp_avg_sq": (codes, 0.0),
        "exp_avg_sq.absmax": (scales, 0.0),
    }


def _moved(site: Site, state: str, x: Value, keep: float, signed: bool) -> Value:
    """A running mean in blocks, moved by x; its state takes the nearest numbers."""
    b, codes, scales = site.b, site.states[state], site.states[f"{state}.absmax"]
    old = b.op("mul", [b.op("decode_dynamic", [codes], signed=signed), scales])
    mean = site.op("add", site.by(old, keep), site.by(x, 1 - keep))
    size = b.op("abs", [mean]) if signed else mean
    greatest = b.op("reduce_max", [size], axes=(1,), keepdims=True)
    divisor = b.op("max", [greatest, b.scalar(1e-38, DType.F32)])
    site.assign(codes, b.op("encode_dynamic", [b.op("div", [mean, divisor])], signed=signed))
    site.assign(scales, greatest)
    return mean


def _update(site: Site) -> None:
    if site.weight.type.elements < LEAST:
        ADAMW.update(site)
        return
    b, o, shape = site.b, site.options, site.weight.type.shape
    count = site.weight.type.elements
    blocks = -(-count // BLOCK)
    flat = b.op("reshape", [site.gradient], shape=(count,))
    if count % BLOCK:
        flat = b.op("pad", [flat], low=(0,), high=(blocks * BLOCK - count,), mode="constant", value=0.0)
    g = b.op("reshape", [flat], shape=(blocks, BLOCK))
    first = _moved(site, "exp_avg", g, o.beta1, signed=True)
    second = _moved(site, "exp_avg_sq", square(b, g), o.second_decay, signed=False)
    deviation = site.op("add", site.by(site.op("sqrt", second), site.scalars[1]), o.added)
    step = b.op("reshape", [site.op("div", site.by(first, site.scalars[0]), deviation)], shape=(blocks * BLOCK,))
    if count % BLOCK:
        step = b.op("slice", [step], starts=(0,), stops=(count,), steps=(1,))
    step = b.op("reshape", [step], shape=shape)
    site.assign(site.weight, site.op("sub", site.decayed_weight(), step))


ADAMW_8BIT = UpdateRule(_states, _update, adam_scalars, counts=True)
