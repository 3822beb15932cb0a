# SPDX-License-Identifier: Apache-2.0
"""Colours of what has names, for pages and drawings alike."""

from __future__ import annotations

from collections.abc import Iterable

from memc.report import roles

from .from_plan import OUTPUTS, TENSORS
from .picture import BEFORE, BLOCKS

HUES = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#bb4400", "#5a5a5a", "#f0e442")
"""Colours that people with any colour vision can tell apart: those of Okabe and Ito 2008, vermilion and grey darker."""

ROLES = {
    **dict.fromkeys((roles.ACTIVATIONS, TENSORS, BLOCKS), 0),
    **dict.fromkeys((roles.GRADIENTS, OUTPUTS), 1),
    roles.COPIED_IN: 2,
    roles.ON_HOST: 3,
    roles.WORKSPACES: 4,
    roles.RECOMPUTED: 5,
    **dict.fromkeys((roles.STATES, BEFORE), 6),
}
"""Hues of roles, the same in all pictures."""


def role_hues(names: Iterable[str]) -> dict[str, str]:
    """The colour of each role; roles that are not known have the hues that are left, the last ones first."""
    found: dict[str, str] = {}
    for name in names:
        at = ROLES.get(name)
        if at is None:
            free = [hue for hue in reversed(HUES) if hue not in found.values()]
            found[name] = free[0] if free else HUES[len(found) % len(HUES)]
        else:
            found[name] = HUES[at]
    return found
