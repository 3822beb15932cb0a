# SPDX-License-Identifier: Apache-2.0
"""Colours that people with any colour vision can tell apart."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from memc.ir.core import Array
from memc.picture.colours import HUES, ROLES
from memc.picture.drawing import RAMP

VISION = {
    "usual": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
"""How linear sRGB is seen (Machado, Oliveira and Fernandes 2009, table 1, severity 1.0)."""

XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)

LEAST = 15.0
"""CIE 1976 colour difference; 2.3 is just noticed."""


def lab(colour: str, vision: str) -> Array:
    """CIE L*a*b* (D65) of a colour as it is seen."""
    parts = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    seen = np.clip(VISION[vision] @ linear, 0, 1)
    x, y, z = np.cbrt(np.maximum(XYZ @ seen / (XYZ @ np.ones(3)), 1e-9))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_differences_are_those_of_the_field() -> None:
    assert lab("#ffffff", "usual") == pytest.approx([100, 0, 0], abs=0.01)
    assert lab("#ff0000", "usual") == pytest.approx([53.24, 80.09, 67.20], abs=0.1)
    assert lab("#ff0000", "deuteranopia")[0] > lab("#ff0000", "protanopia")[0]  # Red is dark to protanopes.


@pytest.mark.parametrize("vision", VISION)
def test_hues_differ(vision: str) -> None:
    apart = {(a, b): float(np.linalg.norm(lab(a, vision) - lab(b, vision))) for a, b in combinations(HUES, 2)}
    assert min(apart.values()) >= LEAST, min(apart.items(), key=lambda item: item[1])


@pytest.mark.parametrize("vision", VISION)
def test_the_ramp_grows_lighter(vision: str) -> None:
    lightness = [lab(colour, vision)[0] for colour in RAMP]
    assert all(after - before >= 5 for before, after in zip(lightness, lightness[1:]))


def test_the_commonest_roles_differ_most() -> None:
    """Activations, gradients and what is recomputed lie side by side in most pictures."""
    used = [HUES[ROLES[name]] for name in ("activations", "gradients and updates", "recomputed") if name in ROLES]
    assert len(used) == 3
    for vision in VISION:
        for one, other in combinations(used, 2):
            assert np.linalg.norm(lab(one, vision) - lab(other, vision)) >= 25
