# SPDX-License-Identifier: Apache-2.0
"""The link between a device and its host as measured: what plans of copies count with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memc.passes.measured_times import Rates
from memc.passes.offload.link_rates import DEFAULTS, LINKS

if TYPE_CHECKING:
    from memc.runtime.execute.copy_times import CopyTimes


@dataclass(frozen=True)
class LinkTimes:
    """Rates of both directions, and what they are made of."""

    out: Rates
    """To the host."""
    back: Rates
    sizes: list[dict[str, float]]
    """Seconds of one copy alone in each direction, `out` and `in`, by `bytes`."""

    @staticmethod
    def of(times: CopyTimes, kind: str) -> LinkTimes:
        """The largest copies give the rates, the smallest the latency. What copies take kernels is not measured: it is that of the
        link which targets of this `kind` have by themselves."""
        sizes = [
            {"bytes": nbytes, "out": seconds, "in": times.alone["in"][nbytes]}
            for nbytes, seconds in times.alone["out"].items()
        ]
        known = LINKS[DEFAULTS[kind]]
        return LinkTimes(
            _rates(times.alone["out"], times.both["out"], known.out),
            _rates(times.alone["in"], times.both["in"], known.back),
            sizes,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, as the option `link` reads it."""
        return {"out": self.out.to_dict(), "in": self.back.to_dict(), "sizes": self.sizes}


def _rates(alone: Mapping[int, float], both: float, known: Rates) -> Rates:
    """What the times of copies alone, by bytes, and one of the most bytes beside others say."""
    least, most = min(alone), max(alone)
    bandwidth = most / alone[most]
    latency = max(0.0, alone[least] - least / bandwidth)
    return Rates(bandwidth, min(bandwidth, most / both), latency, known.sync, known.drag)
