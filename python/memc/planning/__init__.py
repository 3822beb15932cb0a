# SPDX-License-Identifier: Apache-2.0
"""Plans of memory for problems that come from elsewhere: `memc.plan` and what it reads."""

from .planner import plan
from .plans import Plan, SpacePlan
from .tensors import Tensor
from .unfit import CapacityError, Unfit

__all__ = ["CapacityError", "Plan", "SpacePlan", "Tensor", "Unfit", "plan"]
