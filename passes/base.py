# SPDX-License-Identifier: Apache-2.0
"""What a pass is: a small typed object over plain functions. Valid IR in, valid IR out."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from memc.ir.checked_options import Checked
from memc.ir.module import Module


class Finding:
    """Base of what a pass reports of @main, besides the IR that it rewrites."""


@dataclasses.dataclass(frozen=True)
class Pass(Checked):
    """Base of all passes. A subclass is a frozen dataclass whose fields are its options, each with a default.

    Fields are bool, int, float, str, `Seconds`, `Literal` choices, `Optional` of those, or `tuple[str, ...]`, with rules as
    `Checked` reads them; options are checked when the pass is made, and UsageError says what is wrong with one. Rules between
    fields go into `check`. In pipeline text an option is spelled with dashes or underscores.
    """

    name: ClassVar[str]
    """Kebab-case, unique; the text form's spelling."""
    plans: ClassVar[bool] = False
    """Whether the pass gives values their addresses. The manager checks the plan after such a pass."""

    orders: ClassVar[bool] = False
    """Whether the pass changes the order of ops. The manager notes the peak of the order that it is given."""

    def owner(self) -> str:
        """What messages about the options begin with."""
        return self.name

    def apply(self, module: Module) -> Finding | None:
        """Rewrite `module` in place. Most passes have nothing to say. Raises a MemcError only for what the user can
        change."""
        raise NotImplementedError(self.name)

    def __str__(self) -> str:
        """The pass as pipeline text, with the options that differ from their defaults."""
        given = [f"{key.replace('_', '-')}={_text(value)}" for key, value in self._changed()]
        return self.name + ("{" + " ".join(given) + "}" if given else "")

    def _changed(self) -> Iterator[tuple[str, Any]]:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                yield field.name, value


LibraryTarget = Literal["llvm", "cuda", "none"]
"""The target whose library kernels a pass may use; `none` for no library kernels."""


def alignment_of(given: int | None, module: Module) -> int:
    """Bytes of which offsets are multiples: what an option gives or, where that is None, what the module's target has."""
    return module.target.alignment if given is None else given


def library_target(given: LibraryTarget | None, module: Module) -> LibraryTarget:
    """The target whose library kernels a pass uses: what an option gives or, where that is None, the module's."""
    return module.target.kind if given is None else given


def class_name(name: str) -> str:
    """`in-place` as `InPlace`, for banners."""
    return "".join(part.capitalize() for part in name.split("-"))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "[" + ",".join(map(quoted, map(str, value))) + "]"
    return quoted(value) if isinstance(value, str) else str(value)


def quoted(text: str) -> str:
    """Text as pipeline text has it, between quotes if it has separators, brackets or quotes. One with quotes of both kinds has no such
    form."""
    if re.fullmatch(r"[^\s,{}()\[\]\"']+", text):
        return text
    return f"'{text}'" if '"' in text else f'"{text}"'
