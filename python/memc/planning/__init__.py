# SPDX-License-Identifier: Apache-2.0
"""Plans of memory for problems that come from elsewhere: `memc.plan` and what it reads."""

from .planner import Plan, SpacePlan, plan
from .tensors import Tensor

__all__ = ["Plan", "SpacePlan", "Tensor", "plan"]
