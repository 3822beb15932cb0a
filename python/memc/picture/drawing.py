# SPDX-License-Identifier: Apache-2.0
"""A picture of addresses over time for papers, as shapes that writers of file formats draw. Lengths are CSS pixels, from the top left."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Literal

import numpy as np

from memc.ir.sizes import format_size

from .colours import role_hues
from .picture import PlacedTensor, PlanPicture

RAMP = ("#26285f", "#1e5c8c", "#218e8d", "#5cbe68", "#bed83c", "#fae755")
"""Of rising lightness, for how long tensors are live."""

INK, QUIET, LIMIT = "#1b1f24", "#57606a", "#b3261e"

WIDTH, HEIGHT = 900.0, 560.0

LEFT, RIGHT, TOP, BOTTOM = 84.0, 40.0, 34.0, 62.0
"""Margins."""

GRID = 0.5
"""What edges are rounded to: rectangles that are the same then are drawn once."""

Box = tuple[float, float, float, float]
"""Left, top, width and height."""


@dataclass(frozen=True)
class Line:
    """From one point to another."""

    begin: tuple[float, float]
    end: tuple[float, float]
    colour: str
    dashed: bool = False


@dataclass(frozen=True)
class Text:
    """Words beside a point, level with their middle."""

    at: tuple[float, float]
    text: str
    colour: str = INK
    anchor: Literal["start", "middle", "end"] = "start"
    size: float = 12.0


@dataclass(frozen=True)
class Drawing:
    """Shapes, drawn in this sequence."""

    width: float
    height: float
    boxes: tuple[tuple[str, tuple[Box, ...]], ...]
    """By colour."""
    lines: tuple[Line, ...]
    texts: tuple[Text, ...]


def drawing_of(picture: PlanPicture, space: int = 0) -> Drawing:
    """The addresses of a space over time, each tensor a rectangle of its role's colour; of its live time's where there is one role."""
    boxes = _boxes(picture, space)
    lines, texts = _axes(picture, space)
    swatches, names = _legend(picture)
    return Drawing(
        WIDTH, HEIGHT, (*boxes, *swatches), tuple(lines), (Text((LEFT, 16), picture.title, size=14), *texts, *names)
    )


def _inner() -> tuple[float, float]:
    return WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM


class _Colours:
    """Of tensors, by role; where there is one role, by how long each is live, from the shortest to the longest."""

    def __init__(self, picture: PlanPicture) -> None:
        self.roles = role_hues(picture.roles())
        self.picture = picture
        steps = [picture.steps_of(tensor) for tensor in picture.tensors] or [1]
        self.least, self.most = min(steps), max(steps)

    def of(self, tensor: PlacedTensor) -> str:
        if len(self.roles) > 1:
            return self.roles[tensor.role]
        low, high = np.log1p(self.least), np.log1p(self.most)
        share = (np.log1p(self.picture.steps_of(tensor)) - low) / (high - low) if high > low else 0.0
        return RAMP[min(len(RAMP) - 1, int(share * len(RAMP)))]


def _boxes(picture: PlanPicture, space: int) -> list[tuple[str, tuple[Box, ...]]]:
    width, height = _inner()
    colours = _Colours(picture)
    most = max(picture.spaces[space].nbytes, 1)
    first, last = picture.moment(0), picture.moment(picture.steps)
    across, up = width / max(1, last - first), height / most

    def rounded(value: float) -> float:
        return round(value / GRID) * GRID

    found: dict[str, dict[Box, None]] = defaultdict(dict)
    for tensor in picture.tensors:
        if tensor.space != space:
            continue
        top, bottom = (TOP + height - rounded(at * up) for at in (tensor.offset + tensor.nbytes, tensor.offset))
        for lower, upper in tensor.lives:
            left, right = (LEFT + rounded((picture.moment(at) - first) * across) for at in (lower, upper))
            box = (left, min(top, bottom - GRID), max(right - left, GRID), max(bottom - top, GRID))
            found[colours.of(tensor)][box] = None
    return [(colour, tuple(found[colour])) for colour in sorted(found)]


def _axes(picture: PlanPicture, space: int) -> tuple[list[Line], list[Text]]:
    width, height = _inner()
    shown = picture.spaces[space]
    most = max(shown.nbytes, 1)
    first, last = picture.moment(0), picture.moment(picture.steps)
    corner = (LEFT, TOP + height)
    lines = [Line((LEFT, TOP), corner, QUIET), Line(corner, (LEFT + width, TOP + height), QUIET)]
    texts = []
    for part in range(5):
        y = TOP + height - height * part / 4
        lines.append(Line((LEFT - 4, y), (LEFT, y), QUIET))
        texts.append(Text((LEFT - 8, y), format_size(most * part // 4), QUIET, "end"))
        x = LEFT + width * part / 4
        lines.append(Line((x, TOP + height), (x, TOP + height + 4), QUIET))
        texts.append(Text((x, TOP + height + 14), f"{first + (last - first) * part // 4:,}", QUIET, "middle"))
    texts.append(Text((LEFT + width, TOP + height + 30), f"{picture.unit}s", QUIET, "end"))
    for nbytes, name, colour in ((shown.lower_bound, "lower bound", INK), (shown.budget, "budget", LIMIT)):
        if nbytes is not None and 0 < nbytes <= most:
            y = TOP + height - height * nbytes / most
            lines.append(Line((LEFT, y), (LEFT + width, y), colour, dashed=True))
            texts.append(Text((LEFT + width, y - 8), f"{name} {format_size(nbytes)}", colour, "end"))
    return lines, texts


def _legend(picture: PlanPicture) -> tuple[list[tuple[str, tuple[Box, ...]]], list[Text]]:
    """Swatches and names of roles, or of the ends of the ramp."""
    colours = _Colours(picture)
    named = [(hue, role) for role, hue in colours.roles.items()]
    if len(colours.roles) < 2:
        named = [(RAMP[0], _live(picture, colours.least)), (RAMP[-1], _live(picture, colours.most))]
    boxes: list[tuple[str, tuple[Box, ...]]] = []
    texts: list[Text] = []
    x, y = LEFT, HEIGHT - 16
    for colour, name in named:
        boxes.append((colour, ((x, y - 6, 12.0, 12.0),)))
        texts.append(Text((x + 18, y), name))
        x += 36 + 7 * len(name)
    return boxes, texts


def _live(picture: PlanPicture, steps: int) -> str:
    return f"live for {steps:,} {picture.unit}{'' if steps == 1 else 's'}"
