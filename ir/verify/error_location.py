# SPDX-License-Identifier: Apache-2.0
"""Places in the IR, for the verifiers' messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from ..core import Op, Value
from ..errors import InvalidError
from ..text.printer import print_name, print_op


@dataclass(slots=True)  # Not frozen: one is made for each op, and setting fields of a frozen one takes thrice as long.
class Where:
    """A place in the IR, for messages."""

    function: str
    number: int | None = None
    op: Op | None = None

    def fail(self, message: str, value: Value | None = None) -> NoReturn:
        """Raise InvalidError: place, message, and the op's text on the following lines."""
        parts = [f"@{self.function}"]
        excerpt = ""
        if self.op is not None:
            location = f" ({self.op.location})" if self.op.location else ""
            parts.append(f"op {self.number} {self.op.name}{location}")
            excerpt = "\n" + _excerpt(self.op)
        if value is not None:
            parts.append(f"value {print_name(value)}")
        raise InvalidError(f"invalid IR: {', '.join(parts)}: {message}{excerpt}")


def _excerpt(op: Op) -> str:
    try:
        lines = print_op(op, "  ").split("\n")
        return "\n".join(lines if len(lines) <= 3 else [*lines[:2], "    ..."])  # Of a region, how it begins.
    except (TypeError, ValueError, KeyError, AttributeError):
        return f"  {op!r}"  # broken too badly to print
