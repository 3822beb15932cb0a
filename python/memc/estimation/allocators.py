# SPDX-License-Identifier: Apache-2.0
"""Frameworks' allocators, by name, and their settings. `cpp/allocators/` simulates them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Union

UNLIMITED = 2**63 - 1
MIB = 2**20


@dataclass(frozen=True)
class Caching:
    """PyTorch's caching allocator as of release 2.11, with the settings of PYTORCH_CUDA_ALLOC_CONF; sizes in bytes."""

    expandable_segments: bool = False
    large_segment: int = 20 * MIB
    """Bytes of a segment for requests of 1 to 10 MiB."""
    max_split: int | None = None
    """Blocks of so many bytes are not split; None where all are."""
    max_non_split_rounding: int = 20 * MIB
    divisions: tuple[int, ...] = (0,) * 16
    """Steps between powers of two to which requests are rounded: up to 2 MiB, 4 MiB, ..., from 32 GiB."""
    garbage_collection_threshold: float = 0.0
    """A share of the allowed memory; 0 for none."""
    memory_fraction: float | None = None
    """Of the device's memory, that may be reserved; None where no fraction is set."""
    events_complete: bool = True
    """Whether other streams have finished with a block at the next request after it was given back."""

    native = "caching"

    def numbers(self, device_total: int) -> list[int]:
        """As the simulator takes them."""
        most = UNLIMITED if self.max_split is None else self.max_split
        flags = int(self.expandable_segments), int(self.events_complete)
        return [
            flags[0],
            self.large_segment,
            most,
            self.max_non_split_rounding,
            device_total,
            flags[1],
            *self.divisions,
        ]

    def shares(self) -> tuple[float, float]:
        """Threshold of garbage collection, and fraction of memory."""
        return self.garbage_collection_threshold, -1.0 if self.memory_fraction is None else self.memory_fraction


@dataclass(frozen=True)
class Bfc:
    """TensorFlow's and XLA's best fit with coalescing."""

    limit: int | None = None
    """Bytes of all regions; None for the device's memory."""
    growth: bool = True
    """Whether regions are added as they are needed, each twice the last; otherwise there is one, of the limit."""
    garbage_collection: bool = False
    fragmentation_fraction: float = 0.0
    share: float = 1.0
    """Of the device's memory, where there is no limit."""

    native = "bfc"

    def numbers(self, device_total: int) -> list[int]:
        """As the simulator takes them."""
        limit = int(device_total * self.share) if self.limit is None else self.limit
        return [limit, int(self.growth), int(self.garbage_collection)]

    def shares(self) -> tuple[float, float]:
        """The second is what a block's rest may be of the limit."""
        return 0.0, self.fragmentation_fraction


@dataclass(frozen=True)
class Cupy:
    """CuPy's memory pool."""

    limit: int | None = None
    """Bytes of all that it has of the device."""

    native = "cupy"

    def numbers(self, device_total: int) -> list[int]:
        """As the simulator takes them."""
        return [UNLIMITED if self.limit is None else self.limit]

    def shares(self) -> tuple[float, float]:
        """None."""
        return 0.0, 0.0


@dataclass(frozen=True)
class Mxnet:
    """MXNet's pooled storage."""

    kind: int = 0
    """0 naive, 1 round, 2 unpooled."""
    page: int = 4096
    large_unit: int = 2 * MIB
    linear_cutoff: int = 24
    reserve_percent: int = 5

    native = "mxnet"

    def numbers(self, device_total: int) -> list[int]:
        """As the simulator takes them."""
        return [self.kind, self.page, self.large_unit, self.linear_cutoff, self.reserve_percent]

    def shares(self) -> tuple[float, float]:
        """None."""
        return 0.0, 0.0


Allocator = Union[Caching, Bfc, Cupy, Mxnet]

ALLOCATORS: Mapping[str, Allocator] = {
    "pytorch": Caching(),
    "tensorflow": Bfc(),
    "xla": Bfc(growth=False, share=0.75),
    "mxnet": Mxnet(),
    "mxnet-round": Mxnet(kind=1),
    "mxnet-unpooled": Mxnet(kind=2),
    "cupy": Cupy(),
}
"""By the names of the command line, with what each does by default."""
