# SPDX-License-Identifier: Apache-2.0
"""The page of a picture: one HTML file that needs nothing else, made of the files in `web/`."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from importlib.resources import files

from .changes import changes
from .packing import packed_page
from .picture import PlanPicture

LICENCE = "uplot/LICENSE"
"""What uPlot's copies must come with."""

STYLES = ("uplot/uPlot.min.css", "report.css")

SCRIPTS = (
    "uplot/uPlot.iife.min.js",
    "data.js",
    "colours.js",
    "rectangles.js",
    "view.js",
    "addresses.js",
    "curves.js",
    "lanes.js",
    "details.js",
    "table.js",
    "search.js",
    "main.js",
)
"""In the order in which they run."""


def page_of(picture: PlanPicture, other: PlanPicture | None = None) -> str:
    """The page of a picture, or of two of them one below the other with what differs."""
    pictures: Sequence[PlanPicture] = [picture] if other is None else [picture, other]
    changed = [] if other is None else changes(picture, other)
    titles = " and ".join(each.title for each in pictures)
    parts = {
        "title": html.escape(titles),
        "styles": "\n".join(map(_web, STYLES)),
        "data": packed_page(pictures, changed),
        "scripts": "\n".join((f"/*\n{_web(LICENCE)}\n*/", *map(_web, SCRIPTS))),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _web("report.html"))


def _web(name: str) -> str:
    """A file of the page."""
    return files(__package__).joinpath("web", *name.split("/")).read_text(encoding="utf-8").strip()
