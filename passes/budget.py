# SPDX-License-Identifier: Apache-2.0
"""Memory budgets as people write them in options: `4GiB`, `50%`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Optional

from memc.ir.checked_options import Amount, Checked, Range, What
from memc.ir.errors import BudgetError, UsageError
from memc.ir.footprint import Footprint
from memc.ir.machine import memory_bytes
from memc.ir.sizes import format_size, parse_size
from memc.ir.spaces import ARENA


@dataclass(frozen=True)
class Budget(Checked):
    """Bytes, or a share of what is taken without a budget.

    >>> Budget.parse("50%").of(1000), str(Budget.parse("4KiB"))
    (500, '4096')
    """

    bytes: Optional[Amount] = None
    percent: Annotated[float, Range(least=0, most=100)] = 100.0
    """Counts where `bytes` is None."""

    def owner(self) -> str:
        """What messages call it."""
        return "budget"

    @staticmethod
    def parse(text: str) -> Budget:
        """The budget `text` stands for. Raises ValueError saying what was expected."""
        expected = "a size such as 4GiB or a share such as 50%"
        if text.strip().endswith("%"):
            try:
                percent = float(text.strip()[:-1])
            except ValueError:
                raise ValueError(expected) from None
            if not 0 <= percent <= 100:
                raise ValueError("a share from 0% to 100%")
            return Budget(percent=percent)
        try:
            return Budget(parse_size(text))
        except UsageError:
            raise ValueError(expected) from None

    def of(self, without: int) -> int:
        """Bytes, where `without` bytes are taken without a budget."""
        return int(without * self.percent / 100) if self.bytes is None else self.bytes

    def __str__(self) -> str:
        return f"{self.percent:g}%" if self.bytes is None else str(self.bytes)


class HostBytes(int):
    """A number of bytes of the host's memory that may be given as text, also as a share of this machine's.

    >>> HostBytes.parse("4KiB") + 0
    4096
    """

    @staticmethod
    def parse(text: str) -> HostBytes:
        """The bytes `text` stands for. Raises ValueError saying what was expected."""
        asked = Budget.parse(text)
        there = memory_bytes()
        if asked.bytes is None and there is None:
            raise ValueError("a size such as 16GiB: this system does not say how much memory it has")
        return HostBytes(asked.of(there or 0))


AsBudget = Annotated[Budget, What("text such as 4GiB or 50%")]
"""An option's memory budget that is not a number."""

AsHostBytes = Annotated[HostBytes, What("text such as 16GiB or 50%")]
"""An option's host budget that is not a number."""


def over_budget(budget: int, least: Footprint, host_budget: int | None = None) -> BudgetError:
    """The error for a budget that is not kept. `least`: the fewest bytes that are reached; a budget for arenas alone has no
    other spaces. `host_budget`: bytes that copies on the host may take, where they are limited."""
    parts = least if least.peak > least[ARENA] else least.only(ARENA)
    limited = "" if host_budget is None else f" with a host budget of {host_budget} bytes ({format_size(host_budget)})"
    error = BudgetError(
        f"memory budget of {budget} bytes ({format_size(budget)}) cannot be met: the least reachable peak is {least.peak} "
        f"bytes ({format_size(least.peak)}: {parts.text()}){limited}"
    )
    error.least = least.peak
    return error
