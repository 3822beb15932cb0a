# SPDX-License-Identifier: Apache-2.0
"""What a profile says of each op: its time beside its work, and the parts of a run in order."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from memc.ir.copies import DONES, STARTS
from memc.ir.core import Function, Op
from memc.ir.cost_model import Device, moved_bytes, signature
from memc.ir.op_queries import flops
from memc.runtime.execute.profile import Call


@dataclass(frozen=True)
class OpTime:
    """One op of the planned function, with all its kernel calls."""

    index: int
    """Number of the op among the function's, constants and views included."""
    name: str
    """The op's name; of a fused group, its ops' names."""
    result: str
    """Name of its first result in model.memir."""
    type: str
    """The type of that result."""
    kernels: tuple[str, ...]
    seconds: float
    """Median of the profiled runs. Ops in one joint kernel (pass `join-kernels`) share its time by what the roofline says of
    each."""
    share: float
    """The share of all ops' seconds."""
    bytes: int
    """Bytes read and written, each operand once, as if there were no caches."""
    flops: int
    roofline: float
    """The least seconds that bytes and flops take on the described device, over `seconds`. More than 1: what it reads is
    still in a cache, or the device is faster than described."""
    signature: str
    """`ir/cost_model.py`'s name for ops of one cost."""


@dataclass(frozen=True)
class Profile:
    """The ops' times of some runs."""

    ops: list[OpTime]
    """Those that call kernels, in the order of execution."""
    device: str
    """The device whose roofline it is: a name in `ir/cost_model.py`."""
    peak_flops: float
    """Floating-point operations of that device per second."""
    bandwidth: float
    """Bytes per second of that device."""
    runs: int
    run_seconds: float
    """Seconds from the first kernel's beginning to the last one's end, in the run that `calls` lists."""
    calls: list[Call]
    """The kernel calls of the run of median duration."""

    @property
    def seconds(self) -> float:
        """Seconds of all ops."""
        return sum(op.seconds for op in self.ops)

    @property
    def bytes(self) -> int:
        """Bytes of all ops."""
        return sum(op.bytes for op in self.ops)

    @property
    def flops(self) -> int:
        """Floating-point operations of all ops."""
        return sum(op.flops for op in self.ops)

    @property
    def least_seconds(self) -> float:
        """What all ops take on the described device, one after another."""
        return sum(op.roofline * op.seconds for op in self.ops)

    def slowest(self, count: int | None = None) -> list[OpTime]:
        """The ops by time, longest first; `count` of them, or all."""
        return sorted(self.ops, key=lambda op: (-op.seconds, op.index))[:count]

    def seconds_by_signature(self) -> dict[str, float]:
        """Mean seconds of ops of one signature: what files of measured times have, without copies."""
        found: dict[str, list[float]] = {}
        for op in self.ops:
            if op.name in STARTS or op.name in DONES:  # How long ops wait is no cost of theirs.
                continue
            found.setdefault(op.signature, []).append(op.seconds)
        return {name: statistics.fmean(times) for name, times in sorted(found.items())}

    def trace(self) -> dict[str, Any]:
        """One run in Chrome's trace format, for Perfetto or chrome://tracing; microseconds."""
        by_index = {op.index: op for op in self.ops}
        events = [_event("run", "run", 0.0, self.run_seconds, {"device": self.device})]
        for call in self.calls:
            op = by_index[call.op]
            facts = {"op": f"%{op.result}", "kernel": call.symbol, "bytes": op.bytes, "flops": op.flops}
            events.append(_event(op.name, "op", call.begin, call.seconds, {**facts, "signature": op.signature}))
        return {"traceEvents": events, "displayTimeUnit": "ms"}

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        data = {name: value for name, value in asdict(self).items() if name != "calls"}
        totals = {"seconds": self.seconds, "bytes": self.bytes, "flops": self.flops}
        return {**data, **totals, "seconds_by_signature": self.seconds_by_signature()}


def _event(name: str, category: str, begin: float, seconds: float, facts: Mapping[str, Any]) -> dict[str, Any]:
    times = {"ts": round(1e6 * begin, 3), "dur": round(1e6 * seconds, 3)}
    return {"name": name, "cat": category, "ph": "X", "pid": 0, "tid": 0, **times, "args": dict(facts)}


def make_profile(function: Function, runs: Sequence[Sequence[Call]], name: str, device: Device) -> Profile:
    """The profile of a planned function from the kernel calls of at least one run; `name` is the device's."""
    lengths = [max((call.begin + call.seconds for call in calls), default=0.0) for calls in runs]
    middle = sorted(range(len(runs)), key=lambda n: (lengths[n], n))[(len(runs) - 1) // 2]
    parts = _parts(function, device)
    times: dict[int, list[float]] = {}
    for calls in runs:
        spent: dict[int, float] = {}
        for call in calls:
            for op, part in parts.get(call.op, {call.op: 1.0}).items():
                spent[op] = spent.get(op, 0.0) + part * call.seconds
        for op, seconds in spent.items():
            times.setdefault(op, []).append(seconds)
    median = {op: statistics.median(found) for op, found in sorted(times.items())}
    total = sum(median.values())
    kernels: dict[int, list[str]] = {}
    for call in runs[middle]:
        for op in parts.get(call.op, {call.op: 1.0}):
            kernels.setdefault(op, []).append(call.symbol)
    ops = [
        _op_time(function.ops[op], op, tuple(kernels[op]), seconds, seconds / total if total else 0.0, device)
        for op, seconds in median.items()
    ]
    return Profile(ops, name, device.flops, device.bandwidth, len(runs), lengths[middle], list(runs[middle]))


def _parts(function: Function, device: Device) -> dict[int, dict[int, float]]:
    """All ops of each joint kernel, by its first op, and the share of the kernel's time that is each op's."""
    groups: dict[Any, list[int]] = {}
    for index, op in enumerate(function.ops):
        if op.plan.joint is not None:
            groups.setdefault(op.plan.joint, []).append(index)
    found = {}
    for group in groups.values():
        least = [device.least_seconds(flops(function.ops[n]), moved_bytes(function.ops[n])) for n in group]
        found[group[0]] = {n: seconds / sum(least) for n, seconds in zip(group, least)}
    return found


def _op_time(op: Op, index: int, kernels: tuple[str, ...], seconds: float, share: float, device: Device) -> OpTime:
    operations, moved = flops(op), moved_bytes(op)
    least = device.least_seconds(operations, moved)
    return OpTime(
        index=index,
        name=op.name if op.region is None else "+".join(inner.name for inner in op.region.ops),
        result=op.results[0].name,
        type=str(op.results[0].type),
        kernels=kernels,
        seconds=seconds,
        share=share,
        bytes=moved,
        flops=operations,
        roofline=least / seconds if seconds else 0.0,
        signature=signature(op),
    )
