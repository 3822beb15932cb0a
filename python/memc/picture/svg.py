# SPDX-License-Identifier: Apache-2.0
"""Drawings as SVG."""

from __future__ import annotations

from xml.sax.saxutils import escape, quoteattr

from .drawing import Box, Drawing, Line, Text, drawing_of
from .picture import PlanPicture


def svg_of(picture: PlanPicture) -> str:
    """The addresses of a picture's first space over time."""
    drawing = drawing_of(picture)
    parts = [*_boxes(drawing), *map(_line, drawing.lines), *map(_text, drawing.texts)]
    size = f'width="{drawing.width:g}" height="{drawing.height:g}" viewBox="0 0 {drawing.width:g} {drawing.height:g}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" role="img">'
    ground = f'<rect width="{drawing.width:g}" height="{drawing.height:g}" fill="#ffffff"/>'
    title = f"<title>{escape(picture.title)}: addresses over {picture.unit}s</title>"
    return "\n".join([head, title, ground, *parts, "</svg>"]) + "\n"


def _boxes(drawing: Drawing) -> list[str]:
    """One path for each colour; a thin white line sets neighbours apart."""
    return [
        f'<path fill={quoteattr(colour)} stroke="#ffffff" stroke-width="0.25" d="{"".join(map(_path, boxes))}"/>'
        for colour, boxes in drawing.boxes
    ]


def _path(box: Box) -> str:
    left, top, width, height = box
    return f"M{left:g} {top:g}h{width:g}v{height:g}h{-width:g}z"


def _line(line: Line) -> str:
    dash = ' stroke-dasharray="5 3"' if line.dashed else ""
    ends = f'x1="{line.begin[0]:g}" y1="{line.begin[1]:g}" x2="{line.end[0]:g}" y2="{line.end[1]:g}"'
    return f"<line {ends} stroke={quoteattr(line.colour)}{dash}/>"


def _text(text: Text) -> str:
    at = f'x="{text.at[0]:g}" y="{text.at[1]:g}" dominant-baseline="middle"'
    look = f'fill={quoteattr(text.colour)} font-size="{text.size:g}" text-anchor="{text.anchor}"'
    return f"<text {at} {look}>{escape(text.text)}</text>"
