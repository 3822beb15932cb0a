# SPDX-License-Identifier: Apache-2.0
"""Values and names as messages about a user's mistake have them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import islice


def nearest(word: str, names: Iterable[str], sigil: str = "") -> str:
    """`; did you mean NAME?` for the name most like `word` among the first 5000, whatever its case; empty if none is. `sigil`:
    what is written before names."""
    plain = {name.lower().replace("_", "-"): name for name in islice(names, 5000)}
    wanted = word[:80].lower().replace("_", "-")
    close = difflib.get_close_matches(wanted, plain, n=1)
    if not close and len(wanted) > 2:  # A part of a name, such as `best` of `best-fit`.
        close = [name for name in plain if name.startswith(wanted)][:1]
    return f"; did you mean {sigil}{plain[close[0]]}?" if close else ""


def shown(value: object) -> str:
    """A value in a message: one line of moderate length."""
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # Of a number with more digits than Python writes.
        text = f"a {type(value).__name__} that is too long to be shown"
    text = "".join(c if c.isprintable() else "?" for c in text)
    return text if len(text) <= 80 else f"{text[:77]}..."
