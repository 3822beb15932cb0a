# SPDX-License-Identifier: Apache-2.0
"""What running an op once more costs: time from its operations and bytes, or as measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from memc.ir.core import Op
from memc.ir.op_queries import flops, view_offset


@dataclass(frozen=True)
class Device:
    """A roofline: an op takes the longer of computing and moving its bytes, and what it takes to start it."""

    flops: float
    """Floating-point operations a second that kernels reach."""
    bandwidth: float
    """Bytes a second to and from memory."""
    start: float
    """Seconds to start a kernel."""

    def least_seconds(self, operations: int, nbytes: int) -> float:
        """What computing and moving bytes take at the same time, once started."""
        return max(operations / self.flops, nbytes / self.bandwidth)


DEVICES: Mapping[str, Device] = {
    # One H100: what f32 products without TF32 and copies reach of 67 TFLOP/s and 3.35 TB/s.
    "cuda": Device(45e12, 2.8e12, 2e-6),
    # Two cores with AVX2.
    "llvm": Device(100e9, 15e9, 1e-6),
}


@dataclass(frozen=True)
class CostModel:
    """Costs of ops in picoseconds, as whole numbers, so that plans do not depend on rounding."""

    device: Device
    measured: Mapping[str, float] = field(default_factory=dict)
    """Seconds by `signature`; they count instead of the roofline."""

    def cost(self, op: Op) -> int:
        """Picoseconds of one run. A view, which makes no code, costs nothing."""
        if op.name == "constant" or view_offset(op) is not None:
            return 0
        seconds = self.measured.get(signature(op))
        if seconds is None:
            seconds = self.device.least_seconds(flops(op), moved_bytes(op)) + self.device.start
        return round(seconds * 1e12)


def moved_bytes(op: Op) -> int:
    """Bytes that an op reads and writes, each operand once."""
    return sum(v.type.nbytes for v in (*dict.fromkeys(op.operands), *op.results))


def signature(op: Op) -> str:
    """What ops of one cost have in common: name, attributes that shape the kernel, and types. A fused group is named by
    all of its ops."""
    name = op.name if op.region is None else "+".join(inner.name for inner in op.region.ops)
    types = ", ".join(str(v.type) for v in op.operands)
    return f"{name}({types}) : {', '.join(str(v.type) for v in op.results)}"
