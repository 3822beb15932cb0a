# SPDX-License-Identifier: Apache-2.0
"""Drawings as PNG, by matplotlib, which the extra `report` has."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from memc.ir.errors import UsageError

from .drawing import Drawing, drawing_of
from .picture import PlanPicture

DPI = 200
"""Pixels for each inch, of 96 CSS pixels."""

POINTS = 72 / 96
"""Of a CSS pixel."""


def png_of(picture: PlanPicture) -> bytes:
    """The addresses of a picture's first space over time. Raises UsageError without matplotlib."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError(
            "PNG needs matplotlib, which is not installed; type: pip install 'memc[report]', or write SVG"
        ) from None
    drawing = drawing_of(picture)
    figure = Figure(figsize=(drawing.width / 96, drawing.height / 96))
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_xlim(0, drawing.width)
    axes.set_ylim(drawing.height, 0)
    axes.axis("off")
    _draw(axes, drawing)
    found = BytesIO()
    figure.savefig(found, dpi=DPI, facecolor="white", format="png")
    return found.getvalue()


def _draw(axes: Any, drawing: Drawing) -> None:
    from matplotlib.collections import PolyCollection

    for colour, boxes in drawing.boxes:
        corners = [[(x, y), (x + w, y), (x + w, y + h), (x, y + h)] for x, y, w, h in boxes]
        axes.add_collection(PolyCollection(corners, facecolors=colour, edgecolors="white", linewidths=0.15))
    for line in drawing.lines:
        (x0, y0), (x1, y1) = line.begin, line.end
        axes.plot((x0, x1), (y0, y1), color=line.colour, linewidth=0.8, linestyle="--" if line.dashed else "-")
    sides = {"start": "left", "middle": "center", "end": "right"}
    for text in drawing.texts:
        size, side = text.size * POINTS, sides[text.anchor]
        shown = text.text.replace("$", r"\$")  # Which begins a formula.
        axes.text(*text.at, shown, color=text.colour, fontsize=size, ha=side, va="center")
